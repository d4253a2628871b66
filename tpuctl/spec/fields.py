"""Typed reading of a tree's mappings. Every refusal is collected with its place; the reader goes on to find the rest.

YAML 1.1 takes `no`, `0123`, `1_000` and `2026-12-01` for something else than text. Where a text is wanted such a plain
word is refused with "quote this"; where a number or a flag is wanted only its one clear spelling is read (A21, A22).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from tpuctl.base.ids import is_plain_name
from tpuctl.base.units import parse_duration
from tpuctl.spec.errors import Problem
from tpuctl.spec.keys import Block, Key
from tpuctl.spec.tree import Mapping, Node, Scalar
from tpuctl.spec.tree import Sequence as ListNode

T = TypeVar("T")
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,8})")
_ANY_NUMBER = re.compile(r"-?[0-9][0-9_.]*|0[xob][0-9a-fA-F_]+")


class Problems:
    """Collects what is wrong."""

    def __init__(self, found: Sequence[Problem] = ()) -> None:
        self.found = list(found)

    def add(self, node: Node, text: str) -> None:
        self.found.append(Problem(node.line, node.column, text))

    def text(self, node: Node, what: str) -> str | None:
        """A text, or None after a complaint."""
        if not isinstance(node, Scalar):
            self.add(node, f"{what} must be a text, not {_kind_of(node)}")
        elif node.is_empty:
            self.add(node, f'{what} has no value; write one, or "" if it is to be empty')
        elif node.kind == "alias":
            return None  # complained of already
        elif node.kind != "str":
            self.add(
                node,
                f"{what}: YAML takes {node.text} for {_NAMES.get(node.kind, 'something else')}; "
                f"quote this: {_quoted(node.text)}",
            )
        elif any(ord(letter) < 32 for letter in node.text):
            self.add(node, f"{what} must be one line without control characters: {shown(node.text)}")
        else:
            return node.text
        return None

    def as_written(self, node: Node, what: str) -> str | None:
        """For what goes to the program: a plain value's own letters, whatever YAML takes it for."""
        if not isinstance(node, Scalar):
            self.add(node, f"{what} must be a text, not {_kind_of(node)}; quote it if it is meant as text")
        elif node.is_empty:
            self.add(node, f'{what} has no value; write "" if it is to be empty')
        elif node.kind != "alias":
            return node.text
        return None

    def whole(self, node: Node, what: str, least: int, most: int) -> int | None:
        if isinstance(node, Scalar) and node.plain and _WHOLE.fullmatch(node.text):
            number = int(node.text)
            if least <= number <= most:
                return number
            self.add(node, f"{what} is {number}; it must be {_range(least, most)}")
        elif isinstance(node, Scalar) and not node.plain and _WHOLE.fullmatch(node.text):
            self.add(node, f"{what} must be a number, not a quoted text: write {node.text} without quotes")
        elif isinstance(node, Scalar) and _ANY_NUMBER.fullmatch(node.text):
            self.add(
                node, f"{what} must be a whole number in plain digits, without leading zero, point or '_': {node.text}"
            )
        elif not (isinstance(node, Scalar) and node.kind == "alias"):
            self.add(node, f"{what} must be a whole number, not {_kind_of(node)}")
        return None

    def flag(self, node: Node, what: str) -> bool | None:
        if isinstance(node, Scalar) and node.plain and node.text in ("true", "false"):
            return node.text == "true"
        if not (isinstance(node, Scalar) and node.kind == "alias"):
            self.add(node, f"{what} must be true or false, without quotes, not {_kind_of(node)}")
        return None

    def duration(self, node: Node, what: str) -> float | None:
        """Seconds."""
        if isinstance(node, Scalar) and node.text and _ANY_NUMBER.fullmatch(node.text):
            self.add(node, f"{what} needs a unit: {node.text}s, {node.text}m or {node.text}h?")
            return None
        text = self.text(node, what)
        if text is None:
            return None
        try:
            seconds = parse_duration(text)
        except ValueError:
            self.add(node, f"{what} must be a duration like 90s, 20m, 2h or 1h30m: {shown(text)}")
            return None
        if seconds > _CENTURY_S:
            self.add(node, f"{what} is longer than a century: {shown(text)}")
            return None
        return seconds

    def mapping(self, node: Node, what: str) -> Mapping | None:
        if isinstance(node, Mapping):
            return node
        if not (isinstance(node, Scalar) and node.kind == "alias"):
            self.add(node, f"{what} must be a mapping (name: value), not {_kind_of(node)}")
        return None

    def items(self, node: Node, what: str) -> tuple[Node, ...] | None:
        if isinstance(node, ListNode):
            return node.items
        if not (isinstance(node, Scalar) and node.kind == "alias"):
            self.add(node, f"{what} must be a list, not {_kind_of(node)}")
        return None


_CENTURY_S = 100 * 365.25 * 86400
_SHORTEST_DEADLINE_S = 1.0  # a pass looks once a minute, or each second while something changes
_NAMES = {"bool": "a truth value", "int": "a number", "float": "a number", "null": "nothing", "timestamp": "a date"}


def shown(text: str) -> str:
    """Quoted for a message, on one line, not too long."""
    return repr(text if len(text) <= 80 else text[:77] + "…")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _kind_of(node: Node) -> str:
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, ListNode):
        return "a list"
    if node.is_empty:
        return "nothing"
    return shown(node.text) if node.plain else f"the quoted text {shown(node.text)}"


