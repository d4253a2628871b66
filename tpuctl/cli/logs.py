"""`tpuctl logs`: what a run's programs wrote, byte for byte, also after their slices are gone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tpuctl.cli.options import SPEC, StateDir, plain_name, say

HELP = """Print a run's output: all attempts, one rank. The bytes go to stdout as the program wrote them; a header line
before each attempt goes to stderr.

Examples:

    tpuctl logs digits
    tpuctl logs -f digits
    tpuctl logs digits --attempt 2 --rank 3
    tpuctl logs digits 2> /dev/null | grep loss
"""


def register(app: typer.Typer) -> None:
    app.command("logs", help=HELP, short_help="Print a run's output.")(logs)


def logs(
    name: Annotated[str, typer.Argument(help="A run's name or id.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Until the run is over.")] = False,
    rank: Annotated[int, typer.Option(min=0, help="Which rank.")] = 0,
    attempt: Annotated[int | None, typer.Option(min=1, help="Only this attempt.")] = None,
    file: Annotated[Path, typer.Option("--file", envvar="TPUCTL_SPEC", help="The cluster's spec.")] = SPEC,
    headers: Annotated[bool, typer.Option("--headers/--no-headers", help="A line before each attempt.")] = True,
    state_dir: StateDir = None,
) -> None:
    from tpuctl import app
    from tpuctl.cli.tailing import Tail

    def tell(text: str) -> None:
        if headers:
            say(text)

    plain_name(name, "name or id of a run")
    here = app.basis(state_dir)
    tail = Tail(app.connect(here, file), name, rank, here.clock, sys.stdout.buffer.write, sys.stdout.buffer.flush, tell)
    tail.show(attempt, follow=follow)
