"""How a scenario says what the zones have: chips over time, stockouts, and traces that were measured elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, PrivateAttr, Tag, ValidationInfo, model_validator

from tpuctl.emulator.accelerators import ACCELERATORS
from tpuctl.emulator.scenario_parts import InTime, Kind, Part, Seconds
from tpuctl.emulator.traces import Trace, parse_trace

ReadFile = Callable[[str], str]  # text of a file that a scenario names; raises OSError, ValueError


class CapacityStep(Part):
    at: Seconds = 0.0  # since the emulator started
    chips: int | None = Field(default=None, ge=0)  # None: without limit


class CapacityRule(Part):
    """Chips that the zone has for a type. `type` is an accelerator type, a generation (v4, v5e) or `*`."""

    zone: str
    type: Kind = "*"
    chips: int | None = Field(default=None, ge=0)
    over_time: tuple[CapacityStep, ...] = ()

    @property
    def steps(self) -> tuple[CapacityStep, ...]:
        first = () if self.over_time and self.over_time[0].at == 0 else (CapacityStep(chips=self.chips),)
        return first + self.over_time

    @property
    def rules(self) -> tuple[CapacityRule, ...]:
        return (self,)

    @model_validator(mode="after")
    def _in_order(self) -> CapacityRule:
        times = [step.at for step in self.over_time]
        if times != sorted(times):
            raise ValueError("over_time must be in order of `at`")
        return self


class TraceRule(Part):
    """Capacity as a trace has it: each count of the trace is so many slices of `type`.

    The rule that follows from it is one for the type's generation: whatever shape takes the chips, they are the same.
    """

    trace: str  # a CSV file, beside the scenario; docs/emulator.md, "Traces"
    zones: dict[str, str] = Field(min_length=1)  # zone here -> zone of the trace
    type: str
    slices_each: float = Field(default=1.0, gt=0)  # slices for each count, rounded down after the product
    speed: float = Field(default=1.0, gt=0)  # seconds of the trace in a second here
    start: Seconds = 0.0  # this moment of the trace is the emulator's start
    ends: Literal["empty", "keep"] = "empty"  # after the trace: no chips, or the last count for good
    _read: Trace = PrivateAttr(default_factory=dict)

    @property
    def rules(self) -> tuple[CapacityRule, ...]:
        accelerator = ACCELERATORS[self.type]
        found = []
        for zone, there in self.zones.items():
            steps = tuple(
                CapacityStep(
                    at=max(0.0, (at_s - self.start) / self.speed),
                    chips=int(max(0, available) * self.slices_each) * accelerator.chips,
                )
                for at_s, available in self._read[there].from_second(self.start, keep=self.ends == "keep")
            )
            found.append(CapacityRule(zone=zone, type=accelerator.generation.key, over_time=steps))
        return tuple(found)

    @model_validator(mode="after")
    def _load(self, info: ValidationInfo) -> TraceRule:
        if self.type not in ACCELERATORS:
            raise ValueError(f"type {self.type!r} is no accelerator type; a trace counts slices, e.g. of v4-16")
        context: Mapping[str, Any] = info.context or {}
        read: ReadFile | None = context.get("read")
        if read is None:
            raise ValueError("a trace can only be named in a scenario file")
        try:
            self._read = parse_trace(read(self.trace))
        except OSError as error:
            raise ValueError(f"trace {self.trace!r} cannot be read: {error.strerror}") from error
        for there in self.zones.values():
            if there not in self._read:
                raise ValueError(f"trace {self.trace!r} has no zone {there!r}; it has {', '.join(self._read)}")
            if self.start >= self._read[there].end_s and self.ends != "keep":
                raise ValueError(f"zone {there!r} of trace {self.trace!r} ends before `start`")
        return self


def _which(document: object) -> str:
    return "<trace>" if isinstance(document, TraceRule) or "trace" in _keys(document) else "<rule>"


def _keys(document: object) -> Mapping[str, object]:
    return document if isinstance(document, Mapping) else {}


AnyCapacity = Annotated[
    Annotated[CapacityRule, Tag("<rule>")] | Annotated[TraceRule, Tag("<trace>")], Discriminator(_which)
]


class Stockout(InTime):
    """Nothing new is granted; what runs stays."""

    zone: str = "*"
    type: Kind = "*"
