"""`tpuctl runs`: what was submitted, what became of it; with a name, its attempts."""

from __future__ import annotations

from typing import Annotated

import typer

from tpuctl.cli.options import SPEC, AsJson, SpecFile, StateDir, plain_name

HELP = """List runs, or show one with its attempts, verdicts and evidence.

Examples:

    tpuctl runs
    tpuctl runs digits
    tpuctl runs --json | jq '.runs[] | select(.state == "FAILED") | .name'
"""


def register(app: typer.Typer) -> None:
    app.command("runs", help=HELP, short_help="List runs, or show one.")(runs)


def runs(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="A run's name or id.")] = "",
    file: SpecFile = SPEC,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    import json

    from tpuctl import app
    from tpuctl.report.runs import render_run, render_runs

    if name:
        plain_name(name, "name or id of a run")
    here = app.basis(state_dir)
    client = app.connect(here, file)
    document = client.run(name) if name else client.runs()
    now = here.clock.now()
    if as_json:
        typer.echo(json.dumps({"version": 1, "at": now.iso(), **document}, indent=1))
    else:
        typer.echo(render_run(document, now) if name else render_runs(document, now))
