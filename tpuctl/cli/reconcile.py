"""`tpuctl reconcile`: one pass, or with --watch one after the other. On the head in this process, elsewhere by asking
the head."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tpuctl.base.errors import UserError
from tpuctl.cli.options import SPEC, AsJson, SpecFile, StateDir, interrupt, say, seconds

HELP = """Run one pass: look at the cloud, and ask for, delete or replace what differs from the spec.

Anywhere but on the head it finds the head (and builds a lost one anew) and asks it for a pass. Killing it is safe at
any moment: the next pass finishes the work.

--watch goes on until Ctrl-C: every few seconds while something changes, about once a minute at rest. It prints a line
a change, survives passes that fail, and tries again later and later.

Exit codes: 0 done, 3 something failed or is unknown and the rest was done, 4 another pass is running, 130 interrupted.

Examples:

    tpuctl reconcile
    tpuctl reconcile --watch
    tpuctl reconcile --deadline 60s
    tpuctl reconcile --dry-run
"""

INTERRUPTED_EXIT = 130

StoreDir = Annotated[Path | None, typer.Option("--store", hidden=True, help="On the head: where its store is.")]
EpochText = Annotated[str, typer.Option("--epoch", hidden=True, help="On the head: its epoch.")]
RayUrl = Annotated[str, typer.Option("--ray", hidden=True, help="On the head: Ray's dashboard.")]


def register(app: typer.Typer) -> None:
    app.command("reconcile", help=HELP, short_help="Run one pass.")(reconcile)


def reconcile(
    file: SpecFile = SPEC,
    deadline: Annotated[
        str, typer.Option("--deadline", help="What is not begun by then is left to the next.")
    ] = "120s",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what a pass would do.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Pass after pass, until Ctrl-C.")] = False,
    as_json: AsJson = False,
    store: StoreDir = None,
    epoch: EpochText = "",
    ray: RayUrl = "",
    rebuild_store: Annotated[
        bool, typer.Option("--rebuild-store", hidden=True, help="Put a damaged store aside; adopt what exists.")
    ] = False,
    state_dir: StateDir = None,
) -> None:
    deadline_s = seconds(deadline, "--deadline")
    if not deadline_s:
        raise UserError(f"--deadline {deadline!r}: a pass must end, and needs some time; write it like 60s")
    if watch and (dry_run or rebuild_store):
        raise UserError("--watch runs passes: it goes neither with --dry-run nor with --rebuild-store")
    if watch:
        from tpuctl.cli.watching import watch_passes

        watch_passes(file, store, epoch, ray, deadline_s=deadline_s, as_json=as_json, state_dir=state_dir)
        return
    if store is None:
        ask_head(file, deadline_s, dry_run=dry_run, as_json=as_json, state_dir=state_dir)
        return
    run_here(
        store, epoch, ray, deadline_s=deadline_s, dry_run=dry_run, as_json=as_json, rebuild=rebuild_store,
        state_dir=state_dir,
    )  # fmt: skip


def ask_head(file: Path, deadline_s: float, *, dry_run: bool, as_json: bool, state_dir: Path | None) -> None:
    from tpuctl import app

    if dry_run:
        plan = app.connect(app.basis(state_dir), file).plan()
        if as_json:
            typer.echo(json.dumps(plan, indent=1))
        else:
            show_plan(tuple(plan["actions"]))
        raise typer.Exit(int(plan["exit"]))
    code, summary = app.build_bring_up(app.basis(state_dir), file, say).reconcile(deadline_s)
    typer.echo(json.dumps({"version": 1, "exit": code, "summary": summary}) if as_json else summary)
    raise typer.Exit(code)


def run_here(
    store: Path,
    epoch: str,
    ray: str,
    *,
    deadline_s: float,
    dry_run: bool,
    as_json: bool,
    state_dir: Path | None,
    rebuild: bool = False,
) -> None:
    from tpuctl import app
    from tpuctl.fleet.apply import InterruptedPassError

    # A pass that cron or systemd ends says what may exist, like one that is interrupted by hand.
    signal.signal(signal.SIGTERM, interrupt)
    try:
        with app.build_pass(app.basis(state_dir), store, epoch, ray, rebuild=rebuild) as this_pass:
            result = this_pass.run(deadline_s=deadline_s, dry_run=dry_run)
    except InterruptedPassError as error:
        say(f"tpuctl: {error}")
        _leave(INTERRUPTED_EXIT)
    except KeyboardInterrupt:
        say("tpuctl: interrupted; nothing was sent that was not answered")
        _leave(INTERRUPTED_EXIT)
    if as_json:
        typer.echo(json.dumps(document(result, app.basis(state_dir).clock.now().iso()), indent=1))
    elif dry_run:
        show_plan(result.plan.lines)
    else:
        typer.echo(result.summary)
    raise typer.Exit(result.exit_code)


def show_plan(lines: tuple[str, ...]) -> None:
    from tpuctl.report.plan import render_plan

    typer.echo(render_plan(lines))


def document(result: Any, at: str) -> dict[str, Any]:
    return {
        "version": 1,
        "at": at,
        "exit": result.exit_code,
        "summary": result.summary,
        "actions": list(result.plan.lines),
        "problems": [] if result.applied is None else result.applied.problems,
        "left": [] if result.applied is None else result.applied.left,
    }


def _leave(code: int) -> None:
    """At once: a call that is under way would keep the interpreter for its whole time limit."""
    import os

    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
