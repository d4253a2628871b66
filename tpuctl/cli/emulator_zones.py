"""`tpuctl emulator capacity`, `stockout` and `unreachable`: what zones have, grant and show."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tpuctl.base.errors import UserError
from tpuctl.cli.emulator_control import Name, ask, is_number, seconds_of, show, show_table
from tpuctl.cli.options import AsJson, StateDir

For = Annotated[str, typer.Option("--for", help="How long, e.g. 10m; without it until `--clear`.")]


def register(emulator: typer.Typer) -> None:
    emulator.command("capacity")(capacity)
    emulator.command("stockout")(stockout)
    emulator.command("unreachable")(unreachable)


def capacity(
    zone: Annotated[str, typer.Argument(help="Zone; without it the table is shown.")] = "",
    kind: Annotated[str, typer.Argument(help="Accelerator type, generation or '*'.")] = "",
    chips: Annotated[str, typer.Argument(help="Chips from now on, or `unlimited`.")] = "",
    as_json: AsJson = False,
    name: Name = "default",
    state_dir: StateDir = None,
) -> None:
    """Show or set how many chips a zone has. Below what is in use, slices are preempted.

    Examples:

      tpuctl emulator capacity

      tpuctl emulator capacity us-central2-b v4 8

      tpuctl emulator capacity us-central2-b v4 unlimited
    """
    if not zone:
        document = ask(state_dir, name, "capacity")
    elif kind and (is_number(chips) or chips == "unlimited"):
        number = None if chips == "unlimited" else int(chips)
        document = ask(state_dir, name, "set-capacity", {"zone": zone, "type": kind, "chips": number})
    else:
        raise UserError("give ZONE, TYPE and CHIPS (a number or `unlimited`), or none of them")
    _show_capacity(document, as_json)


def stockout(
    zone: Annotated[str, typer.Argument(help="Zone, or '*' for all.")] = "",
    kind: Annotated[str, typer.Argument(help="Accelerator type, generation or '*'.")] = "*",
    seconds: For = "",
    clear: Annotated[bool, typer.Option("--clear", help="End all stockouts first.")] = False,
    as_json: AsJson = False,
    name: Name = "default",
    state_dir: StateDir = None,
) -> None:
    """A zone grants nothing new; what runs stays.

    Examples:

      tpuctl emulator stockout us-central2-b --for 10m

      tpuctl emulator stockout us-east5-a v5e

      tpuctl emulator stockout --clear
    """
    document = ask(state_dir, name, "clear-stockouts" if clear else "capacity")
    if zone:
        document = ask(state_dir, name, "stockout", {"zone": zone, "type": kind, **_lasting(seconds)})
    _show_capacity(document, as_json)


def unreachable(
    zone: Annotated[str, typer.Argument(help="Zone; without it those are shown that cannot be read now.")] = "",
    seconds: For = "",
    clear: Annotated[bool, typer.Option("--clear", help="It can be read again; without ZONE: all can.")] = False,
    as_json: AsJson = False,
    name: Name = "default",
    state_dir: StateDir = None,
) -> None:
    """Lists leave a zone out and name it as unreachable.

    Examples:

      tpuctl emulator unreachable us-central2-b --for 2m

      tpuctl emulator unreachable us-central2-b --clear

      tpuctl emulator unreachable
    """
    if clear:
        document = ask(state_dir, name, "clear-unreachable", {"zone": zone} if zone else {})
    else:
        document = ask(state_dir, name, "unreachable", {"zone": zone, **_lasting(seconds)} if zone else {})
    if as_json:
        show(document)
        return
    for each in document["unreachable"]:
        print(each)


def _lasting(seconds: str) -> dict[str, Any]:
    return {"seconds": seconds_of("--for", seconds)} if seconds else {}


def _show_capacity(document: Any, as_json: bool) -> None:
    if as_json:
        show(document)
        return
    rows = [
        (row["zone"], row["type"], "unlimited" if row["chips"] is None else f"{row['chips']} chips", str(row["used"]))
        for row in document["capacity"]
    ]
    rows += [(each["zone"], each["type"], "stockout", "") for each in document["stockouts"]]
    show_table(("ZONE", "TYPE", "HAS", "IN USE"), rows, empty="no limit anywhere")
