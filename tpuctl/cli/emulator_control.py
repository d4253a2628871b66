"""What the verbs of `tpuctl emulator` share: they talk to another process by its control API."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tpuctl.base.errors import UserError
from tpuctl.cli.options import say

Name = Annotated[str, typer.Option("--name", help="Several emulators of one user have different names.")]


def home_of(state_dir: Path | None) -> Path:
    from tpuctl.app import Settings

    return Settings.from_environment(os.environ, state_dir).home


def ask(state_dir: Path | None, name: str, verb: str, document: dict[str, Any] | None = None) -> Any:
    from tpuctl.emulator import remote

    return remote.ask(remote.find(home_of(state_dir), name), verb, document)


def show(document: Any) -> None:
    print(json.dumps(document, indent=1, sort_keys=True))


def show_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], shrink: Sequence[int] = (), empty: str = ""
) -> None:
    """Within 80 columns; `empty` is a message in place of no rows."""
    from tpuctl.report.table import Row, render_table

    if rows:
        print(render_table(header, [Row(tuple(row)) for row in rows], shrink=shrink))
    else:
        say(empty)


def seconds_of(option: str, text: str) -> float:
    from tpuctl.base.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UserError(f"{option}: {error}") from error


def is_number(text: str) -> bool:
    """Plain digits, few enough for any count: `²` and `٣` are digits to Python too."""
    return text.isascii() and text.isdigit() and len(text) < 10
