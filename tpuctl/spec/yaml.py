"""The way in: YAML text or file to a spec, or all that is wrong with it.

`parse_*` are pure. `load_*` read the file; nothing else in this room touches one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tpuctl.base.errors import UserError
from tpuctl.spec.cluster import ClusterSpec
from tpuctl.spec.cluster_yaml import cluster_of
from tpuctl.spec.errors import Problem, SpecError
from tpuctl.spec.fields import Problems
from tpuctl.spec.grant import check_grant
from tpuctl.spec.run import RunSpec
from tpuctl.spec.run_yaml import lint_run, run_of
from tpuctl.spec.tree import MAX_BYTES, Mapping, compose, too_long

__all__ = ["check_grant", "lint_run", "load_cluster", "load_run", "parse_cluster", "parse_run", "read_text"]

Spec = TypeVar("Spec")


def parse_cluster(text: str, filename: str) -> ClusterSpec:
    """Raises SpecError with every problem of the text; `filename` is for its messages only."""
    return _parse(text, filename, cluster_of)


def parse_run(text: str, filename: str) -> RunSpec:
    """Raises SpecError with every problem of the text; `filename` is for its messages only."""
    return _parse(text, filename, run_of)


def load_cluster(path: Path) -> ClusterSpec:
    """Raises SpecError, and UserError when there is no such file or it cannot be read."""
    return parse_cluster(read_text(path), str(path))


def load_run(path: Path) -> RunSpec:
    """Raises SpecError, and UserError when there is no such file or it cannot be read."""
    return parse_run(read_text(path), str(path))


def _parse(text: str, filename: str, read: Callable[[Mapping, Problems], Spec | None]) -> Spec:
    root, found = compose(text, filename)
    problems = Problems(found)
    spec = read(root, problems)
    if spec is None or problems.found:
        raise SpecError(filename, problems.found)
    return spec


def read_text(path: Path) -> str:
    """The file as text, with line ends as they are. Raises SpecError for what is not UTF-8 or too long to be a spec."""
    try:
        with path.open("rb") as file:
            data = file.read(4 * MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise UserError(f"there is no spec {str(path)!r}; 'tpuctl init' writes a cluster spec") from error
    except OSError as error:
        raise UserError(f"cannot read the spec {str(path)!r}: {error.strerror or error}") from error
    if len(data) > 4 * MAX_BYTES:
        raise SpecError(str(path), [too_long()])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
        text = f"not UTF-8 text: byte 0x{data[error.start]:02x}; save the file as UTF-8"
        raise SpecError(str(path), [Problem(line, column, text)]) from error
