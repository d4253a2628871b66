"""Nodes whose state goes wrong while their queued resource still says ACTIVE: repairs, unknown states, bad health."""

from __future__ import annotations

from tpuctl.base.units import Instant
from tpuctl.emulator.node_plans import NodePlans
from tpuctl.emulator.scenario_troubles import NodeStatePlan
from tpuctl.emulator.tpu_life import TpuLife
from tpuctl.emulator.tpu_records import NodeRecord


class NodeStates:
    def __init__(self, life: TpuLife) -> None:
        self._life = life
        self._plans = NodePlans(life, life.world.settings.node_states, "node states", self.change)

    def begin(self, now: Instant) -> None:
        self._plans.begin(now)

    def change(self, now: Instant, node: NodeRecord, plan: NodeStatePlan) -> None:
        """Its own state and health from now on; after `lasts` the state `then`, with that state's usual health."""
        state = str(plan.state)
        node.health = plan.health or ""
        self._life.turn(now, node, state, "by plan")
        if plan.lasts is not None:
            self._life.world.later(now, plan.lasts, lambda at: self._end(at, node, state, str(plan.then)))

    def _end(self, now: Instant, node: NodeRecord, from_state: str, then: str) -> None:
        if self._life.nodes.get(node.name) is not node or node.state != from_state:
            return  # meanwhile something else became of it
        node.health = ""
        up = node.booted == set(node.vms)
        self._life.turn(now, node, then if then != "READY" or up else "CREATING", "by plan")
