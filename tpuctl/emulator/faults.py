"""Faults that are planted on calls: which call meets which fault, and the errors they answer with."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from tpuctl.emulator.fault_errors import named_error
from tpuctl.emulator.scenario_troubles import FaultRule
from tpuctl.emulator.wire import Json, Request, ServiceError


def planted_error(rule: FaultRule, *, compute: bool = False) -> ServiceError:
    """The error that the rule asks for; `message` replaces the usual text."""
    return named_error(rule.error, rule.message, compute=compute)


@dataclass(slots=True)
class Fault:
    """A planted rule with its counts. `fired` proves that a test's fault happened."""

    id: int
    rule: FaultRule
    matched: int = 0
    fired: int = 0

    def document(self) -> Json:
        return {"id": self.id, "matched": self.matched, "fired": self.fired, **self.rule.model_dump(mode="json")}


class Faults:
    def __init__(self, rules: tuple[FaultRule, ...], seed: int) -> None:
        # A dice cup of its own: planting a fault changes nothing else of a seeded history.
        self._chance = random.Random(f"faults {seed}")
        self._planted: list[Fault] = []
        self._next_id = 1
        for rule in rules:
            self.plant(rule)

    def plant(self, rule: FaultRule) -> Fault:
        fault = Fault(self._next_id, rule)
        self._next_id += 1
        self._planted.append(fault)
        return fault

    def all(self) -> tuple[Fault, ...]:
        return tuple(self._planted)

    def remove(self, fault_id: int | None) -> int:
        """One, or all; returns how many were planted."""
        staying = [] if fault_id is None else [fault for fault in self._planted if fault.id != fault_id]
        removed = len(self._planted) - len(staying)
        self._planted = staying
        return removed

    def meet(self, request: Request, age_s: float = 0.0) -> FaultRule | None:
        """The first planted fault that fires on this call, counted. `age_s`: since the emulator started."""
        for fault in self._planted:
            rule = fault.rule
            if not rule.holds(age_s) or not _is_about(rule, request):
                continue
            fault.matched += 1
            nth = fault.matched - rule.skip
            if nth <= 0 or nth % rule.every or (rule.times is not None and fault.fired >= rule.times):
                continue
            if rule.probability < 1 and self._chance.random() >= rule.probability:
                continue
            fault.fired += 1
            return rule
        return None


def _is_about(rule: FaultRule, request: Request) -> bool:
    return (
        rule.method in ("*", request.method)
        and rule.call in ("*", call_name(request))
        and (rule.zone == "*" or f"/{rule.zone}/" in f"{request.path}/")
        and re.search(rule.path, request.path) is not None
    )


def call_name(request: Request) -> str:
    """`nodes.list`, `queuedResources.create`, `instances.stop`: the collection, and what is done in it."""
    path, _, verb = request.path.strip("/").partition(":")
    parts = path.split("/")
    # Collections and ids alternate behind the version, which Compute writes as compute/v1.
    parts = parts[2:] if parts[0] in ("compute", "storage", "upload") else parts[1:]
    if parts[:1] == ["b"]:
        parts[0] = "buckets"
    one = len(parts) % 2 == 0
    if not verb and not one and request.method == "POST" and len(parts) > 3 and parts[-3] in _WITH_VERBS:
        verb, parts, one = parts[-1], parts[:-1], True
    collection = parts[-2] if one and len(parts) > 1 else parts[-1] if parts else ""
    plain = {"GET": "get" if one else "list", "POST": "create", "PUT": "update", "PATCH": "update"}
    return f"{collection}.{verb or plain.get(request.method, request.method.lower())}"


_WITH_VERBS = ("instances", "disks", "operations", "addresses")  # Compute: …/instances/NAME/stop
