"""`tpuctl why`: why a run waits, why a slice is not there."""

from __future__ import annotations

from typing import Annotated

import typer

from tpuctl.cli.options import SPEC, AsJson, SpecFile, StateDir, plain_name

HELP = """Say why a run, a slice or a queued resource is in the state that it is in, and what would change it.

Examples:

    tpuctl why digits
    tpuctl why v4-0
    tpuctl why lab-v4-0-t6m8gb-1 --json
"""


def register(app: typer.Typer) -> None:
    app.command("why", help=HELP, short_help="Say why a run waits or a slice is not there.")(why)


def why(
    name: Annotated[str, typer.Argument(help="A run's name or id, a slice (v4-0) or a queued resource.")],
    file: SpecFile = SPEC,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    import json

    from tpuctl import app
    from tpuctl.report.why import render_why

    plain_name(name, "name of a run, slice or queued resource")
    here = app.basis(state_dir)
    document = app.connect(here, file).why(name)
    if as_json:
        typer.echo(json.dumps({"version": 1, "at": here.clock.now().iso(), **document}, indent=1))
    else:
        typer.echo(render_why(document))
