"""Scenarios: what the emulated cloud has, how long it takes, what goes wrong. YAML in, frozen settings out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from tpuctl.base.errors import UserError
from tpuctl.base.units import parse_duration
from tpuctl.emulator.accelerators import ACCELERATORS, GENERATIONS, ZONES


def _seconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


P = TypeVar("P", bound=Part)


class Latencies(Part):
    """How long each state lasts. The defaults suit people who wait in front of a terminal."""

    accepted: Seconds = 0.2  # CREATING
    waiting: Seconds = 0.5  # ACCEPTED and WAITING_FOR_RESOURCES, when there is room
    provisioning: Seconds = 1.0
    boot: Seconds = 0.5  # only where machines boot by themselves (`--machines none`)
    suspending: Seconds = 0.5
    deleting: Seconds = 1.0
    instance: Seconds = 0.5  # a Compute instance or disk is made
    instance_deleting: Seconds = 0.5


class CapacityStep(Part):
    at: Seconds = 0.0  # since the emulator started
    chips: int | None = Field(default=None, ge=0)  # None: without limit


class CapacityRule(Part):
    """Chips that the zone has for a type. `type` is an accelerator type, a generation (v4, v5e) or `*`."""

    zone: str
    type: str = "*"
    chips: int | None = Field(default=None, ge=0)
    over_time: tuple[CapacityStep, ...] = ()

    @property
    def steps(self) -> tuple[CapacityStep, ...]:
        first = () if self.over_time and self.over_time[0].at == 0 else (CapacityStep(chips=self.chips),)
        return first + self.over_time

    @model_validator(mode="after")
    def _known(self) -> CapacityRule:
        if self.type != "*" and self.type not in ACCELERATORS and self.type not in {g.key for g in GENERATIONS}:
            raise ValueError(f"type {self.type!r} is no accelerator type, no generation and not '*'")
        times = [step.at for step in self.over_time]
        if times != sorted(times):
            raise ValueError("over_time must be in order of `at`")
        return self


class QuotaRule(Part):
    """Chips of a generation that the project may hold in a zone."""

    zone: str
    generation: str
    tier: Literal["spot", "on-demand"] = "spot"
    chips: int = Field(ge=0)


class PreemptionRule(Part):
    """`node` is a pattern for whole node ids. At a time since the start, or so long after it was READY."""

    node: str
    at: Seconds | None = None
    after_ready: Seconds | None = None
    notice: Seconds | None = None
    times: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _one_time(self) -> PreemptionRule:
        if (self.at is None) == (self.after_ready is None):
            raise ValueError("a preemption needs one of `at` and `after_ready`")
        return self


FaultKind = Literal[
    "error-before", "error-after", "lost-before", "lost-after", "hang-before", "hang-after", "slow", "partial",
    "fail-later",
]  # fmt: skip


class FaultRule(Part):
    """Calls whose method is `method` and whose path holds `path` (a pattern): docs/emulator.md, Faults."""

    kind: FaultKind
    method: str = "*"
    path: str = ""
    skip: int = Field(default=0, ge=0)  # matching calls let through first
    times: int | None = Field(default=1, ge=1)  # None: always
    probability: float = Field(default=1.0, ge=0, le=1)
    seconds: Seconds = 60.0
    error: str = "unavailable"
    message: str = ""
    unreachable: tuple[str, ...] = ()


class Override(Part):
    """A resource shows these raw values instead of its own. None leaves the field out of the answer."""

    resource: str  # <zone>/queuedResources/<id> or <zone>/nodes/<id>; the end of its full name
    fields: dict[str, Any] = {}
    hidden: bool = False  # not listed and 404
    seconds: Seconds | None = None  # None: until cleared


class Settings(Part):
    seed: int = 0
    zones: dict[str, tuple[str, ...]] = Field(default_factory=lambda: dict(ZONES))
    latencies: Latencies = Latencies()
    notice: Seconds = 5.0
    capacity: tuple[CapacityRule, ...] = ()
    reclaim: bool = True  # when capacity falls below what is in use, the youngest slices are preempted
    quotas: tuple[QuotaRule, ...] = ()
    default_quota: int | None = None  # chips for what no rule names; None: without limit
    quota_counts_waiting: bool = True
    preemptions: tuple[PreemptionRule, ...] = ()
    spot_lifetime: Seconds | None = None  # mean of an exponential draw for each spot slice; None: no chance at work
    preempted_node: Literal["PREEMPTED", "TERMINATED", "gone"] = "PREEMPTED"
    faults: tuple[FaultRule, ...] = ()
    overrides: tuple[Override, ...] = ()
    denied_zones: tuple[str, ...] = ()
    denied_permissions: tuple[str, ...] = ()
    disabled_apis: tuple[Literal["tpu", "compute", "secretmanager"], ...] = ()
    creates_per_minute: int | None = Field(default=None, ge=1)
    page_size: int = Field(default=100, ge=1)
    boot_by_themselves: bool = True  # the service sets it False where machines report


def read_scenario(path: Path) -> Settings:
    """Raises UserError naming the file and the place in it."""
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise UserError(f"scenario {path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise UserError(f"scenario {path}: not YAML: {error}") from error
    return parse_scenario(document, str(path))


def parse_scenario(document: object, source: str = "scenario") -> Settings:
    return parse_part(Settings, {} if document is None else document, source)


def parse_part(kind: type[P], document: object, source: str) -> P:
    """One part from JSON or YAML. Raises UserError with every mistake on a line of its own."""
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        lines = [
            f"  {'.'.join(str(step) for step in mistake['loc']) or 'document'}: {mistake['msg']}"
            for mistake in error.errors()
        ]
        raise UserError("\n".join([f"{source}: {len(lines)} mistake(s)", *lines])) from error
