"""The service takes slices back: on command, by plan, by chance, or because the zone has less capacity than before."""

from __future__ import annotations

import random
import re
from functools import partial

from tpuctl.base.units import Instant
from tpuctl.emulator.events import VmNotice
from tpuctl.emulator.scenario import PreemptionRule
from tpuctl.emulator.tpu_life import TpuLife
from tpuctl.emulator.tpu_records import NodeRecord, QrState


class Preemptions:
    def __init__(self, life: TpuLife) -> None:
        self._life = life
        self._world = life.world
        self._left = {index: rule.times for index, rule in enumerate(life.world.settings.preemptions)}
        # A dice cup of its own: the lifetimes of slices do not depend on what callers ask in between.
        self._chance = random.Random(f"preemptions {life.world.seed}")
        life.watchers.append(self)

    def begin(self, now: Instant) -> None:
        """Plan what happens at fixed times since the start."""
        for index, rule in enumerate(self._world.settings.preemptions):
            if rule.at is not None:
                self._world.later(now, rule.at, partial(self._by_plan, index, rule))
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
        if node.leaving:
            return
        notice = self._world.settings.notice if notice_s is None else notice_s
        record = self._life.queued[node.queued]
        for each in self._life.nodes_of(record):
            each.leaving = True
            if notice > 0 and each.running:
                self._world.events.extend(VmNotice(vm) for vm in each.vms)
        end = shows or self._world.settings.preempted_node

        def take(at: Instant) -> None:
            if self._life.nodes.get(node.name) is node and record.state in (QrState.ACTIVE, QrState.PROVISIONING):
                self._life.lose(at, node, shows=end, lag_s=lag_s)

        self._world.later(now, notice, take)

    def capacity_changed(self, now: Instant) -> None:
        """More room: grant. Less room than is in use: the youngest go, if the scenario wants that."""
        if self._world.settings.reclaim and self._world.started is not None:
            leaving = frozenset(n.queued for n in self._life.nodes.values() if n.leaving or n.state == "DELETING")
            for name in self._life.capacity.excess(now.since(self._world.started), leaving):
                for node in list(self._life.nodes_of(self._life.queued[name]))[:1]:
                    self.preempt(now, node)
        self._life.grant_what_fits(now)

    def node_ready(self, now: Instant, node: NodeRecord) -> None:
        for index, rule in enumerate(self._world.settings.preemptions):
            if rule.after_ready is not None and re.fullmatch(rule.node, node.node_id):
                self._after(now, rule.after_ready, index, rule, node)
        mean = self._world.settings.spot_lifetime
        if mean is not None and node.spot:
            self._world.later(now, self._chance.expovariate(1 / mean), lambda at: self._if_there(at, node, None))

    def _after(self, now: Instant, seconds: float, index: int, rule: PreemptionRule, node: NodeRecord) -> None:
        if self._left[index] > 0:
            self._left[index] -= 1
            self._world.later(now, seconds, lambda at: self._if_there(at, node, rule.notice))

    def _by_plan(self, index: int, rule: PreemptionRule, now: Instant) -> None:
        for node in list(self._life.nodes.values()):
            if self._left[index] > 0 and node.state == "READY" and re.fullmatch(rule.node, node.node_id):
                self._left[index] -= 1
                self.preempt(now, node, notice_s=rule.notice)

    def _if_there(self, now: Instant, node: NodeRecord, notice_s: float | None) -> None:
        if self._life.nodes.get(node.name) is node:
            self.preempt(now, node, notice_s=notice_s)
