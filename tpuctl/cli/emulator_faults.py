"""`tpuctl emulator fault` and `override`: calls that go wrong, and resources that show what they are not."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tpuctl.base.errors import UserError
from tpuctl.cli.emulator_control import Name, ask, seconds_of, show, show_table
from tpuctl.cli.options import AsJson, StateDir, say

fault = typer.Typer(
    no_args_is_help=True,
    help="""Plant faults on calls.

    Examples:

      tpuctl emulator fault add error-before --path nodes --error internal
    """,
)


def register(emulator: typer.Typer) -> None:
    emulator.command("override")(override)
    fault.command("add")(fault_add)
    fault.command("list")(fault_list)
    fault.command("clear")(fault_clear)
    emulator.add_typer(fault, name="fault")


def fault_add(
    kind: Annotated[
        str,
        typer.Argument(
            help="error-, lost- or hang-, then before or after; lost-late; slow; partial; fail-later; grant-first; "
            "operation-, then slow, never or lost."
        ),
    ],
    method: Annotated[str, typer.Option(help="GET, POST, DELETE or `*`.")] = "*",
    path: Annotated[str, typer.Option(help="Pattern that the path must hold.")] = "",
    call: Annotated[str, typer.Option(help="e.g. nodes.list, queuedResources.create; `*` is any.")] = "*",
    zone: Annotated[str, typer.Option(help="Calls about this zone; `*` is any.")] = "*",
    every: Annotated[int, typer.Option(min=1, help="Each n-th matching call.")] = 1,
    lasts: Annotated[str, typer.Option("--for", help="From now on so long; without it until cleared.")] = "",
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

      tpuctl emulator fault add error-before --call nodes.list --every 3 --times 0 --for 10m

      tpuctl emulator fault add operation-never --call queuedResources.create

      tpuctl emulator fault add lost-after --method POST --path queuedResources

      tpuctl emulator fault add error-before --path us-east5-b --times 0 --error internal
    """
    asked = {
        "kind": kind, "method": method, "path": path, "skip": skip, "times": times or None, "probability": probability,
        "call": call, "zone": zone, "every": every, "lasts": seconds_of("--for", lasts) if lasts else None,
        "seconds": seconds_of("--seconds", seconds), "error": error, "unreachable": unreachable or [],
    }  # fmt: skip
    print(ask(state_dir, name, "add-fault", asked)["id"])


def fault_list(as_json: AsJson = False, name: Name = "default", state_dir: StateDir = None) -> None:
    """The planted faults, and on how many of the calls that they are about each fired.

    Examples:

      tpuctl emulator fault list

      tpuctl emulator fault list --json
    """
    document = ask(state_dir, name, "faults")
    if as_json:
        show(document)
        return
    rows = [
        (
            str(each["id"]),
            each["kind"],
            "" if each["method"] == "*" else each["method"],
            " ".join(part for part in (each["call"], each["zone"], each["path"]) if part not in ("", "*"))
            or "any call",
            f"{each['fired']} of {each['matched']}",
        )
        for each in document["faults"]
    ]
    show_table(("NO", "KIND", "METHOD", "CALLS", "FIRED"), rows, shrink=(3,), empty="no faults planted")


def fault_clear(
    number: Annotated[int | None, typer.Argument(help="Which one; all without it.")] = None,
    name: Name = "default",
    state_dir: StateDir = None,
) -> None:
    """Take planted faults away.

    Examples:

      tpuctl emulator fault clear
    """
    say(f"removed {ask(state_dir, name, 'clear-faults', {} if number is None else {'id': number})['removed']}")


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
        ask(state_dir, name, "clear-overrides")
    asked = {"resource": resource, "fields": values, "hidden": hidden}
    if seconds:
        asked["seconds"] = seconds_of("--for", seconds)
    if values or hidden:
        ask(state_dir, name, "override", asked)
