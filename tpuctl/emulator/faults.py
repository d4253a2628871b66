"""Faults that are planted on calls: which call meets which fault, and the errors they answer with."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from tpuctl.emulator.scenario import FaultRule
from tpuctl.emulator.wire import Json, Request, ServiceError, error_info

# name -> (status, message); the messages are the services' own as far as they are known.
_ERRORS: dict[str, tuple[str, str]] = {
    "unavailable": ("UNAVAILABLE", "The service is currently unavailable."),
    "internal": ("INTERNAL", "Internal error. Please try again."),
    "unknown": ("UNKNOWN", "an internal error has occurred"),
    "deadline": ("DEADLINE_EXCEEDED", "Deadline expired before operation could complete."),
    "aborted": ("ABORTED", "There was a conflict while trying to complete your request."),
    "rate-limit": (
        "RESOURCE_EXHAUSTED",
        "Quota exceeded for quota metric 'Create requests' and limit 'Create requests per minute' of service "
        "'tpu.googleapis.com' for consumer 'project_number:1'.",
    ),
    "quota": (
        "RESOURCE_EXHAUSTED",
        "Quota limit 'TPUV6EPreemptiblePerProjectPerZoneForTPUAPI' has been exceeded. Limit: 64 in zone us-east1-d.",
    ),
    "quota-later": (
        "RESOURCE_EXHAUSTED",
        "Quota 'TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI' exhausted. Limit 16 in region us-west4",
    ),
    "no-capacity": (
        "RESOURCE_EXHAUSTED",
        'There is no more capacity in the zone "europe-west4-b"; you can try in another zone where Cloud TPU Nodes are '
        "offered (see https://cloud.google.com/tpu/docs/regions) [EID: 0x27e2d8ab1ccb8dd9]",
    ),
    "no-reserved": (
        "FAILED_PRECONDITION",
        "Insufficient reserved capacity. Contact customer support to increase your reservation. "
        "[EID: 0x27e2d8ab1ccb8dd9]",
    ),
    "permission": ("PERMISSION_DENIED", "Permission 'tpu.nodes.get' denied on resource (or it may not exist)."),
    "unauthenticated": (
        "UNAUTHENTICATED",
        "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
        "authentication credential.",
    ),
    "not-found": ("NOT_FOUND", "Resource was not found"),
    "unimplemented": ("UNIMPLEMENTED", "Operation is not implemented, or supported, or enabled."),
}
ERROR_NAMES = tuple(_ERRORS)


def planted_error(rule: FaultRule, *, compute: bool = False) -> ServiceError:
    """The error that the rule asks for; `message` replaces the usual text."""
    status, text = _ERRORS[rule.error]
    details: tuple[Json, ...] = ()
    if rule.error == "permission":
        details = (error_info("IAM_PERMISSION_DENIED", "iam.googleapis.com"),)
    if rule.error == "rate-limit":
        details = (error_info("RATE_LIMIT_EXCEEDED", "googleapis.com", service="tpu.googleapis.com"),)
    reason = {"UNAVAILABLE": "backendError", "INTERNAL": "backendError", "PERMISSION_DENIED": "forbidden"}
    return ServiceError(status, rule.message or text, reason=reason.get(status, "") if compute else "", details=details)


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
        """Raises ValueError when its error has no name here or its pattern is none."""
        if rule.error not in _ERRORS:
            raise ValueError(f"fault error {rule.error!r} is unknown; known: {', '.join(_ERRORS)}")
        try:
            re.compile(rule.path)
        except re.error as error:
            raise ValueError(f"fault path {rule.path!r} is no pattern: {error}") from error
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

    def meet(self, request: Request) -> FaultRule | None:
        """The first planted fault that fires on this call, counted."""
        for fault in self._planted:
            rule = fault.rule
            if rule.method not in ("*", request.method) or not re.search(rule.path, request.path):
                continue
            fault.matched += 1
            if fault.matched <= rule.skip or (rule.times is not None and fault.fired >= rule.times):
                continue
            if rule.probability < 1 and self._chance.random() >= rule.probability:
                continue
            fault.fired += 1
            return rule
        return None
