"""`tpuctl keep`: a sign of life, for clusters with a `ttl`."""

from __future__ import annotations

import typer

from tpuctl.cli.options import SPEC, SpecFile, StateDir

HELP = """Tell the head that somebody still wants the cluster. With `ttl: 7d` in its spec, a cluster that has seen no
up, submit, cancel, down, cron or keep for 7 days gives everything back.

Examples:

    tpuctl keep
    tpuctl keep -f lab.yaml
"""


def register(app: typer.Typer) -> None:
    app.command("keep", help=HELP, short_help="A sign of life, for clusters with a ttl.")(keep)


def keep(file: SpecFile = SPEC, state_dir: StateDir = None) -> None:
    from tpuctl import app

    until = app.connect(app.basis(state_dir), file).keep()["until"]
    typer.echo(f"kept until {until}" if until else "kept; the spec has no ttl, so it is kept anyway")
