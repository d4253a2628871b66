"""`tpuctl cancel`: end a run, with grace, on all its hosts."""

from __future__ import annotations

from typing import Annotated

import typer

from tpuctl.cli.options import SPEC, SpecFile, StateDir, plain_name, say

HELP = """Cancel a run. Its programs get SIGTERM at once and their grace to save; every descendant is ended before the
slices are free for others. A run in the queue is cancelled at once. Repeating it is harmless.

Examples:

    tpuctl cancel digits
    tpuctl cancel digits && tpuctl runs digits
"""


def register(app: typer.Typer) -> None:
    app.command("cancel", help=HELP, short_help="Cancel a run.")(cancel)


def cancel(
    name: Annotated[str, typer.Argument(help="A run's name or id.")],
    file: SpecFile = SPEC,
    state_dir: StateDir = None,
) -> None:
    from tpuctl import app

    plain_name(name, "name or id of a run")
    state = app.connect(app.basis(state_dir), file).cancel(name)["state"]
    typer.echo(state)
    if state not in ("SUCCEEDED", "FAILED", "CANCELLED"):
        say(f"{name} is told to stop; 'tpuctl runs {name}' shows its end")
