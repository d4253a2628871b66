"""`tpuctl init`: write a cluster spec to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

HELP = """Write a cluster spec with comments to start from. A file that is there already is never overwritten.

With --emulator it is one that works as it stands, on the emulator of this machine.

Examples:

    tpuctl init
    tpuctl init --emulator
    tpuctl init -f lab.yaml
"""


def register(app: typer.Typer) -> None:
    app.command("init", help=HELP, short_help="Write a cluster spec to start from.")(init)


def init(
    file: Annotated[Path, typer.Option("-f", "--file", envvar="TPUCTL_SPEC", help="The file to write.")] = Path(
        "tpuctl.yaml"
    ),
    emulator: Annotated[bool, typer.Option("--emulator", help="For the emulator of this machine.")] = False,
) -> None:
    from tpuctl.base.errors import UserError
    from tpuctl.spec.starter import cloud_starter, emulator_starter

    text = emulator_starter(file.absolute().parent / "tpuctl-storage") if emulator else cloud_starter()
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError as error:
        raise UserError(f"{str(file)!r} is there already and was left as it is; name another with -f") from error
    except OSError as error:
        raise UserError(f"cannot write {str(file)!r}: {error.strerror or error}") from error
    steps = "tpuctl emulator start" if emulator else f"edit it, then: tpuctl validate -f {file}"
    typer.echo(f"wrote {file}; next: {steps}", err=True)
