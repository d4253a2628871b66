"""Options that many verbs share."""

from __future__ import annotations

import sys
from pathlib import Path
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
