"""JSON schemas of what people write, for editors. Made from the key tables; what is not there yet is not in them."""

from __future__ import annotations

from typing import Any

from tpuctl.spec.cluster_keys import CLUSTER
from tpuctl.spec.keys import Block, Key
from tpuctl.spec.run_keys import RUN

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def cluster_schema() -> dict[str, Any]:
    return {"$schema": _DIALECT, "title": "tpuctl cluster spec", **_block(CLUSTER)}


def run_schema() -> dict[str, Any]:
    return {"$schema": _DIALECT, "title": "tpuctl run spec", **_block(RUN)}


def _block(block: Block) -> dict[str, Any]:
    known = [key for key in block.keys if not key.later or key.already]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {key.name: _key(key) for key in known},
        **({"required": required} if (required := [key.name for key in known if key.required]) else {}),
    }


def _key(key: Key) -> dict[str, Any]:
    about: dict[str, Any] = {"description": key.about}
    if key.each is not None:
        return about | {"type": "array", "items": _block(key.each)}
    if key.block is None:
        return about | dict(key.schema)
    if key.name == "grant":
        return about | {"anyOf": [_block(key.block), {"const": "none"}]}
    if key.schema:  # a short form beside the block
        return about | {"anyOf": [dict(key.schema), _block(key.block)]}
    return about | _block(key.block)
