"""`tpuctl emulator status`, `calls` and `history`: what the emulated cloud has, was asked and did."""

from __future__ import annotations

from typing import Any

import typer

from tpuctl.cli.emulator_control import Name, ask, show, show_table
from tpuctl.cli.options import AsJson, StateDir


def register(emulator: typer.Typer) -> None:
    emulator.command("status")(status)
    emulator.command("calls")(calls)
    emulator.command("history")(history)


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
    print(f"emulator {document['name']} at {document['url']}, pid {document['pid']}")
    print(f"machines in {document['root']}")
    queued = [(_last(qr["name"]), qr["zone"], qr["accelerator"], qr["state"]) for qr in document["queued_resources"]]
    nodes = [(node["node"], node["zone"], node["accelerator"], _node_state(node)) for node in document["nodes"]]
    instances = [(each["name"], each["zone"], each["address"], each["status"]) for each in document["instances"]]
    for kind, detail, rows in (
        ("QUEUED RESOURCE", "TYPE", queued), ("NODE", "TYPE", nodes), ("INSTANCE", "ADDRESS", instances),
    ):  # fmt: skip
        if rows:
            show_table((kind, "ZONE", detail, "STATE"), rows, shrink=(1, 2, 0))
    for zone in document["unreachable"]:
        print(f"lists cannot read {zone}")


def _last(name: str) -> str:
    return name.rsplit("/", 1)[1]


def _node_state(node: dict[str, Any]) -> str:
    """With how many hosts have booted, and what is wrong with it."""
    trouble = node["health"] if node["health"] not in (None, "HEALTHY") else ""
    coming = "maintenance" if node["upcoming_maintenance"] and not trouble else ""
    words = (node["state"].removeprefix("raw:"), f"{node['booted']}/{node['hosts']}", trouble, coming)
    return " ".join(word for word in words if word)


def calls(as_json: AsJson = False, name: Name = "default", state_dir: StateDir = None) -> None:
    """The calls that the cloud got, oldest first. `*`: something changed.

    Examples:

      tpuctl emulator calls

      tpuctl emulator calls --json
    """
    document = ask(state_dir, name, "calls")
    if as_json:
        show(document)
        return
    rows = [
        (
            _time(call["at"]),
            "*" if call["effect"] else "",
            str(call["status"] or "lost"),
            call["method"],
            _short(call["path"]),
            call["fault"],
        )
        for call in document["calls"]
    ]
    show_table(("TIME", "", "STATUS", "METHOD", "PATH", "FAULT"), rows, shrink=(4,), empty="no calls yet")


def history(as_json: AsJson = False, name: Name = "default", state_dir: StateDir = None) -> None:
    """Every change of state of every resource, oldest first.

    Examples:

      tpuctl emulator history

      tpuctl emulator history --json
    """
    document = ask(state_dir, name, "history")
    if as_json:
        show(document)
        return
    rows = [
        (_time(change["at"]), change["state"], _short(change["resource"]), change["why"])
        for change in document["history"]
    ]
    show_table(("TIME", "STATE", "RESOURCE", "WHY"), rows, shrink=(3, 2), empty="nothing happened yet")


def _time(iso: str) -> str:
    """The time of day in UTC: an emulator lives for hours. `--json` has the date."""
    return iso[11:23]


def _short(path: str) -> str:
    """Without what is the same in all of them."""
    return path.split("/locations/", 1)[-1].split("/zones/", 1)[-1]
