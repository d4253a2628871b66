"""Stages of a request that last longer than they should, for good, or end badly."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpuctl.emulator.scenario_troubles import Stall


@dataclass(slots=True)
class _Planted:
    rule: Stall
    matched: int = 0
    fired: int = 0


class Stalls:
    def __init__(self, rules: tuple[Stall, ...]) -> None:
        self._planted = [_Planted(rule) for rule in rules]

    def meet(self, queued_id: str, zone: str, stage: str) -> Stall | None:
        """The first rule that this request meets as it enters the stage, counted."""
        for planted in self._planted:
            rule = planted.rule
            if rule.stage != stage or rule.zone not in ("*", zone) or not re.fullmatch(rule.queued, queued_id):
                continue
            planted.matched += 1
            if planted.matched > rule.skip and (rule.times is None or planted.fired < rule.times):
                planted.fired += 1
                return rule
        return None
