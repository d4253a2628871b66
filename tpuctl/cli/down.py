"""`tpuctl down`: slices, head, disk and secret are deleted."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tpuctl.cli.options import SPEC, SpecFile, StateDir, say, seconds, sigterm_interrupts

HELP = """End the cluster: its runs, slices, head, data disk and secret.

The head's agent ends runs with grace and deletes the slices; then the head goes. Where the agent cannot be reached, all
that carries the cluster's labels is deleted from here, with force. Queued resources with its labels that neither its
records nor its spec know are orphans: they are told of, and deleted only with --orphans. It may be run again at any
point. Exit codes: 0 nothing is left, 1 failed, 2 usage or spec, 3 something is left or could not be seen, 130
interrupted.

Examples:

    tpuctl down
    tpuctl down --keep-disk          # the records stay; 'tpuctl up' finds them
    tpuctl down --yes --wait-runs    # runs may finish first
    tpuctl down --yes --orphans      # what carries our labels and nobody knows, too
"""


def register(app: typer.Typer) -> None:
    app.command("down", help=HELP, short_help="End the cluster and delete what it made.")(down)


def down(
    file: SpecFile = SPEC,
    keep_disk: Annotated[bool, typer.Option("--keep-disk", help="Keep the data disk with runs and records.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before the disk is deleted.")] = False,
    wait_runs: Annotated[bool, typer.Option("--wait-runs", help="Wait until runs end by themselves.")] = False,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="Delete what has our labels and nobody knows, too.")
    ] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", help="How long the agent's part may take: 90s, 2h, none.")
    ] = "none",
    state_dir: StateDir = None,
) -> None:
    from tpuctl import app
    from tpuctl.head.take_down import DownWish

    limit_s = seconds(timeout, "--timeout")
    take_down = app.build_take_down(app.basis(state_dir), file, say)
    names = take_down.home.want.names
    if not keep_disk and not yes:
        ask_for(names.disk)
    try:
        with sigterm_interrupts():
            ended = take_down.run(DownWish(keep_disk, wait_runs, limit_s, orphans))
    except KeyboardInterrupt:
        say(
            f"interrupted. What may still exist: head {names.head}, disk {names.disk}, secret {names.secret}, queued "
            f"resources {names.cluster}-*. Run 'tpuctl down' again to go on; a head that was told deletes by itself."
        )
        raise typer.Exit(130) from None
    if not ended:
        say(f"nothing to do: cluster {names.cluster} has neither head nor slices, disk or secret")
        return
    say(f"cluster {names.cluster} is gone" + (f"; disk {names.disk} was kept" if keep_disk else ""))


def ask_for(disk: str) -> None:
    """Raises UserError where nobody can answer, typer.Exit when the answer is no."""
    from tpuctl.base.errors import UserError

    if not sys.stdin.isatty():
        raise UserError(f"'tpuctl down' deletes disk {disk} with all records of runs: say --yes, or --keep-disk")
    if not typer.confirm(f"Delete disk {disk} with all records of runs?", err=True):
        say("nothing was done; --keep-disk ends the cluster and keeps the disk")
        raise typer.Exit(1)
