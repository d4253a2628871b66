"""`tpuctl events`: what happened, in order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpuctl.cli.options import SPEC, AsJson, SpecFile, StateDir, say

if TYPE_CHECKING:
    from tpuctl.base.units import Instant

FOLLOW_S = 1.0
PAGE = 10_000  # the most that the agent gives at once

HELP = """Show what happened: slices asked for, joined, taken and replaced; runs started, stopped and ended.

--since takes a time span (2h), a day or time in UTC (2026-12-01, 2026-12-01T10:30), or the id of an event, whose
successors are shown. --kind and --subject choose; a slice's or pool's name also finds its queued resources. --json
prints one document a line.

Examples:

    tpuctl events
    tpuctl events --since 2h --kind lost --kind verdict
    tpuctl events --subject v4-0 --follow
    tpuctl events --json --since 2026-12-01 | jq -r .kind | sort | uniq -c
"""


def register(app: typer.Typer) -> None:
    app.command("events", help=HELP, short_help="What happened, in order.")(events)


def events(
    file: SpecFile = SPEC,
    since: Annotated[str, typer.Option("--since", metavar="SPAN|TIME|ID", help="Only those since then.")] = "",
    kind: Annotated[list[str] | None, typer.Option("--kind", help="Only of this kind; may be repeated.")] = None,
    subject: Annotated[str, typer.Option("--subject", help="Only of this run, slice, pool or queued resource.")] = "",
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    from tpuctl import app
    from tpuctl.client import AgentNotReadyError, AgentUnreachableError

    here = app.basis(state_dir)
    after, start = starting_point(since, here.clock.now())
    agent = app.connect(here, file)

    def pages(after: int) -> int:
        """Print what is there after that id; returns the last id."""
        while True:
            rows = agent.events(after, start=start, kinds=kind or (), subject=subject, limit=PAGE)["events"]
            show(rows, as_json=as_json)
            after = max([after, *(int(row["id"]) for row in rows)])
            if len(rows) < PAGE:
                return after

    shown = pages(after)
    if shown == after and not follow and not as_json:
        typer.echo("no events")
    while follow:
        here.clock.sleep(FOLLOW_S)
        try:
            shown = pages(shown)
        except (AgentUnreachableError, AgentNotReadyError) as error:
            say(f"tpuctl: {error}; asking again")


def show(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    from tpuctl.report.events import render_events

    if as_json:
        for row in rows:
            typer.echo(json.dumps({"version": 1, **row}))
    elif rows:
        typer.echo(render_events({"events": rows}))


def starting_point(text: str, now: Instant) -> tuple[int, str]:
    """(id, time): one of the two, the other is 0 or "". Raises UserError."""
    from tpuctl.base.errors import UserError
    from tpuctl.base.units import Instant, parse_duration

    if not text:
        return 0, ""
    if text.isascii() and text.isdigit():
        return int(text), ""
    try:
        return 0, now.plus(-parse_duration(text)).iso()
    except ValueError:
        pass
    for spelt in (text, f"{text}Z", f"{text}T00:00Z"):
        try:
            return 0, Instant.parse(spelt).iso()
        except ValueError:
            continue
    raise UserError(f"--since {text!r}: write 2h, 2026-12-01, 2026-12-01T10:30, or the id of an event")
