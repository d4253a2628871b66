"""`tpuctl emulator …`: a cloud on this machine. Everything here talks to another process by the control API."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpuctl.base.errors import UserError

if TYPE_CHECKING:
    from tpuctl.emulator.state_file import EmulatorState

emulator = typer.Typer(
    no_args_is_help=True,
    help="""A cloud on this machine: TPU, Compute and Secret Manager services.

    Examples:

      eval "$(tpuctl emulator start)"

      tpuctl emulator stop
    """,
)
fault = typer.Typer(
    no_args_is_help=True,
    help="""Plant faults on calls.

    Examples:

      tpuctl emulator fault add error-before --path nodes --error internal
    """,
)
emulator.add_typer(fault, name="fault")

StateDir = Annotated[
    Path | None, typer.Option("--state-dir", help="Where tpuctl keeps its files; TPUCTL_HOME, default ~/.tpuctl.")
]
Name = Annotated[str, typer.Option("--name", help="Several emulators of one user have different names.")]
AsJson = Annotated[bool, typer.Option("--json", help="The whole document, for programs.")]


def register(app: typer.Typer) -> None:
    app.add_typer(emulator, name="emulator")


def _home(state_dir: Path | None) -> Path:
    home = state_dir or Path(os.environ.get("TPUCTL_HOME") or Path.home() / ".tpuctl")
    return home.expanduser().absolute()


def _find(state_dir: Path | None, name: str) -> EmulatorState:
    from tpuctl.emulator import remote

    return remote.find(_home(state_dir), name)


def _ask(state_dir: Path | None, name: str, verb: str, document: dict[str, Any] | None = None) -> Any:
    from tpuctl.emulator import remote

    return remote.ask(_find(state_dir, name), verb, document)


def _show(document: Any) -> None:
    print(json.dumps(document, indent=1, sort_keys=True))


def _say(line: str) -> None:
    print(line, file=sys.stderr)


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
    from tpuctl.emulator.scenario import read_scenario

    if machines not in ("process", "none"):
        raise UserError(f"--machines is {machines!r}; it is `process` or `none`")
    if scenario is not None:
        read_scenario(scenario)  # its mistakes belong in front of the user, not into a log
    options = ServerOptions(_home(state_dir), name, port, scenario, root, seed, machines)
    if foreground:
        from tpuctl.emulator.server import serve

        serve(options, SystemClock())
        return
    state, fresh = remote.start(options, SystemClock())
    if not fresh:
        _say(f"emulator {name!r} is running already (pid {state.pid})")
    print(f"export TPUCTL_EMULATOR={state.url}")


@emulator.command()
def stop(name: Name = "default", state_dir: StateDir = None) -> None:
    """Stop the emulator with all its machines, and remove their directory.

    Examples:

      tpuctl emulator stop
    """
    from tpuctl.base.clock import SystemClock
    from tpuctl.emulator import remote

    stopped = remote.stop(_home(state_dir), name, SystemClock())
    _say(f"emulator {name!r} stopped" if stopped else f"emulator {name!r} was not running")


@emulator.command()
def status(as_json: AsJson = False, name: Name = "default", state_dir: StateDir = None) -> None:
    """What the emulated cloud has now.

    Examples:

      tpuctl emulator status

      tpuctl emulator status --json
    """
    document = _ask(state_dir, name, "status")
    if as_json:
        _show(document)
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
def preempt(
    node: Annotated[str, typer.Argument(help="Node id, or full name.")],
    notice: Annotated[str, typer.Option(help="Time between notice and end, e.g. 30s; default: the scenario's.")] = "",
    shows: Annotated[str, typer.Option(help="How the node looks then: PREEMPTED, TERMINATED or gone.")] = "",
    lag: Annotated[str, typer.Option(help="The queued resource stays ACTIVE so long after it.")] = "",
    name: Name = "default",
    state_dir: StateDir = None,
) -> None:
    """The service takes a slice back: notice to its hosts, then their end.

    Examples:

      tpuctl emulator preempt lab-v4-0-t6m8gb-1

      tpuctl emulator preempt lab-v4-0-t6m8gb-1 --notice 0s --shows gone --lag 20s
    """
    asked: dict[str, Any] = {"node": node}
    if notice:
        asked["notice_s"] = _seconds("--notice", notice)
    if lag:
        asked["lag_s"] = _seconds("--lag", lag)
    if shows:
        asked["shows"] = shows
    _say(f"preempting {_ask(state_dir, name, 'preempt', asked)['node']}")


def _seconds(option: str, text: str) -> float:
    from tpuctl.base.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UserError(f"{option}: {error}") from error


def _host(text: str) -> dict[str, Any]:
    node, _, worker = text.rpartition(":")
    if not node or not _is_number(worker):
        raise UserError(f"{text!r} is no host; write NODE:WORKER, e.g. lab-v4-0-t6m8gb-1:0")
    return {"node": node, "worker": int(worker)}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


Host = Annotated[str, typer.Argument(help="NODE:WORKER", metavar="NODE:W")]


@emulator.command("kill-host")
def kill_host(host: Host, name: Name = "default", state_dir: StateDir = None) -> None:
    """All processes of one host die without a word; the cloud does not notice.

    Examples:

      tpuctl emulator kill-host lab-v4-0-t6m8gb-1:0
    """
    _say(f"killed {_ask(state_dir, name, 'kill-host', _host(host))['vm']}")


@emulator.command("freeze-host")
def freeze_host(host: Host, name: Name = "default", state_dir: StateDir = None) -> None:
    """One host stops answering but keeps its connections.

    Examples:

      tpuctl emulator freeze-host lab-v4-0-t6m8gb-1:1
    """
    _say(f"froze {_ask(state_dir, name, 'freeze-host', _host(host))['vm']}")


@emulator.command("thaw-host")
def thaw_host(host: Host, name: Name = "default", state_dir: StateDir = None) -> None:
    """A frozen host goes on.

    Examples:

      tpuctl emulator thaw-host lab-v4-0-t6m8gb-1:1
    """
    _say(f"thawed {_ask(state_dir, name, 'thaw-host', _host(host))['vm']}")


@emulator.command("reset-head")
def reset_head(
    instance: Annotated[str, typer.Argument(help="Name of a Compute instance.")],
    name: Name = "default",
    state_dir: StateDir = None,
) -> None:
    """Reboot a Compute instance: its processes die, its disks stay, its startup script runs again.

    Examples:

      tpuctl emulator reset-head tpuctl-lab-head
    """
    _say(f"reset {_ask(state_dir, name, 'reset-head', {'instance': instance})['vm']}")


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
        document = _ask(state_dir, name, "capacity")
    elif kind and (_is_number(chips) or chips == "unlimited"):
        number = None if chips == "unlimited" else int(chips)
        document = _ask(state_dir, name, "set-capacity", {"zone": zone, "type": kind, "chips": number})
    else:
        raise UserError("give ZONE, TYPE and CHIPS (a number or `unlimited`), or none of them")
    if as_json:
        _show(document)
        return
    for row in document["capacity"]:
        limit = "unlimited" if row["chips"] is None else f"{row['chips']} chips"
        print(f"{row['zone']:18} {row['type']:14} {limit:>12}, {row['used']} in use")


@fault.command("add")
def fault_add(
    kind: Annotated[
        str, typer.Argument(help="error-, lost- or hang-, then before or after; slow; partial; fail-later.")
    ],
    method: Annotated[str, typer.Option(help="GET, POST, DELETE or `*`.")] = "*",
    path: Annotated[str, typer.Option(help="Pattern that the path must hold.")] = "",
    skip: Annotated[int, typer.Option(help="Let so many matching calls through first.")] = 0,
    times: Annotated[int, typer.Option(help="Fire so often; 0 is always.")] = 1,
    probability: Annotated[float, typer.Option(help="Chance of each matching call.")] = 1.0,
    seconds: Annotated[str, typer.Option(help="How long a hang or a slow answer takes.")] = "60s",
    error: Annotated[str, typer.Option(help="Which error, e.g. unavailable, quota, permission.")] = "unavailable",
    unreachable: Annotated[list[str] | None, typer.Option(help="Zones that a `partial` list leaves out.")] = None,
    name: Name = "default",
    state_dir: StateDir = None,
) -> None:
    """Plant a fault; its number is printed.

    Examples:

      tpuctl emulator fault add lost-after --method POST --path queuedResources

      tpuctl emulator fault add error-before --path us-east5-b --times 0 --error internal
    """
    asked = {
        "kind": kind, "method": method, "path": path, "skip": skip, "times": times or None, "probability": probability,
        "seconds": _seconds("--seconds", seconds), "error": error, "unreachable": unreachable or [],
    }  # fmt: skip
    print(_ask(state_dir, name, "add-fault", asked)["id"])


@fault.command("list")
def fault_list(as_json: AsJson = False, name: Name = "default", state_dir: StateDir = None) -> None:
    """The planted faults and how often each fired.

    Examples:

      tpuctl emulator fault list
    """
    document = _ask(state_dir, name, "faults")
    if as_json:
        _show(document)
        return
    for each in document["faults"]:
        print(
            f"{each['id']:3} {each['kind']:12} {each['method']:6} {each['path'] or 'any path':30} fired {each['fired']}"
        )


@fault.command("clear")
def fault_clear(
    number: Annotated[int | None, typer.Argument(help="Which one; all without it.")] = None,
    name: Name = "default",
    state_dir: StateDir = None,
) -> None:
    """Take planted faults away.

    Examples:

      tpuctl emulator fault clear
    """
    _say(f"removed {_ask(state_dir, name, 'clear-faults', {} if number is None else {'id': number})['removed']}")


@emulator.command()
def override(
    resource: Annotated[
        str, typer.Argument(help="<zone>/nodes/<id> or <zone>/queuedResources/<id>: end of a full name.")
    ],
    fields: Annotated[str, typer.Option(help="JSON object of raw values; null leaves a field out.")] = "{}",
    hidden: Annotated[bool, typer.Option("--hidden", help="Not listed, and 404.")] = False,
    seconds: Annotated[str, typer.Option("--for", help="How long; without it until `--clear`.")] = "",
    clear: Annotated[bool, typer.Option("--clear", help="Take all overrides away first.")] = False,
    name: Name = "default",
    state_dir: StateDir = None,
) -> None:
    """Let a resource show other values than its own.

    Examples:

      tpuctl emulator override us-central2-b/nodes/n1 --fields '{"state": 99, "health": null}' --for 10s

      tpuctl emulator override us-central2-b/queuedResources/q1 --fields '{"state.state": "STATE_UNSPECIFIED"}'
    """
    try:
        values = json.loads(fields)
    except ValueError as error:
        raise UserError(f"--fields is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise UserError(f"--fields {fields!r}: write a JSON object, e.g. '{{\"state\": 99}}'")
    if clear:
        _ask(state_dir, name, "clear-overrides")
    asked = {"resource": resource, "fields": values, "hidden": hidden}
    if seconds:
        asked["seconds"] = _seconds("--for", seconds)
    if values or hidden:
        _ask(state_dir, name, "override", asked)


@emulator.command()
def calls(as_json: AsJson = False, name: Name = "default", state_dir: StateDir = None) -> None:
    """The calls that the cloud got, oldest first.

    Examples:

      tpuctl emulator calls

      tpuctl emulator calls --json
    """
    document = _ask(state_dir, name, "calls")
    if as_json:
        _show(document)
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
    document = _ask(state_dir, name, "history")
    if as_json:
        _show(document)
        return
    for change in document["history"]:
        print(f"{change['at']} {change['state']:22} {change['resource']}  ({change['why']})")
