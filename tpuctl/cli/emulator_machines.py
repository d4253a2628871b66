"""`tpuctl emulator preempt`, `kill-host` and the like: what befalls slices, hosts and the head."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tpuctl.base.errors import UserError
from tpuctl.cli.emulator_control import Name, ask, is_number, seconds_of
from tpuctl.cli.options import StateDir, say


def register(emulator: typer.Typer) -> None:
    emulator.command("preempt")(preempt)
    emulator.command("maintenance")(maintenance)
    emulator.command("state")(state)
    emulator.command("kill-host")(kill_host)
    emulator.command("freeze-host")(freeze_host)
    emulator.command("thaw-host")(thaw_host)
    emulator.command("reset-head")(reset_head)


def preempt(
    node: Annotated[str, typer.Argument(help="Node id, or full name; without it `--zone`, `--count`, `--share`.")] = "",
    zone: Annotated[str, typer.Option(help="Slices of this zone; '*' is anywhere.")] = "",
    count: Annotated[int | None, typer.Option(min=1, help="So many of them; without it all.")] = None,
    share: Annotated[float | None, typer.Option(help="This share of them, rounded up, e.g. 0.5.")] = None,
    choose: Annotated[str, typer.Option(help="Which of them: newest, oldest or seeded.")] = "newest",
    notice: Annotated[str, typer.Option(help="Time between notice and end, e.g. 30s; default: the scenario's.")] = "",
    shows: Annotated[str, typer.Option(help="How the node looks then: PREEMPTED, TERMINATED or gone.")] = "",
    lag: Annotated[str, typer.Option(help="The queued resource stays ACTIVE so long after it.")] = "",
    name: Name = "default",
    state_dir: StateDir = None,
) -> None:
    """The service takes slices back: notice to their hosts, then their end.

    Examples:

      tpuctl emulator preempt lab-v4-0-t6m8gb-1

      tpuctl emulator preempt lab-v4-0-t6m8gb-1 --notice 0s --shows gone --lag 20s

      tpuctl emulator preempt --zone us-central2-b

      tpuctl emulator preempt --zone '*' --share 0.3 --choose seeded --notice 30s
    """
    many: dict[str, Any] = {key: value for key, value in (("count", count), ("share", share)) if value is not None}
    many |= {"zone": zone} if zone else {}
    if bool(node) == bool(many):
        raise UserError("name one NODE, or say which slices by --zone, --count or --share")
    asked: dict[str, Any] = {"node": node} if node else {**many, "choose": choose}
    if notice:
        asked["notice_s"] = seconds_of("--notice", notice)
    if lag:
        asked["lag_s"] = seconds_of("--lag", lag)
    if shows:
        asked["shows"] = shows
    taken = [each.rsplit("/", 1)[1] for each in ask(state_dir, name, "preempt", asked)["nodes"]]
    say(f"preempting {', '.join(taken)}" if taken else "no slice to preempt there")


def maintenance(
    host: Annotated[str, typer.Argument(help="NODE for all its hosts, or NODE:WORKER.", metavar="NODE[:W]")],
    lead: Annotated[str, typer.Option(help="Announced so long before it begins.")] = "60s",
    lasts: Annotated[str, typer.Option(help="How long the hosts are down.")] = "60s",
    warning: Annotated[str, typer.Option(help="instance/maintenance-event turns so long before.")] = "60s",
    unscheduled: Annotated[bool, typer.Option("--unscheduled", help="Of type UNSCHEDULED.")] = False,
    stay: Annotated[bool, typer.Option("--hosts-stay", help="Hosts run through it; by default they reboot.")] = False,
    terminated: Annotated[bool, typer.Option("--terminated", help="The slice does not come back.")] = False,
    name: Name = "default",
    state_dir: StateDir = None,
) -> None:
    """Announce maintenance of a slice's hosts. It shows on the node and in the hosts' metadata.

    Examples:

      tpuctl emulator maintenance lab-v4-0-t6m8gb-1

      tpuctl emulator maintenance lab-v4-0-t6m8gb-1:0 --lead 10s --lasts 30s

      tpuctl emulator maintenance lab-v4-0-t6m8gb-1 --lead 0s --unscheduled --terminated
    """
    of_whom = _host(host) if ":" in host else {"node": host}
    asked: dict[str, Any] = {
        **of_whom,
        "lead": seconds_of("--lead", lead),
        "lasts": seconds_of("--lasts", lasts),
        "warning": seconds_of("--warning", warning),
        "kind": "UNSCHEDULED" if unscheduled else "SCHEDULED",
        "hosts": "stay" if stay else "restart",
        "ends": "terminated" if terminated else "done",
    }
    window = ask(state_dir, name, "maintenance", asked)["upcomingMaintenance"]
    say(f"maintenance of {host} from {window['windowStartTime']} to {window['windowEndTime']}")


def state(
    node: Annotated[str, typer.Argument(help="Node id, or full name.")],
    new: Annotated[str, typer.Argument(metavar="STATE", help="e.g. REPAIRING, gone, 99, raw:WORD.")],
    health: Annotated[str, typer.Option(help="e.g. TIMEOUT, UNHEALTHY_TENSORFLOW; `none` shows none.")] = "",
    lasts: Annotated[str, typer.Option("--for", help="So long; without it for good.")] = "",
    then: Annotated[str, typer.Option(help="The state after that.")] = "READY",
    name: Name = "default",
    state_dir: StateDir = None,
) -> None:
    """Change a node's state. Its queued resource does not notice, and stays ACTIVE.

    PREEMPTED, TERMINATED, STOPPED and gone end its hosts too.

    Examples:

      tpuctl emulator state lab-v4-0-t6m8gb-1 REPAIRING --for 30s

      tpuctl emulator state lab-v4-0-t6m8gb-1 REPAIRING --for 30s --then UNKNOWN

      tpuctl emulator state lab-v4-0-t6m8gb-1 READY --health TIMEOUT

      tpuctl emulator state lab-v4-0-t6m8gb-1 gone
    """
    asked: dict[str, Any] = {"node": node, "state": new, "then": then}
    if health:
        asked["health"] = health
    if lasts:
        asked["lasts"] = seconds_of("--for", lasts)
    answer = ask(state_dir, name, "state", asked)
    say(f"{answer['node'].rsplit('/', 1)[1]}: {answer['before']} -> {answer['state']}")


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
