"""`tpuctl events`: what happened, in order."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tpuctl.cli.options import SPEC, AsJson, SpecFile, StateDir, say

FOLLOW_S = 1.0

HELP = """Show what happened: slices asked for, joined, taken and replaced; runs started, stopped and ended.

Examples:

    tpuctl events
    tpuctl events --since 120 --json
    tpuctl events --follow
"""


def register(app: typer.Typer) -> None:
    app.command("events", help=HELP, short_help="What happened, in order.")(events)


def events(
    file: SpecFile = SPEC,
    since: Annotated[int, typer.Option("--since", min=0, help="Only those after the one with this id.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    from tpuctl import app
    from tpuctl.client import AgentNotReadyError, AgentUnreachableError
    from tpuctl.report.events import render_events

    here = app.basis(state_dir)
    agent = app.connect(here, file)
    document = agent.events(since)
    while True:
        rows = document["events"]
        if as_json:
            typer.echo(json.dumps({"version": 1, "at": here.clock.now().iso(), **document}, indent=1))
        elif rows or not follow:
            typer.echo(render_events(document))
        since = max([since, *(int(row["id"]) for row in rows)])
        if not follow:
            return
        here.clock.sleep(FOLLOW_S)
        try:
            document = agent.events(since)
        except (AgentUnreachableError, AgentNotReadyError) as error:
            say(f"tpuctl: {error}; asking again")
            document = {"events": []}
