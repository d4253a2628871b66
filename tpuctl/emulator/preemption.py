"""The service takes slices back: on command, by plan, by chance, or because the zone has less capacity than before."""

from __future__ import annotations

import random
from collections.abc import Callable

from tpuctl.base.units import Instant
from tpuctl.emulator.events import VmNotice
from tpuctl.emulator.node_plans import NodePlans, chosen
from tpuctl.emulator.scenario_troubles import Choice, PreemptionRate, PreemptionRule
from tpuctl.emulator.tpu_life import TpuLife
from tpuctl.emulator.tpu_records import NodeRecord, QrState

_HOUR_S = 3600.0


class Preemptions:
    def __init__(self, life: TpuLife) -> None:
        self._life = life
        self._world = life.world
        # Dice cups of their own: the lifetimes of slices do not depend on what callers ask in between.
        self._chance = random.Random(f"preemptions {life.world.seed}")
        self._choices = random.Random(f"choices {life.world.seed}")
        self._plans = NodePlans(life, life.world.settings.preemptions, "preemption", self._by_plan)
        life.watchers.append(self)

    def begin(self, now: Instant) -> None:
        """Plan what happens at fixed times since the start."""
        self._plans.begin(now)
        for at_s in self._life.capacity.change_times():
            self._world.later(now, at_s, self.capacity_changed)

    def preempt(
        self,
        now: Instant,
        node: NodeRecord,
        *,
        notice_s: float | None = None,
        shows: str | None = None,
        lag_s: float = 0.0,
    ) -> None:
        """Notice to all hosts of its queued resource, and its end `notice_s` later (None: as the scenario says)."""
        if node.leaving or (not node.queued and not node.vms):
            return  # a node that is not granted yet, or is stopped, holds nothing that could be taken
        notice = self._world.settings.notice if notice_s is None else notice_s
        record = self._life.queued.get(node.queued)
        for each in self._life.together(node):
            each.leaving = True
            if notice > 0 and each.running:
                self._world.events.extend(VmNotice(vm) for vm in each.vms)
        end = shows or self._world.settings.preempted_node

        def take(at: Instant) -> None:
            holds = node.state != "DELETING"
            if record is not None:
                holds = record.state in (QrState.ACTIVE, QrState.PROVISIONING)
            if self._life.nodes.get(node.name) is node and holds:
                self._life.lose(at, node, shows=end, lag_s=lag_s)

        self._world.later(now, notice, take)

    def among(self, zone: str, count: int | None, share: float | None, choose: Choice) -> list[NodeRecord]:
        """Which of the slices in the zone (`*`: anywhere) a preemption of many takes; spot or not."""
        nodes = [n for n in self._life.nodes.values() if zone in ("*", n.zone) and n.state != "DELETING"]
        return chosen(nodes, count, share, choose, self._choices)

    def capacity_changed(self, now: Instant) -> None:
        """More room: grant. Less room than is in use: slices go, chosen as the scenario says."""
        if self._world.settings.reclaim != "none":
            nodes = list(self._life.nodes.values())
            leaving = frozenset(n.holder for n in nodes if n.leaving or n.state == "DELETING")
            for name in self._life.capacity.excess(self._world.age(now), leaving, self._pick()):
                for node in [n for n in nodes if n.holder == name][:1]:
                    self.preempt(now, node)
        self._life.grant_what_fits(now)

    def _pick(self) -> Callable[[int], int]:
        if self._world.settings.reclaim == "seeded":
            return self._choices.randrange
        return (lambda count: count - 1) if self._world.settings.reclaim == "newest" else (lambda _: 0)

    def node_ready(self, now: Instant, node: NodeRecord) -> None:
        if not node.spot:
            return
        mean = self._world.settings.spot_lifetime
        if mean is not None:
            self._world.later(now, self._chance.expovariate(1 / mean), lambda at: self._if_there(at, node, None))
        kind = node.accelerator
        for rate in self._world.settings.preemption_rates:
            if rate.covers(node.zone, kind.name, kind.generation.key):
                self._roll(now, node, rate)

    def _roll(self, now: Instant, node: NodeRecord, rate: PreemptionRate) -> None:
        """The next loss at this rate. One that falls outside the rate's span is none: chance has no memory."""

        def strike(at: Instant) -> None:
            age_s = self._world.age(at)
            if rate.holds(age_s):
                self._if_there(at, node, rate.notice)
            elif age_s < rate.after and self._life.nodes.get(node.name) is node:
                self._roll(at, node, rate)

        self._world.later(now, self._chance.expovariate(rate.per_slice_hour / _HOUR_S), strike)

    def _by_plan(self, now: Instant, node: NodeRecord, rule: PreemptionRule) -> None:
        self.preempt(now, node, notice_s=rule.notice, shows=rule.shows, lag_s=rule.lag)

    def _if_there(self, now: Instant, node: NodeRecord, notice_s: float | None) -> None:
        if self._life.nodes.get(node.name) is node:
            self.preempt(now, node, notice_s=notice_s)
