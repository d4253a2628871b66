"""`tpuctl validate`: read specs and tell everything that is wrong with them. No call is made."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

HELP = """Read the cluster spec, and run specs, and tell everything that is wrong with them.

No call is made and nothing is changed. All problems are told at once, as FILE:LINE:COLUMN. With run specs, the cluster
spec is read too when it is there or named, and the pools that the runs name are looked up in it.

Exit status: 0 all is well, 2 something is wrong.

Examples:

    tpuctl validate
    tpuctl validate -f lab.yaml
    tpuctl validate train.yaml sweep.yaml
"""

DEFAULT = Path("tpuctl.yaml")


def register(app: typer.Typer) -> None:
    app.command("validate", help=HELP, short_help="Read specs and tell all that is wrong.")(validate)


def validate(
    runs: Annotated[list[Path] | None, typer.Argument(metavar="[RUN.yaml]...", help="Run specs.")] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", envvar="TPUCTL_SPEC", help="The cluster's spec (tpuctl.yaml).")
    ] = None,
) -> None:
    from tpuctl import app
    from tpuctl.spec.inspect import Inspection, inspect

    # Somebody who checks a run spec only, far from any cluster's, is not told that the latter is missing.
    cluster = file or (DEFAULT if not runs or DEFAULT.exists() else None)
    found: Inspection = inspect(cluster, tuple(runs or ()), app.basis().clock.now())
    for line in found.good:
        typer.echo(line)
    for line in (*found.warnings, *found.wrong):
        typer.echo(line, err=True)
    raise typer.Exit(2 if found.wrong else 0)
