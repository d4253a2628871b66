"""`tpuctl plan`: what the next pass would do, and why."""

from __future__ import annotations

import typer

from tpuctl.cli.options import SPEC, AsJson, SpecFile, StateDir
from tpuctl.cli.reconcile import EpochText, RayUrl, StoreDir, ask_head, run_here

HELP = """Show what the next pass would do, and why, without doing it.

It is the pass's own planner on a fresh look at the cloud. Exit code 3: something is unknown, and the plan partial.

Examples:

    tpuctl plan
    tpuctl plan --json
"""

DEADLINE_S = 60.0


def register(app: typer.Typer) -> None:
    app.command("plan", help=HELP, short_help="What the next pass would do.")(plan)


def plan(
    file: SpecFile = SPEC,
    as_json: AsJson = False,
    store: StoreDir = None,
    epoch: EpochText = "",
    ray: RayUrl = "",
    state_dir: StateDir = None,
) -> None:
    if store is None:
        ask_head(file, DEADLINE_S, dry_run=True, as_json=as_json, state_dir=state_dir)
        return
    run_here(store, epoch, ray, deadline_s=DEADLINE_S, dry_run=True, as_json=as_json, state_dir=state_dir)
