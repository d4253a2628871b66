"""`tpuctl emulator …`: a cloud on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tpuctl.base.errors import UserError
from tpuctl.cli import emulator_faults, emulator_limits, emulator_machines, emulator_show, emulator_zones
from tpuctl.cli.emulator_control import Name, home_of
from tpuctl.cli.options import StateDir, say

emulator = typer.Typer(
    no_args_is_help=True,
    help="""A cloud on this machine: TPU, Compute and Secret Manager services.

    Examples:

      eval "$(tpuctl emulator start)"

      tpuctl emulator stop
    """,
)


def register(app: typer.Typer) -> None:
    emulator_show.register(emulator)
    emulator_machines.register(emulator)
    emulator_zones.register(emulator)
    emulator_limits.register(emulator)
    emulator_faults.register(emulator)
    app.add_typer(emulator, name="emulator")


@emulator.command()
def start(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of 127.0.0.1; 0 is any free one.")] = 0,
    scenario: Annotated[Path | None, typer.Option(help="YAML: capacity, quotas, latencies, faults.")] = None,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay, and log to stderr.")] = False,
    root: Annotated[Path | None, typer.Option(help="New directory for the machines; keep it short.")] = None,
    seed: Annotated[int | None, typer.Option(help="Chance of faults and preemptions.")] = None,
    machines: Annotated[
        str, typer.Option(help="`process`: real process trees; `none`: boot by themselves.")
    ] = "process",
    name: Name = "default",
    state_dir: StateDir = None,
) -> None:
    """Start the emulator and print how to point tpuctl at it.

    Examples:

      eval "$(tpuctl emulator start)"

      tpuctl emulator start --scenario scarce.yaml --machines none
    """
    from tpuctl.base.clock import SystemClock
    from tpuctl.emulator import remote
    from tpuctl.emulator.options import ServerOptions
    from tpuctl.emulator.scenario_yaml import read_scenario

    if machines not in ("process", "none"):
        raise UserError(f"--machines is {machines!r}; it is `process` or `none`")
    if scenario is not None:
        read_scenario(scenario)  # its mistakes belong in front of the user, not into a log
    options = ServerOptions(home_of(state_dir), name, port, scenario, root, seed, machines)
    if foreground:
        from tpuctl.emulator.server import serve

        serve(options, SystemClock())
        return
    state, fresh = remote.start(options, SystemClock())
    if not fresh:
        say(f"emulator {name!r} is running already (pid {state.pid})")
    print(f"export TPUCTL_EMULATOR={state.url}")


@emulator.command()
def stop(name: Name = "default", state_dir: StateDir = None) -> None:
    """Stop the emulator with all its machines, and remove their directory.

    Examples:

      tpuctl emulator stop
    """
    from tpuctl.base.clock import SystemClock
    from tpuctl.emulator import remote

    stopped = remote.stop(home_of(state_dir), name, SystemClock())
    say(f"emulator {name!r} stopped" if stopped else f"emulator {name!r} was not running")
