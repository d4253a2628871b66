"""Control verbs about slices, hosts and the head: what befalls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tpuctl.base.errors import TpuctlError
from tpuctl.emulator.events import VmEvent, VmFreeze, VmKill, VmReset, VmThaw
from tpuctl.emulator.scenario import MaintenancePlan, NodeStatePlan, parse_part
from tpuctl.emulator.scenario_parts import Part
from tpuctl.emulator.scenario_troubles import Choice, Shows
from tpuctl.emulator.service import Service
from tpuctl.emulator.tpu_records import NodeRecord

Document = dict[str, Any]
Verb = Callable[[Document], Document]


class _End(Part):
    """How a preemption ends its slices."""

    notice_s: float | None = None
    shows: Shows | None = None
    lag_s: float = 0.0


class _Many(_End):
    """Which slices, when no node is named: those of a zone (`*`: anywhere), so many, or a share of them."""

    zone: str = "*"
    count: int | None = None
    share: float | None = None
    choose: Choice = "newest"


class Slices:
    """One method a verb: a JSON document in, one out. Raises TpuctlError with what is wrong."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._cloud = service.cloud

    def verbs(self) -> dict[str, Verb]:
        return {
            "preempt": self.preempt, "kill-host": self.kill_host, "freeze-host": self.freeze_host,
            "thaw-host": self.thaw_host, "reset-head": self.reset_head, "maintenance": self.maintenance,
            "state": self.state,
        }  # fmt: skip

    def preempt(self, asked: Document) -> Document:
        """{node} or {zone, count or share, choose?}; notice_s?, shows?, lag_s?"""
        if "node" in asked:
            end = parse_part(_End, {key: value for key, value in asked.items() if key != "node"}, "preempt")
            nodes = [self._node(asked)]
        else:
            many = parse_part(_Many, asked, "preempt")
            if not asked.keys() & {"zone", "count", "share"}:
                raise TpuctlError("preempt: name a node, or say which slices by zone, count or share")
            if many.count is not None and (many.count < 1 or many.share is not None):
                raise TpuctlError("preempt: count is a number from 1 on, and goes without share")
            if many.share is not None and not 0 < many.share <= 1:
                raise TpuctlError(f"preempt: share is {many.share:g}; it is more than 0 and at most 1")
            end = many
            nodes = self._cloud.preemptions.among(many.zone, many.count, many.share, many.choose)
        now = self._service.clock.now()
        for node in nodes:
            self._cloud.preemptions.preempt(now, node, notice_s=end.notice_s, shows=end.shows, lag_s=end.lag_s)
        return {"nodes": [node.name for node in nodes]}

    def maintenance(self, asked: Document) -> Document:
        """{node, worker?, lead?, lasts?, warning?, kind?, hosts?, ends?}: docs/emulator.md, Maintenance."""
        node = self._running(asked)
        plan = parse_part(MaintenancePlan, {key: value for key, value in asked.items() if key != "node"}, "maintenance")
        if plan.worker is not None:
            self._machine(node, plan.worker)
        if node.upcoming is not None:
            raise TpuctlError(
                f"node {node.node_id!r} has maintenance announced for {node.upcoming['windowStartTime']} already"
            )
        self._cloud.maintenances.announce(self._service.clock.now(), node, plan)
        return {"node": node.name, "upcomingMaintenance": dict(node.upcoming or {})}

    def state(self, asked: Document) -> Document:
        """{node, state, health?, lasts?, then?}: docs/emulator.md, Node states."""
        node = self._node(asked)
        plan = parse_part(NodeStatePlan, {key: value for key, value in asked.items() if key != "node"}, "state")
        if plan.state == "READY" and not node.running:
            raise TpuctlError(f"node {node.node_id!r} is {node.state}: its machines do not run, so it cannot be READY")
        before = node.state
        self._cloud.node_states.change(self._service.clock.now(), node, plan)
        return {"node": node.name, "before": before, "state": str(plan.state)}

    def kill_host(self, asked: Document) -> Document:
        """{node, worker}: all processes of one machine die; the cloud does not notice."""
        return self._to_host(asked, VmKill)

    def freeze_host(self, asked: Document) -> Document:
        return self._to_host(asked, VmFreeze)

    def thaw_host(self, asked: Document) -> Document:
        return self._to_host(asked, VmThaw)

    def reset_head(self, asked: Document) -> Document:
        """{instance}: a reboot of a Compute instance."""
        for instance in self._cloud.compute.life.instances.values():
            if instance.name == asked.get("instance") and instance.vm:
                self._cloud.world.events.append(VmReset(instance.vm))
                return {"vm": instance.vm}
        known = ", ".join(i.name for i in self._cloud.compute.life.instances.values()) or "none"
        raise TpuctlError(f"no running instance {asked.get('instance')!r}; instances: {known}")

    def _node(self, asked: Document) -> NodeRecord:
        nodes = self._cloud.tpu.life.nodes
        found = [node for name, node in nodes.items() if asked.get("node") in (name, node.node_id)]
        if len(found) == 1:
            return found[0]
        if found:
            raise TpuctlError(
                f"node {asked.get('node')!r} is in several zones; name one of: {', '.join(n.name for n in found)}"
            )
        known = ", ".join(node.node_id for node in nodes.values()) or "none"
        raise TpuctlError(f"there is no node {asked.get('node')!r}; nodes: {known}")

    def _running(self, asked: Document) -> NodeRecord:
        node = self._node(asked)
        if not node.running:
            raise TpuctlError(f"node {node.node_id!r} is {node.state}: its machines do not run")
        return node

    def _machine(self, node: NodeRecord, worker: int) -> str:
        if not 0 <= worker < len(node.vms):
            raise TpuctlError(f"node {node.node_id!r} has {len(node.vms)} machine(s); there is no worker {worker}")
        return node.vms[worker]

    def _to_host(self, asked: Document, make: Callable[[str], VmEvent]) -> Document:
        vm = self._machine(self._running(asked), int(asked.get("worker", 0)))
        self._cloud.world.events.append(make(vm))
        return {"vm": vm}
