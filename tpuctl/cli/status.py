"""`tpuctl status`: what exists, what runs, what waits and why. Quick: no cloud is asked while the head answers."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpuctl.cli.options import SPEC, AsJson, SpecFile, StateDir, say

if TYPE_CHECKING:
    from tpuctl.app import Basis
    from tpuctl.base.units import Instant
    from tpuctl.head.folder import ClusterFolder

HELP = """Show slices, runs and the last pass, as the head tells them.

When the head cannot be reached the last answer is shown with its age, and the exit code is 3. --cloud asks the cloud
itself: what carries the cluster's labels, and where the head is now.

Examples:

    tpuctl status
    tpuctl status --json | jq '.slices[] | select(.phase != "READY")'
    tpuctl status --cloud
"""

UNREACHABLE_EXIT = 3


def register(app: typer.Typer) -> None:
    app.command("status", help=HELP, short_help="What exists, what runs, what waits and why.")(status)


def status(
    file: SpecFile = SPEC,
    as_json: AsJson = False,
    cloud: Annotated[bool, typer.Option("--cloud", help="List the cloud instead of asking the head.")] = False,
    state_dir: StateDir = None,
) -> None:
    from tpuctl import app

    here = app.basis(state_dir)
    if cloud:
        from tpuctl.cli.cloud_status import show_cloud

        show_cloud(here, file, as_json=as_json)
        return
    if not as_json:
        app.silence_is_shown()  # the text has it in its head
    folder = app.cluster_folder(here, file)
    document, failure = ask_head(here, file)
    if document is not None:
        folder.save_status(document)
        show(document, here.clock.now(), None, as_json=as_json)
        return
    say(f"tpuctl: {failure}")
    show_last(here, folder, as_json=as_json)
    raise typer.Exit(UNREACHABLE_EXIT)


def ask_head(here: Basis, file: Path) -> tuple[dict[str, Any] | None, str]:
    """(document, "") or (None, why not). A head that was never found is looked for in the cloud."""
    from tpuctl import app
    from tpuctl.client import AgentNotReadyError, AgentUnreachableError

    agent = app.known_agent(here, file) or app.connect(here, file)
    try:
        return agent.status(), ""
    except (AgentUnreachableError, AgentNotReadyError) as error:
        return None, f"{error}. 'tpuctl status --cloud' lists the cloud and finds a head that has moved."


def show_last(here: Basis, folder: ClusterFolder, *, as_json: bool) -> None:
    last = folder.last_status()
    if last is None:
        say("there is no earlier answer to show")
        return
    now = here.clock.now()
    show(last.document, now, max(0.0, now.since(last.at)), as_json=as_json)


def show(document: dict[str, Any], now: Instant, stale_age_s: float | None, *, as_json: bool) -> None:
    if as_json:
        import json

        stale = {} if stale_age_s is None else {"stale_age_s": round(stale_age_s, 1)}
        typer.echo(json.dumps({**document, **stale}, indent=1))
        return
    from tpuctl.report.status import render_status
    from tpuctl.report.style import style_for

    style = style_for(
        terminal=sys.stdout.isatty(),
        columns=shutil.get_terminal_size().columns,
        encoding=sys.stdout.encoding or "ascii",
        environment=os.environ,
    )
    typer.echo(render_status(document, now, stale_age_s, style=style))
