"""Keys as data: what may be written where. Reader, JSON schema and reference page follow these tables."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "pattern": "^[a-z]([a-z0-9-]*[a-z0-9])?$"}
FLAG: Schema = {"type": "boolean"}
DURATION: Schema = {"type": "string", "pattern": r"^(\d+(\.\d+)?(ms|s|m|h|d))+$"}
DEADLINE: Schema = {"anyOf": [DURATION, {"const": "none"}]}
TEXTS: Schema = {"type": "array", "items": TEXT}


def whole(least: int, most: int | None = None) -> Schema:
    return {"type": "integer", "minimum": least, **({} if most is None else {"maximum": most})}


def one_of(*words: str) -> Schema:
    return {"enum": list(words)}


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    about: str  # one or two sentences, for the schema and the reference page
    schema: Schema = field(default_factory=dict)  # of the value as written; empty with a block
    default: str = ""  # as one would write it; "" = none
    required: bool = False
    block: Block | None = None  # of a mapping with known keys
    each: Block | None = None  # of a list whose entries are such mappings
    later: str = ""  # not there yet: what it will be for. Refused by name
    already: tuple[str, ...] = ()  # with `later`: what may be written nevertheless, as it changes nothing


@dataclass(frozen=True, slots=True)
class Block:
    title: str
    keys: tuple[Key, ...]
    # What people write instead, where spelling alone does not lead to the right key.
    instead: Mapping[str, str] = field(default_factory=dict)

    def key(self, name: str) -> Key | None:
        return next((key for key in self.keys if key.name == name), None)

    def nearest(self, word: str) -> str | None:
        """The known key that was probably meant."""
        low = word.strip().lower().replace("-", "_")
        if low in self.instead:
            return self.instead[low]
        names = [key.name for key in self.keys]
        found = difflib.get_close_matches(low, names, n=1, cutoff=0.6)
        return found[0] if found else None
