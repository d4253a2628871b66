"""Control verbs about the cloud's rules: capacity, stockouts, zones out of sight, faults, overrides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tpuctl.base.errors import TpuctlError
from tpuctl.base.units import Instant
from tpuctl.emulator.scenario import (
    CapacityRule,
    FaultRule,
    Override,
    Stockout,
    Unreachable,
    parse_part,
)
from tpuctl.emulator.service import Service

Document = dict[str, Any]
Verb = Callable[[Document], Document]


class Rules:
    """One method a verb: a JSON document in, one out. Raises TpuctlError with what is wrong.

    `seconds` in a document: from now on for so long; without it for good.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._cloud = service.cloud

    def verbs(self) -> dict[str, Verb]:
        return {
            "capacity": self.capacity, "set-capacity": self.set_capacity, "stockout": self.stockout,
            "clear-stockouts": self.clear_stockouts, "unreachable": self.unreachable,
            "clear-unreachable": self.clear_unreachable, "faults": self.faults, "add-fault": self.add_fault,
            "clear-faults": self.clear_faults, "override": self.override, "clear-overrides": self.clear_overrides,
        }  # fmt: skip

    def in_force(self) -> Document:
        age_s = self._age()
        capacity = self._cloud.tpu.life.capacity
        return {
            "capacity": capacity.table(age_s),
            "stockouts": [each.model_dump(mode="json") for each in capacity.stockouts if each.holds(age_s)],
            "unreachable": list(self._cloud.world.out_of_sight(self._service.clock.now())),
            "faults": [fault.document() for fault in self._cloud.faults.all()],
        }

    def capacity(self, _: Document) -> Document:
        found = self.in_force()
        return self._dated({"capacity": found["capacity"], "stockouts": found["stockouts"]})

    def set_capacity(self, asked: Document) -> Document:
        """{zone, type, chips}: from now on; chips null is without limit."""
        rule = parse_part(CapacityRule, asked, "capacity")
        self._known_zone(rule.zone)
        now = self._service.clock.now()
        self._cloud.tpu.life.capacity.set(rule.zone, rule.type, rule.chips, self._age())
        self._cloud.preemptions.capacity_changed(now)
        return self.capacity({})

    def stockout(self, asked: Document) -> Document:
        """{zone, type?, seconds?}: nothing new is granted, what runs stays."""
        rule = parse_part(Stockout, self._in_time(asked), "stockout")
        self._known_zone(rule.zone)
        self._cloud.tpu.life.capacity.stockouts.append(rule)
        if rule.until is not None:
            self._cloud.world.later(self._service.clock.now(), rule.until - rule.after, self._grant)
        return self.capacity({})

    def clear_stockouts(self, _: Document) -> Document:
        self._cloud.tpu.life.capacity.stockouts.clear()
        self._grant(self._service.clock.now())
        return self.capacity({})

    def unreachable(self, asked: Document) -> Document:
        """{} tells which; {zone, seconds?}: lists leave the zone out and name it."""
        if asked:
            rule = parse_part(Unreachable, self._in_time(asked), "unreachable")
            self._known_zone(rule.zone)
            self._cloud.world.unreachable.append(rule)
        return self._dated({"unreachable": self.in_force()["unreachable"]})

    def clear_unreachable(self, asked: Document) -> Document:
        """{zone?}: one, or all; those that were planned for later too."""
        rules = self._cloud.world.unreachable
        rules[:] = [rule for rule in rules if "zone" in asked and rule.zone != asked["zone"]]
        return self.unreachable({})

    def faults(self, _: Document) -> Document:
        return self._dated({"faults": self.in_force()["faults"]})

    def add_fault(self, asked: Document) -> Document:
        """A fault; `lasts`: from now on for so many seconds."""
        given = {key: value for key, value in asked.items() if key != "lasts"}
        if asked.get("lasts") is not None:
            given |= {"after": self._age(), "until": self._age() + float(asked["lasts"])}
        return self._cloud.faults.plant(parse_part(FaultRule, given, "fault")).document()

    def clear_faults(self, asked: Document) -> Document:
        """{id?}: one, or all."""
        return {"removed": self._cloud.faults.remove(asked.get("id"))}

    def override(self, asked: Document) -> Document:
        rule = parse_part(Override, asked, "override")
        self._cloud.override(self._service.clock.now(), rule)
        return rule.model_dump(mode="json")

    def clear_overrides(self, _: Document) -> Document:
        self._cloud.clear_overrides()
        return {}

    def _grant(self, now: Instant) -> None:
        self._cloud.tpu.life.grant_what_fits(now)

    def _age(self) -> float:
        return self._cloud.world.age(self._service.clock.now())

    def _dated(self, document: Document) -> Document:
        return {"version": 1, "at": self._service.clock.now().iso(), **document}

    def _in_time(self, asked: Document) -> Document:
        seconds = asked.get("seconds")
        rest = {key: value for key, value in asked.items() if key != "seconds"}
        return rest | {"after": self._age()} | ({} if seconds is None else {"until": self._age() + float(seconds)})

    def _known_zone(self, zone: str) -> None:
        known = self._cloud.world.settings.zones
        if zone != "*" and zone not in known:
            raise TpuctlError(f"there is no zone {zone!r}; zones: {', '.join(sorted(known))}")
