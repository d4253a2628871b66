"""Options that many verbs share."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

SPEC = Path("tpuctl.yaml")

SpecFile = Annotated[Path, typer.Option("-f", "--file", envvar="TPUCTL_SPEC", help="The cluster's spec.")]
StateDir = Annotated[
    Path | None,
    typer.Option("--state-dir", envvar="TPUCTL_HOME", help="What tpuctl keeps on this machine (default: ~/.tpuctl)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="The document itself.")]


def say(text: str) -> None:
    """A message: to stderr, since stdout is for data."""
    print(text, file=sys.stderr, flush=True)


def plain_name(name: str, what: str) -> str:
    """The name of something that may exist. What cannot be one is refused before a call. Raises UserError."""
    from tpuctl.base.errors import UserError
    from tpuctl.base.ids import MAX_NAME, is_plain_name

    if not is_plain_name(name, MAX_NAME):
        raise UserError(f"{name!r} is no {what}: those have small letters, digits and dashes, a letter first")
    return name


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """A command that somebody ends says what may exist, like one that is interrupted by hand."""
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def seconds(text: str, option: str) -> float | None:
    """From `90s`, `2h`; None for `none`. Raises UserError."""
    from tpuctl.base.errors import UserError
    from tpuctl.base.units import parse_duration

    if text == "none":
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UserError(f"{option} {text!r}: {error}, or 'none'") from error
