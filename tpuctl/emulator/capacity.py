"""Room in the zones: how many chips there are of what, as time goes by, and who holds them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from tpuctl.emulator.accelerators import Accelerator
from tpuctl.emulator.scenario_capacity import CapacityRule, CapacityStep, Stockout
from tpuctl.emulator.scenario_parts import covers


@dataclass(frozen=True, slots=True)
class Holding:
    """Chips that a granted request holds until it is gone."""

    holder: str  # full name of the queued resource or node
    zone: str
    accelerator: Accelerator
    chips: int
    reservation: str = ""  # `<zone>/<name>`; its chips are not the zone's


class Capacity:
    """A request fits when every rule that covers it has room: one for the type, one for the generation, one for all.

    What no rule covers has no limit. In a stockout nothing fits. Times are seconds since the emulator started.
    """

    def __init__(self, rules: tuple[CapacityRule, ...], stockouts: tuple[Stockout, ...] = ()) -> None:
        self.stockouts = list(stockouts)
        self._rules: dict[tuple[str, str], tuple[CapacityStep, ...]] = {(r.zone, r.type): r.steps for r in rules}
        self._holdings: dict[str, Holding] = {}  # in order of granting
        self._reserved: dict[str, int] = {}  # chips of each reservation

    def change_times(self) -> list[float]:
        """When a rule changes by itself."""
        changes = {step.at for steps in self._rules.values() for step in steps}
        return sorted(changes | {stockout.until for stockout in self.stockouts if stockout.until is not None})

    def set(self, zone: str, kind: str, chips: int | None, at_s: float) -> None:
        """From now on the rule for (zone, kind) says so, whatever was planned for later."""
        past = tuple(step for step in self._rules.get((zone, kind), ()) if step.at < at_s)
        self._rules[zone, kind] = (*past, CapacityStep(at=at_s, chips=chips))

    def reserve(self, reservation: str, chips: int) -> None:
        """From now on the reservation has so many."""
        self._reserved[reservation] = chips

    def fits_reserved(self, reservation: str, chips: int) -> bool:
        return self.used_of(reservation) + chips <= self._reserved.get(reservation, 0)

    def used_of(self, reservation: str) -> int:
        return sum(h.chips for h in self._holdings.values() if h.reservation == reservation)

    def fits(self, zone: str, accelerator: Accelerator, chips: int, at_s: float) -> bool:
        for stockout in self.stockouts:
            of_it = covers(stockout.zone, stockout.type, zone, accelerator.name, accelerator.generation.key)
            if of_it and stockout.holds(at_s):
                return False
        for key in self._covering(zone, accelerator):
            limit = self.limit(key, at_s)
            if limit is not None and self.used(key) + chips > limit:
                return False
        return True

    def hold(self, holding: Holding) -> None:
        self._holdings[holding.holder] = holding

    def release(self, holder: str) -> bool:
        """True when it held something."""
        return self._holdings.pop(holder, None) is not None

    def limit(self, key: tuple[str, str], at_s: float) -> int | None:
        steps = self._rules.get(key, ())
        passed = bisect_right(steps, at_s, key=lambda step: step.at)  # a trace has thousands
        return steps[passed - 1].chips if passed else None

    def used(self, key: tuple[str, str]) -> int:
        return sum(h.chips for h in self._holdings.values() if self._is_under(h, key))

    def excess(self, at_s: float, leaving: frozenset[str], pick: Callable[[int], int]) -> list[str]:
        """Holders that must go so that every rule holds again. Those in `leaving` count as gone.

        `pick` says which of n holders, oldest first, is the next to go.
        """
        goers: list[str] = []
        for key in self._rules:
            limit = self.limit(key, at_s)
            if limit is None:
                continue
            staying = [
                holding
                for holding in self._holdings.values()
                if self._is_under(holding, key) and holding.holder not in leaving and holding.holder not in goers
            ]
            while staying and sum(holding.chips for holding in staying) > limit:
                goers.append(staying.pop(pick(len(staying))).holder)
        return goers

    def table(self, at_s: float) -> list[dict[str, object]]:
        """For people: each rule with its limit and use."""
        return [
            {"zone": zone, "type": kind, "chips": self.limit((zone, kind), at_s), "used": self.used((zone, kind))}
            for zone, kind in sorted(self._rules)
        ]

    def _is_under(self, holding: Holding, key: tuple[str, str]) -> bool:
        return not holding.reservation and key in self._keys(holding.zone, holding.accelerator)

    def _covering(self, zone: str, accelerator: Accelerator) -> list[tuple[str, str]]:
        return [key for key in self._keys(zone, accelerator) if key in self._rules]

    @staticmethod
    def _keys(zone: str, accelerator: Accelerator) -> tuple[tuple[str, str], ...]:
        return ((zone, accelerator.name), (zone, accelerator.generation.key), (zone, "*"))
