"""A scenario's file: YAML with the line and column of everything that is wrong in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml
from pydantic import ValidationError

from tpuctl.base.errors import UserError
from tpuctl.emulator.scenario import Settings, mistakes_of, read_settings
from tpuctl.emulator.scenario_capacity import ReadFile

Step = str | int
Place = tuple[int, int]  # line and column, both from 1


def read_scenario(path: Path) -> Settings:
    """Files that it names are looked for beside it. Raises UserError: `file:line:column: what` for each mistake."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"scenario {path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"scenario {path}: not UTF-8 text: {error.reason} at byte {error.start}") from error
    return parse_text(text, str(path), lambda name: (path.parent / name).read_text(encoding="utf-8"))


def parse_text(text: str, source: str, read: ReadFile) -> Settings:
    """Raises UserError."""
    try:
        found = [(_mark(event), "aliases are not read; write it out") for event in _aliases(text)]
        if found:
            raise _refused(source, found)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        places = {} if root is None else dict(_places(root, ()))
        found = [] if root is None else list(_repeated(root))
        document = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise _refused(source, [(place, f"not YAML: {error.problem or error.context}")]) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _refused(source, [((1, 1), f"not YAML: {error}")]) from error
    try:
        settings = read_settings(document, read)
    except ValidationError as error:
        found += [(_place_of(steps, places), f"{path}: {words}") for steps, path, words in mistakes_of(error)]
        raise _refused(source, found) from error
    if found:
        raise _refused(source, found)
    return settings


def _refused(source: str, mistakes: list[tuple[Place, str]]) -> UserError:
    lines = [f"{source}:{line}:{column}: {text}" for (line, column), text in sorted(mistakes)]
    return UserError("\n".join([f"scenario {source}: {len(lines)} mistake(s)", *lines]))


def _places(node: yaml.Node, path: tuple[Step, ...]) -> Iterator[tuple[tuple[Step, ...], Place]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, _word(key))
            yield here, _mark(key)
            yield from _places(value, here)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*path, index), _mark(item)
            yield from _places(item, (*path, index))


def _repeated(node: yaml.Node) -> Iterator[tuple[Place, str]]:
    """Keys that stand twice: YAML's loader would take the last without a word."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _repeated(item)
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if _word(key) in seen:
                yield _mark(key), f"key {_word(key)!r} stands here twice; remove one"
            seen.add(_word(key))
            yield from _repeated(value)


def _word(key: yaml.Node) -> str:
    return str(key.value)


def _aliases(text: str) -> Iterator[yaml.Event]:
    """A few lines of them could grow to any size, or into themselves."""
    return (event for event in yaml.parse(text, Loader=yaml.SafeLoader) if isinstance(event, yaml.AliasEvent))


def _mark(node: yaml.Node | yaml.Event) -> Place:
    mark = node.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _place_of(steps: tuple[Step, ...], places: dict[tuple[Step, ...], Place]) -> Place:
    """Of the innermost step that stands in the file: a key that is missing has its parent's place.

    A single rule may stand where a list is usual: then the file has no step for the number.
    """
    found: tuple[Step, ...] = ()
    for step in steps:
        if (*found, step) in places:
            found = (*found, step)
        elif isinstance(step, str):
            break
    return places.get(found, (1, 1))