def _range(least: int, most: int) -> str:
    return f"between {least} and {most}" if most < 10**9 - 1 else f"at least {least}"


class Fields:
    """One mapping read against its block: unknown, missing and not yet known keys are complained of at once."""

    def __init__(self, node: Mapping, block: Block, problems: Problems, where: str = "") -> None:
        self.node = node
        self.problems = problems
        self._block = block
        self._where = where
        self._refused: set[str] = set()
        for key, value in node.items:
            self._check_key(key, value)
        for wanted in block.keys:
            if wanted.required and node.get(wanted.name) is None:
                problems.add(node, f"missing key {self.path(wanted.name)!r} ({wanted.about.rstrip('.')})")

    def path(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name

    def _check_key(self, key: Scalar, value: Node) -> None:
        known = self._block.key(key.text)
        if known is None:
            near = self._block.nearest(key.text)
            if near is not None:
                hint = f"nearest: {near!r}"
            else:
                hint = "known here: " + ", ".join(each.name for each in self._block.keys if not each.later)
            self.problems.add(key, f"unknown key {shown(key.text)} ({hint})")
        elif known.later and not (isinstance(value, Scalar) and value.text in known.already):
            self._refused.add(known.name)
            but = f"; only {' or '.join(known.already)} is known" if known.already else "; remove it"
            self.problems.add(key, f"{self.path(key.text)!r} is not there yet ({known.later} will come){but}")

    def get(self, name: str) -> Node | None:
        """The value's node; None when it was not given or is refused already."""
        key: Key | None = self._block.key(name)
        assert key is not None, name
        return None if name in self._refused else self.node.get(name)

    def read(self, name: str, how: Callable[[Node, str], T | None], default: T) -> T:
        """`how(node, path)`, or the default when the key is absent or its value was refused."""
        node = self.get(name)
        if node is None:
            return default
        value = how(node, self.path(name))
        return default if value is None else value

    def text(self, name: str, default: str = "") -> str:
        return self.read(name, self.problems.text, default)

    def matching(self, name: str, pattern: str, hint: str, default: str = "") -> str:
        """A text that the pattern matches whole; `hint` says how it should look."""

        def check(node: Node, what: str) -> str | None:
            text = self.problems.text(node, what)
            if text is not None and not re.fullmatch(pattern, text):
                self.problems.add(node, f"{what} is {shown(text)}; {hint}")
                return None
            return text

        return self.read(name, check, default)

    def whole(self, name: str, default: int, least: int = 0, most: int = 10**9 - 1) -> int:
        return self.read(name, lambda node, what: self.problems.whole(node, what, least, most), default)

    def flag(self, name: str, default: bool) -> bool:
        return self.read(name, self.problems.flag, default)

    def duration(self, name: str, default: float) -> float:
        return self.read(name, self.problems.duration, default)

    def name(self, name: str, limit: int) -> str:
        """A plain name; "" after a complaint."""

        def check(node: Node, what: str) -> str | None:
            text = self.problems.text(node, what)
            if text is None or is_plain_name(text, limit):
                return text
            if len(text) > limit:
                self.problems.add(node, f"{what} {shown(text)} has {len(text)} characters, at most {limit} fit")
            else:
                hint = "use small letters, digits and dashes, a letter first and no dash last"
                self.problems.add(node, f"{what} {shown(text)}: {hint}")
            return None

        return self.read(name, check, "")

    def version(self) -> None:
        def check(node: Node, what: str) -> int | None:
            number = self.problems.whole(node, what, 0, 10**9 - 1)
            if number not in (None, 1):
                self.problems.add(node, f"version {number} of this format is not known; this tpuctl reads version 1")
            return number

        self.read("version", check, 1)

    def deadline(self, name: str, default: float | None) -> float | None:
        """Seconds, or None for `none`."""
        node = self.get(name)
        if node is None:
            return default
        if isinstance(node, Scalar) and node.text == "none":
            return None
        seconds = self.problems.duration(node, self.path(name))
        if isinstance(node, Scalar) and seconds is not None and seconds < _SHORTEST_DEADLINE_S:
            cure = "would give up at once; write a time from 1s, or none"
            self.problems.add(node, f"{self.path(name)} of {shown(node.text)} {cure}")
        return seconds

    def choice(self, name: str, words: Sequence[str], default: str, later: Sequence[str] = ()) -> str:
        def check(node: Node, what: str) -> str | None:
            text = self.problems.text(node, what)
            if text is not None and text in later:
                self.problems.add(node, f"{what} {text} is not there yet; only {' or '.join(words)} is known")
                return None
            if text is not None and text not in words:
                self.problems.add(node, f"{what} is {shown(text)}; it must be {' or '.join(words)}")
                return None
            return text

        return self.read(name, check, default)

    def items(self, name: str) -> tuple[Node, ...]:
        node = self.get(name)
        return () if node is None else self.problems.items(node, self.path(name)) or ()

    def block(self, name: str) -> Fields | None:
        """The nested mapping read against its own block; None when absent or not a mapping."""
        key = self._block.key(name)
        assert key is not None
        assert key.block is not None, name
        node = self.get(name)
        mapping = None if node is None else self.problems.mapping(node, self.path(name))
        return None if mapping is None else Fields(mapping, key.block, self.problems, self.path(name))
