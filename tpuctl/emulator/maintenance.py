"""Host maintenance: announced on the node and in its machines, then hosts that are down, then well again or over.

Fields and words: docs/facts.md, Maintenance. What the machines do meanwhile is a guess: docs/emulator.md, Guesses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tpuctl.base.units import Instant
from tpuctl.emulator.events import VmKill, VmMaintenance, VmReset
from tpuctl.emulator.node_plans import NodePlans
from tpuctl.emulator.scenario_troubles import MaintenancePlan
from tpuctl.emulator.tpu_life import TpuLife
from tpuctl.emulator.tpu_records import NodeRecord
from tpuctl.emulator.wire import Json

QUIET = "NONE"
COMING = "TERMINATE_ON_HOST_MAINTENANCE"
UNHEALTHY = "UNHEALTHY_MAINTENANCE"


class Maintenances:
    def __init__(self, life: TpuLife) -> None:
        self._life = life
        self._world = life.world
        self._plans = NodePlans(life, life.world.settings.maintenance, "maintenance", self.announce)

    def begin(self, now: Instant) -> None:
        self._plans.begin(now)

    def announce(self, now: Instant, node: NodeRecord, plan: MaintenancePlan) -> None:
        """Nothing for a node that has one coming, or whose machines do not run."""
        if node.upcoming is not None or not node.running:
            return
        begins, ends = now.plus(plan.lead), now.plus(plan.lead + plan.lasts)
        node.upcoming = {
            "type": plan.kind,
            "canReschedule": False,
            "windowStartTime": begins.iso(),
            "windowEndTime": ends.iso(),
            "latestWindowStartTime": begins.iso(),
            "maintenanceStatus": "PENDING",
        }
        self._tell(node, plan, QUIET)
        steps: tuple[tuple[float, Callable[[Instant, NodeRecord, MaintenancePlan], None]], ...] = (
            (max(0.0, plan.lead - plan.warning), self._warn),
            (plan.lead, self._start),
            (plan.lead + plan.lasts, self._end),
        )
        for seconds, step in steps:
            self._world.later(now, seconds, partial(self._if_there, node, plan, step))

    def _if_there(
        self,
        node: NodeRecord,
        plan: MaintenancePlan,
        step: Callable[[Instant, NodeRecord, MaintenancePlan], None],
        now: Instant,
    ) -> None:
        if self._life.nodes.get(node.name) is node and node.running and node.upcoming is not None:
            step(now, node, plan)

    def _warn(self, _: Instant, node: NodeRecord, plan: MaintenancePlan) -> None:
        self._tell(node, plan, COMING)

    def _start(self, now: Instant, node: NodeRecord, plan: MaintenancePlan) -> None:
        node.upcoming = {**(node.upcoming or {}), "maintenanceStatus": "ONGOING"}
        node.health = UNHEALTHY
        self._world.note(now, node.name, node.state, "maintenance begins", node.labels)
        self._tell(node, plan, COMING)
        if plan.hosts == "restart":
            self._world.events.extend(VmKill(vm) for vm in _machines(node, plan))

    def _end(self, now: Instant, node: NodeRecord, plan: MaintenancePlan) -> None:
        node.upcoming = None
        node.health = ""
        if plan.ends == "terminated":
            self._life.lose(now, node, shows="TERMINATED")
            return
        self._world.note(now, node.name, node.state, "maintenance is done", node.labels)
        self._tell(node, plan, QUIET)
        if plan.hosts == "restart":
            self._world.events.extend(VmReset(vm) for vm in _machines(node, plan))

    def _tell(self, node: NodeRecord, plan: MaintenancePlan, event: str) -> None:
        self._world.events.extend(VmMaintenance(vm, event, _for_machine(node.upcoming)) for vm in _machines(node, plan))


def _machines(node: NodeRecord, plan: MaintenancePlan) -> tuple[str, ...]:
    return node.vms if plan.worker is None else node.vms[plan.worker : plan.worker + 1]


def _for_machine(upcoming: Json | None) -> dict[str, str] | None:
    """As instance/upcoming-maintenance names its fields."""
    if upcoming is None:
        return None
    return {
        "can-reschedule": str(upcoming["canReschedule"]).upper(),
        "latest-window-start-time": upcoming["latestWindowStartTime"],
        "maintenance-status": upcoming["maintenanceStatus"],
        "maintenance-type": upcoming["type"],
        "window-end-time": upcoming["windowEndTime"],
        "window-start-time": upcoming["windowStartTime"],
    }
