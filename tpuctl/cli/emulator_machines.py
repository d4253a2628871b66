"""`tpuctl emulator preempt`, `kill-host` and the like: what befalls slices, hosts and the head."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tpuctl.base.errors import UserError
from tpuctl.cli.emulator_control import Name, ask, is_number, seconds_of
from tpuctl.cli.options import StateDir, say


def register(emulator: typer.Typer) -> None:
    emulator.command("preempt")(preempt)
    emulator.command("kill-host")(kill_host)
    emulator.command("freeze-host")(freeze_host)
    emulator.command("thaw-host")(thaw_host)
    emulator.command("reset-head")(reset_head)


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
        asked["notice_s"] = seconds_of("--notice", notice)
    if lag:
        asked["lag_s"] = seconds_of("--lag", lag)
    if shows:
        asked["shows"] = shows
    say(f"preempting {ask(state_dir, name, 'preempt', asked)['node']}")


def _host(text: str) -> dict[str, Any]:
    node, _, worker = text.rpartition(":")
    if not node or not is_number(worker):
        raise UserError(f"{text!r} is no host; write NODE:WORKER, e.g. lab-v4-0-t6m8gb-1:0")
    return {"node": node, "worker": int(worker)}


Host = Annotated[str, typer.Argument(help="NODE:WORKER", metavar="NODE:W")]


def kill_host(host: Host, name: Name = "default", state_dir: StateDir = None) -> None:
    """All processes of one host die without a word; the cloud does not notice.

    Examples:

      tpuctl emulator kill-host lab-v4-0-t6m8gb-1:0
    """
    say(f"killed {ask(state_dir, name, 'kill-host', _host(host))['vm']}")


def freeze_host(host: Host, name: Name = "default", state_dir: StateDir = None) -> None:
    """One host stops answering but keeps its connections.

    Examples:

      tpuctl emulator freeze-host lab-v4-0-t6m8gb-1:1
    """
    say(f"froze {ask(state_dir, name, 'freeze-host', _host(host))['vm']}")


def thaw_host(host: Host, name: Name = "default", state_dir: StateDir = None) -> None:
    """A frozen host goes on.

    Examples:

      tpuctl emulator thaw-host lab-v4-0-t6m8gb-1:1
    """
    say(f"thawed {ask(state_dir, name, 'thaw-host', _host(host))['vm']}")


def reset_head(
    instance: Annotated[str, typer.Argument(help="Name of a Compute instance.")],
    name: Name = "default",
    state_dir: StateDir = None,
) -> None:
    """Reboot a Compute instance: its processes die, its disks stay, its startup script runs again.

    Examples:

      tpuctl emulator reset-head tpuctl-lab-head
    """
    say(f"reset {ask(state_dir, name, 'reset-head', {'instance': instance})['vm']}")
