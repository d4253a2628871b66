"""`tpuctl emulator …`: a cloud on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tpuctl.base.errors import UserError
from tpuctl.cli import emulator_faults, emulator_machines
from tpuctl.cli.emulator_control import Name, ask, home_of, is_number, show
from tpuctl.cli.options import AsJson, StateDir, say

emulator = typer.Typer(
    no_args_is_help=True,
    help="""A cloud on this machine: TPU, Compute and Secret Manager services.

    Examples:

      eval "$(tpuctl emulator start)"

      tpuctl emulator stop
    """,
)


def register(app: typer.Typer) -> None:
    emulator_machines.register(emulator)
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


@emulator.command()
def status(as_json: AsJson = False, name: Name = "default", state_dir: StateDir = None) -> None:
    """What the emulated cloud has now.

    Examples:

      tpuctl emulator status

      tpuctl emulator status --json
    """
    document = ask(state_dir, name, "status")
    if as_json:
        show(document)
        return
    print(f"emulator {document['name']} at {document['url']}, pid {document['pid']}, machines in {document['root']}")
    for qr in document["queued_resources"]:
        _row("queued resource", qr["name"].rsplit("/", 1)[1], qr["zone"], qr["accelerator"], qr["state"])
    for node in document["nodes"]:
        hosts = f"{node['booted']}/{node['hosts']} hosts"
        _row("node", node["node"], node["zone"], node["accelerator"], f"{node['state']} {hosts}")
    for instance in document["instances"]:
        _row("instance", instance["name"], instance["zone"], instance["address"], instance["status"])


def _row(kind: str, name: str, zone: str, detail: str, state: str) -> None:
    print(f"  {kind:16} {name:32} {zone:18} {detail:15} {state}")


@emulator.command()
def capacity(
    zone: Annotated[str, typer.Argument(help="Zone; without it the table is shown.")] = "",
    kind: Annotated[str, typer.Argument(help="Accelerator type, generation or '*'.")] = "",
    chips: Annotated[str, typer.Argument(help="Chips from now on, or `unlimited`.")] = "",
    as_json: AsJson = False,
    name: Name = "default",
    state_dir: StateDir = None,
) -> None:
    """Show or set how many chips a zone has.

    Examples:

      tpuctl emulator capacity

      tpuctl emulator capacity us-central2-b v4 8
    """
    if not zone:
        document = ask(state_dir, name, "capacity")
    elif kind and (is_number(chips) or chips == "unlimited"):
        number = None if chips == "unlimited" else int(chips)
        document = ask(state_dir, name, "set-capacity", {"zone": zone, "type": kind, "chips": number})
    else:
        raise UserError("give ZONE, TYPE and CHIPS (a number or `unlimited`), or none of them")
    if as_json:
        show(document)
        return
    for row in document["capacity"]:
        limit = "unlimited" if row["chips"] is None else f"{row['chips']} chips"
        print(f"{row['zone']:18} {row['type']:14} {limit:>12}, {row['used']} in use")


@emulator.command()
def calls(as_json: AsJson = False, name: Name = "default", state_dir: StateDir = None) -> None:
    """The calls that the cloud got, oldest first.

    Examples:

      tpuctl emulator calls

      tpuctl emulator calls --json
    """
    document = ask(state_dir, name, "calls")
    if as_json:
        show(document)
        return
    for call in document["calls"]:
        mark = "*" if call["effect"] else " "
        outcome = call["status"] or "lost"
        print(f"{call['at']} {mark} {outcome:>4} {call['method']:6} {call['path']} {call['fault']}".rstrip())


@emulator.command()
def history(as_json: AsJson = False, name: Name = "default", state_dir: StateDir = None) -> None:
    """Every change of state of every resource, oldest first.

    Examples:

      tpuctl emulator history
    """
    document = ask(state_dir, name, "history")
    if as_json:
        show(document)
        return
    for change in document["history"]:
        print(f"{change['at']} {change['state']:22} {change['resource']}  ({change['why']})")
