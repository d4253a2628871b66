"""`tpuctl up`: the head is made or found, gets the spec, and starts asking for slices."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tpuctl.cli.options import SPEC, SpecFile, StateDir, say, seconds, sigterm_interrupts

HELP = """Make or find the head, send it the spec, start a pass.

It may be run again at any time: what is there is kept. Ctrl-C is safe: what was begun goes on, and the same command
goes on from there. Exit codes: 0 done, 1 failed or not there within --timeout, 2 the spec or the arguments must be
mended, 130 interrupted.

Examples:

    tpuctl up
    tpuctl up -f lab.yaml --wait first --timeout 2h
    TPUCTL_SPEC=lab.yaml tpuctl up --wait all
"""


class WaitFor(StrEnum):
    HEAD = "head"
    FIRST = "first"
    ALL = "all"


def register(app: typer.Typer) -> None:
    app.command("up", help=HELP, short_help="Build the head, ask for slices, join what comes.")(up)


def up(
    file: SpecFile = SPEC,
    wait: Annotated[
        WaitFor, typer.Option("--wait", help="For the head, the first slice, or all slices.")
    ] = WaitFor.HEAD,
    timeout: Annotated[
        str, typer.Option("--timeout", help="How long --wait first|all may take: 90s, 2h, none.")
    ] = "none",
    beyond_grant: Annotated[
        bool, typer.Option("--beyond-grant", help="Go on after the grant's last day: slices are billed then.")
    ] = False,
    state_dir: StateDir = None,
) -> None:
    from tpuctl import app

    limit_s = seconds(timeout, "--timeout")
    bring_up = app.build_bring_up(app.basis(state_dir), file, say, beyond_grant=beyond_grant)
    names = bring_up.home.want.names
    try:
        with sigterm_interrupts():
            found = bring_up.up(wait.value, limit_s)
    except KeyboardInterrupt:
        say(
            f"interrupted. What may exist: secret {names.secret}, disk {names.disk}, head {names.head}, and the queued "
            f"resources that it asked for ({names.cluster}-*). All goes on by itself; 'tpuctl up' continues here, "
            "'tpuctl down' ends it."
        )
        raise typer.Exit(130) from None
    typer.echo(f"{found.instance.name} {found.address} epoch {found.epoch}")
