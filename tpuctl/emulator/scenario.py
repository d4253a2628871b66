"""Scenarios: what the emulated cloud has, how long it takes, what goes wrong. YAML in, frozen settings out."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator

from tpuctl.base.errors import UserError
from tpuctl.emulator.accelerators import ZONES
from tpuctl.emulator.scenario_capacity import AnyCapacity, CapacityRule, CapacityStep, ReadFile, Stockout, TraceRule
from tpuctl.emulator.scenario_limits import NotOffered, QuotaRule, Reservation
from tpuctl.emulator.scenario_parts import Latency, Part, Seconds, Span
from tpuctl.emulator.scenario_troubles import (
    FaultRule,
    MaintenancePlan,
    MaintenanceRule,
    NodeStatePlan,
    NodeStateRule,
    Override,
    PreemptionRate,
    PreemptionRule,
    Stall,
    Unreachable,
)

__all__ = [
    "CapacityRule", "CapacityStep", "FaultRule", "Latencies", "MaintenancePlan", "MaintenanceRule", "NodeStatePlan",
    "NodeStateRule", "NotOffered", "Override", "PreemptionRate", "PreemptionRule", "QuotaRule", "Reservation",
    "Settings", "Span", "Stall", "Stockout", "TraceRule", "Unreachable", "parse_part", "parse_scenario",
]  # fmt: skip

P = TypeVar("P", bound=Part)


class Latencies(Part):
    """How long each state lasts: a duration, or a range from which it is drawn each time.

    The defaults suit people who wait in front of a terminal.
    """

    call: Latency = 0.0  # each answer of the services
    accepted: Latency = 0.2  # CREATING
    waiting: Latency = 0.5  # ACCEPTED and WAITING_FOR_RESOURCES, when there is room
    provisioning: Latency = 1.0
    boot: Latency = 0.5  # only where machines boot by themselves (`--machines none`)
    suspending: Latency = 0.5
    deleting: Latency = 1.0
    instance: Latency = 0.5  # a Compute instance or disk is made
    instance_deleting: Latency = 0.5


def _reclaim(value: object) -> object:
    return {True: "newest", False: "none"}.get(value, value) if isinstance(value, bool) else value


def _rules(value: object) -> object:
    """One rule may stand without a list."""
    return (value,) if isinstance(value, dict) else value


class Settings(Part):
    seed: int = 0
    zones: dict[str, tuple[str, ...]] = Field(default_factory=lambda: dict(ZONES))
    latencies: Latencies = Latencies()
    notice: Seconds = 5.0
    capacity: Annotated[tuple[AnyCapacity, ...], BeforeValidator(_rules)] = ()
    stockouts: tuple[Stockout, ...] = ()
    # Who goes when capacity falls below what is in use. True: newest; False: none.
    reclaim: Annotated[Literal["newest", "oldest", "seeded", "none"], BeforeValidator(_reclaim)] = "newest"
    quotas: tuple[QuotaRule, ...] = ()
    default_quota: int | None = None  # chips in a zone for what no rule names; None: without limit
    quota_counts_waiting: bool = True
    quota_refusal: Literal["at-call", "later"] = "at-call"  # later: the request is stored, and then FAILS
    reservations: tuple[Reservation, ...] = ()
    not_offered: tuple[NotOffered, ...] = ()
    preemptions: tuple[PreemptionRule, ...] = ()
    preemption_rates: tuple[PreemptionRate, ...] = ()
    spot_lifetime: Seconds | None = None  # mean of an exponential draw for each spot slice; None: no chance at work
    preempted_node: Literal["PREEMPTED", "TERMINATED", "gone"] = "PREEMPTED"
    maintenance: tuple[MaintenanceRule, ...] = ()
    node_states: tuple[NodeStateRule, ...] = ()
    stalls: tuple[Stall, ...] = ()
    unreachable: tuple[Unreachable, ...] = ()
    faults: tuple[FaultRule, ...] = ()
    overrides: tuple[Override, ...] = ()
    denied_zones: tuple[str, ...] = ()
    denied_permissions: tuple[str, ...] = ()
    disabled_apis: tuple[Literal["tpu", "compute", "secretmanager"], ...] = ()
    creates_per_minute: int | None = Field(default=None, ge=1)  # of each project
    page_size: int = Field(default=100, ge=1)
    boot_by_themselves: bool = True  # the service sets it False where machines report

    @field_validator("capacity", "stockouts", "quotas", "preemptions", "preemption_rates", "maintenance", "node_states",
                     "stalls", "unreachable")  # fmt: skip
    @classmethod
    def _in_a_zone_that_is_there(cls, rules: tuple[Part, ...], info: ValidationInfo) -> tuple[Part, ...]:
        zones = info.data.get("zones", {})
        for index, rule in enumerate(rules):
            for zone in rule.zones if isinstance(rule, TraceRule) else (getattr(rule, "zone", "*"),):
                if zones and zone not in ("*", *zones):
                    near = get_close_matches(zone, sorted(zones), n=1)
                    hint = f"did you mean {near[0]!r}?" if near else "add it to `zones`"
                    raise ValueError(f"rule {index}: there is no zone {zone!r}; {hint}")
        return rules


def parse_scenario(document: object, source: str = "scenario") -> Settings:
    return parse_part(Settings, {} if document is None else document, source)


def parse_part(kind: type[P], document: object, source: str) -> P:
    """One part from JSON or YAML. Raises UserError with every mistake on a line of its own."""
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        lines = [f"  {path}: {text}" for _, path, text in mistakes_of(error)]
        raise UserError("\n".join([f"{source}: {len(lines)} mistake(s)", *lines])) from error


def read_settings(document: object, read: ReadFile) -> Settings:
    """`read`: the text of a file that the scenario names. Raises pydantic's ValidationError: see `mistakes_of`."""
    return Settings.model_validate({} if document is None else document, context={"read": read})


def mistakes_of(error: ValidationError) -> list[tuple[tuple[str | int, ...], str, str]]:
    """(steps into the document, the same as words, what is wrong) of each mistake."""
    found = []
    for mistake in error.errors(include_url=False, include_context=False):
        steps = tuple(step for step in mistake["loc"] if not (isinstance(step, str) and step.startswith("<")))
        text = mistake["msg"].removeprefix("Value error, ")
        if mistake["type"] == "extra_forbidden":
            text = _unknown(str(steps[-1]))
        found.append((steps, ".".join(str(step) for step in steps) or "document", text))
    return found


def _unknown(key: str) -> str:
    known = {name for part in _parts(Part) for name in part.model_fields}
    near = get_close_matches(key, sorted(known), n=1)
    return f"unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else "; see docs/emulator.md, Scenarios")


def _parts(kind: type[Part]) -> list[type[Part]]:
    return [kind, *(found for sub in kind.__subclasses__() for found in _parts(sub))]
