"""Text to a tree of nodes that know their place. Every later message can name line and column.

A strict reading of YAML, narrower than YAML itself: one document, text keys, no key twice (A20), no anchors, aliases,
merge keys or tags. A spec is short; each value has one place. So no file can grow when read (the "billion laughs"),
and none can make Python objects. Scalars keep their text as it stands in the file: what `no`, `0123` or `2026-12-01`
mean is the reader's question and not the loader's (A21, A22).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import yaml

from tpuctl.spec.errors import Problem, SpecError

MAX_BYTES = 256 * 1024
MAX_DEPTH = 20
_RESOLVER = yaml.resolver.Resolver()
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Scalar:
    line: int
    column: int
    text: str  # plain: as it stands in the file; quoted or block: what the quotes mean
    plain: bool  # neither quoted nor a block
    kind: str  # what YAML 1.1 takes the plain text for: str, bool, int, float, null, timestamp, …; quoted: str

    @property
    def is_empty(self) -> bool:
        return self.plain and not self.text and self.kind != "alias"


@dataclass(frozen=True, slots=True)
class Sequence:
    line: int
    column: int
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Mapping:
    line: int
    column: int
    items: tuple[tuple[Scalar, Node], ...]  # each key once

    def key(self, name: str) -> Scalar | None:
        return next((key for key, _ in self.items if key.text == name), None)

    def get(self, name: str) -> Node | None:
        return next((value for key, value in self.items if key.text == name), None)


Node = Scalar | Sequence | Mapping


def compose(text: str, filename: str) -> tuple[Mapping, list[Problem]]:
    """The document, and what is wrong with it so far. Raises SpecError when there is no tree to go on with."""
    if len(text) > MAX_BYTES:
        raise SpecError(filename, [too_long()])
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            builder.take(event)
    except _TooDeepError as error:
        problem = Problem(error.line, error.column, f"nested deeper than {MAX_DEPTH} levels: this is no spec")
        raise SpecError(filename, [*builder.problems, problem]) from error
    except yaml.MarkedYAMLError as error:
        raise SpecError(filename, [*builder.problems, _syntax_problem(error)]) from error
    except yaml.reader.ReaderError as error:
        raise SpecError(filename, [_character_problem(error, text)]) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML lets Python's own errors through for escapes beyond Unicode and for absurd numbers in %YAML.
        raise SpecError(filename, [*builder.problems, Problem(1, 1, f"not YAML: {error}")]) from error
    root = builder.root
    if root is None or (isinstance(root, Scalar) and root.is_empty):
        raise SpecError(filename, [*builder.problems, Problem(1, 1, "the file is empty: 'tpuctl init' writes a spec")])
    if not isinstance(root, Mapping):
        what = "a list" if isinstance(root, Sequence) else f"the text {_short(root.text)}"
        problem = Problem(root.line, root.column, f"expected keys and values ('cluster: lab'), found {what}")
        raise SpecError(filename, [*builder.problems, problem])
    return root, builder.problems


def too_long() -> Problem:
    return Problem(1, 1, f"longer than {MAX_BYTES // 1024} KiB: this is no spec")


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "…")


def _syntax_problem(error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    text = f"not YAML: {error.problem or error.context or 'cannot be read'}"
    if "'\\t'" in text:
        text += "; indent with spaces, not tabs"
    elif error.context and error.problem:
        text += f" ({error.context})"
    if "mapping values are not allowed here" in text:
        text += "; a text with ': ' in it needs quotes"
    return Problem(line, column, text)


def _character_problem(error: yaml.reader.ReaderError, text: str) -> Problem:
    before = text[: error.position]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return Problem(line, column, f"the character U+{ord(text[error.position]):04X} may not stand in YAML; remove it")


class _TooDeepError(Exception):
    def __init__(self, line: int, column: int) -> None:
        super().__init__()
        self.line, self.column = line, column


@dataclass(slots=True)
class _Open:
    """A mapping or list whose end was not read yet."""

    line: int
    column: int
    is_mapping: bool
    items: list[Node]
    pairs: list[tuple[Scalar, Node]]
    key: Node | None = None


class _Builder:
    """Takes the parser's events one by one; keeps its own stack, so depth is bounded by MAX_DEPTH and not by Python."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.root: Node | None = None
        self._stack: list[_Open] = []
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        mark = event.start_mark
        assert mark is not None  # the parser gives every event one; the stubs allow for hand-made events
        line, column = mark.line + 1, mark.column + 1
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents == 2:
                self._complain(line, column, "a second document begins here; a spec is one document, without '---'")
        elif isinstance(event, yaml.AliasEvent):
            self._complain(line, column, f"alias '*{event.anchor}': anchors and aliases are not read; write it out")
            self._place(Scalar(line, column, "", plain=True, kind="alias"))
        elif isinstance(event, yaml.ScalarEvent):
            self._check_node(event, line, column)
            self._place(self._scalar(event, line, column))
        elif isinstance(event, yaml.CollectionStartEvent):
            self._check_node(event, line, column)
            if len(self._stack) >= MAX_DEPTH:
                raise _TooDeepError(line, column)
            self._stack.append(_Open(line, column, isinstance(event, yaml.MappingStartEvent), [], []))
        elif isinstance(event, yaml.CollectionEndEvent):
            done = self._stack.pop()
            if done.is_mapping:
                self._place(Mapping(done.line, done.column, tuple(done.pairs)))
            else:
                self._place(Sequence(done.line, done.column, tuple(done.items)))

    def _complain(self, line: int, column: int, text: str) -> None:
        self.problems.append(Problem(line, column, text))

    def _check_node(self, event: yaml.NodeEvent, line: int, column: int) -> None:
        if event.anchor is not None:
            self._complain(line, column, f"anchor '&{event.anchor}': anchors and aliases are not read; remove it")
        tag = cast("str | None", getattr(event, "tag", None))
        if tag is not None:
            self._complain(line, column, f"tag {tag.replace(_TAG, '!!')!r}: tags are not read; remove it")

    def _scalar(self, event: yaml.ScalarEvent, line: int, column: int) -> Scalar:
        plain = event.style is None or event.style == ""
        # PyYAML leaves the two halves of an escaped character apart, as JSON writes it ("\ud83d\ude00").
        text = event.value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if "\ufffd" in text and "\ufffd" not in event.value:
            self._complain(line, column, "half of a character (a lone \\ud800 to \\udfff escape); write it whole")
        if "\0" in text:
            self._complain(line, column, "a zero character (\\0) cannot reach a program; remove it")
        kind = "str"
        if plain:
            resolved = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
            kind = str(resolved).removeprefix(_TAG)
        return Scalar(line, column, text, plain, kind)

    def _place(self, node: Node) -> None:
        if not self._stack:
            if self.root is None:
                self.root = node
            return
        parent = self._stack[-1]
        if not parent.is_mapping:
            parent.items.append(node)
        elif parent.key is None:
            parent.key = node
        else:
            self._pair(parent, parent.key, node)
            parent.key = None

    def _pair(self, parent: _Open, key: Node, value: Node) -> None:
        if not isinstance(key, Scalar):
            self._complain(key.line, key.column, "a key must be a plain word, not a list or a mapping")
            return
        if key.plain and key.text == "<<":
            self._complain(key.line, key.column, "merge key '<<': merging is not read; write the keys out")
            return
        first = next((known for known, _ in parent.pairs if known.text == key.text), None)
        if first is not None:
            self._complain(
                key.line,
                key.column,
                f"duplicate key {_short(key.text)}, first on line {first.line}; remove one of the two",
            )
            return
        parent.pairs.append((key, value))
