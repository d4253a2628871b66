"""`tpuctl submit`: queue a run, from a file or from a command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from tpuctl.cli.options import SPEC, SpecFile, StateDir, say

if TYPE_CHECKING:
    from tpuctl.cli.submission import Options

_COMMAND = "tpuctl.submit.command"
FAILED_OURSELVES = 125

HELP = """Queue a run: from RUN.yaml, or the command after --, whose words reach the program exactly as given here.

The working directory is shipped as an archive; what .gitignore names stays out. Submitting is safe to repeat after a
lost answer: one submission makes one run. Prints the run's name; its id goes to stderr.

With --wait the exit status is the program's; tpuctl's own failures are then 125.

Examples:

    tpuctl submit train.yaml
    tpuctl submit --wait train.yaml
    tpuctl submit --name digits --workdir . --pool v4 -- python train.py --epochs 40
    tpuctl submit --slices 2 --env MODE=fast -- bash -c 'echo "$MODE"'
"""


class SubmitCommand(TyperCommand):
    """Takes everything after the first `--` as the command, before the parser sees (and drops) the `--`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: typer keeps its Context's base private
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    app.command("submit", cls=SubmitCommand, help=HELP, short_help="Queue a run.")(submit)


def submit(
    ctx: typer.Context,
    run_file: Annotated[Path | None, typer.Argument(metavar="[RUN.yaml]", help="The run's spec.")] = None,
    file: SpecFile = SPEC,
    name: Annotated[str, typer.Option(help="The run's name; default: after the program.")] = "",
    pool: Annotated[list[str] | None, typer.Option(help="A pool it may use; may be repeated, first preferred.")] = None,
    slices: Annotated[int | None, typer.Option(min=1, help="How many slices it takes.")] = None,
    env: Annotated[list[str] | None, typer.Option(metavar="K=V", help="May be repeated; V is taken as it is.")] = None,
    workdir: Annotated[Path | None, typer.Option(help="Directory to ship (with a command; default: none).")] = None,
    checkpoint_dir: Annotated[
        str, typer.Option(help="Where it keeps checkpoints; {storage} and {run} are filled.")
    ] = "",
    max_failures: Annotated[int | None, typer.Option(min=0, help="Failures it survives; preemptions are free.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until it is over; exit with the program's status.")] = False,
    state_dir: StateDir = None,
) -> None:
    from tpuctl.base.errors import TpuctlError
    from tpuctl.cli.submission import Options

    options = Options(
        name, tuple(pool or ()), slices, tuple(env or ()), workdir, checkpoint_dir, max_failures, priority
    )
    try:
        status = _submit(run_file, ctx.meta.get(_COMMAND), file, options, state_dir, wait=wait)
    except TpuctlError as error:
        if not wait:
            raise
        say(f"tpuctl: {error}")
        raise typer.Exit(FAILED_OURSELVES) from error
    raise typer.Exit(status)


def _submit(
    run_file: Path | None,
    command: tuple[str, ...] | None,
    file: Path,
    options: Options,
    state_dir: Path | None,
    *,
    wait: bool,
) -> int:
    from tpuctl import app
    from tpuctl.cli.submission import parcel, send, wait_for_end

    here = app.basis(state_dir)
    wish = parcel(run_file, command, options, here.clock.now())
    client = app.connect(here, file)
    run = send(client, wish, user(), here.chance.request_id(), here.clock, say)
    typer.echo(run["name"])
    say(f"queued as {run['id']}; 'tpuctl why {run['name']}' tells what it waits for")
    return wait_for_end(client, run["id"], here.clock, say) if wait else 0


def user() -> str:
    """Who asks, for people. In a container the user may have no name."""
    import os
    from getpass import getuser

    try:
        return getuser()
    except (KeyError, OSError):  # the latter from Python 3.13 on
        return f"uid {os.getuid()}"
