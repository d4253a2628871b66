"""Rules of a scenario about nodes: which nodes they befall, and when. What happens then is the caller's."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, TypeVar

from tpuctl.base.units import Instant
from tpuctl.emulator.scenario_troubles import Choice, NodeRule
from tpuctl.emulator.tpu_life import TpuLife
from tpuctl.emulator.tpu_records import NodeRecord

Rule = TypeVar("Rule", bound=NodeRule)


class NodePlans(Generic[Rule]):
    """Calls `act` for each node that a rule befalls, at its time."""

    def __init__(
        self, life: TpuLife, rules: tuple[Rule, ...], name: str, act: Callable[[Instant, NodeRecord, Rule], None]
    ) -> None:
        self._life = life
        self._rules = rules
        self._act = act
        self._left = [rule.times for rule in rules]
        self._chance = random.Random(f"{name} plans {life.world.seed}")
        life.watchers.append(self)

    def begin(self, now: Instant) -> None:
        """Plan what happens at fixed times since the start."""
        for index, rule in enumerate(self._rules):
            if rule.at is not None:
                self._life.world.later(now, rule.at, partial(self._at_its_time, index))

    def node_ready(self, now: Instant, node: NodeRecord) -> None:
        for index, rule in enumerate(self._rules):
            if rule.after_ready is not None and self._left[index] > 0 and _matches(rule, node):
                self._left[index] -= 1
                seconds = self._life.world.drawn(rule.after_ready)
                self._life.world.later(now, seconds, partial(self._if_there, index, node))

    def _if_there(self, index: int, node: NodeRecord, now: Instant) -> None:
        if self._life.nodes.get(node.name) is node:
            self._act(now, node, self._rules[index])

    def _at_its_time(self, index: int, now: Instant) -> None:
        rule = self._rules[index]
        ready = [node for node in self._life.nodes.values() if node.state == "READY" and _matches(rule, node)]
        for node in chosen(ready, rule.times, rule.share, rule.choose, self._chance):
            self._act(now, node, rule)


def _matches(rule: NodeRule, node: NodeRecord) -> bool:
    return rule.zone in ("*", node.zone) and re.fullmatch(rule.node, node.node_id) is not None


def chosen(
    nodes: Iterable[NodeRecord], count: int | None, share: float | None, choose: Choice, chance: random.Random
) -> list[NodeRecord]:
    """So many of the slices, or that share of them (rounded up), one node of each queued resource; None: all.

    `nodes` are in order of creation. Those that are leaving already are passed over.
    """
    one_of_each = {node.queued or node.name: node for node in nodes if not node.leaving}
    found = list(one_of_each.values())
    number = len(found) if count is None else min(count, len(found))
    if share is not None:
        number = math.ceil(share * len(found) - 1e-9)
    if choose == "seeded":
        return chance.sample(found, number)
    return found[::-1][:number] if choose == "newest" else found[:number]
