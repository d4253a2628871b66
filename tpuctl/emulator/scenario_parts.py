"""What all parts of a scenario are made of: strict models, durations, ranges of durations, patterns, time spans."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

from tpuctl.base.units import parse_duration
from tpuctl.emulator.accelerators import ACCELERATORS, GENERATIONS


def _seconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no pattern: {error}") from error
    return text


def _kind(text: str) -> str:
    if text != "*" and text not in ACCELERATORS and text not in {g.key for g in GENERATIONS}:
        raise ValueError(f"type {text!r} is no accelerator type, no generation and not '*'")
    return text


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0)]
Pattern = Annotated[str, AfterValidator(_pattern)]
Kind = Annotated[str, AfterValidator(_kind)]  # an accelerator type, a generation (v4, v5e) or `*`


@dataclass(frozen=True, slots=True)
class Span:
    """A duration that is drawn anew each time, evenly, from the scenario's seed."""

    low: float
    high: float


def _latency(value: object) -> float | Span:
    if isinstance(value, Span):
        return value
    if isinstance(value, str) and ".." in value:
        low, high = (parse_duration(part) for part in value.split("..", 1))
        if high < low:
            raise ValueError(f"{value!r} ends before it begins; write the shorter duration first")
        return Span(low, high)
    seconds = parse_duration(value) if isinstance(value, str) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < 0:
        raise ValueError(f"{value!r} is no duration; write 2s, a number of seconds, or a range like 1s..5s")
    return float(seconds)


Latency = Annotated[float | Span, PlainValidator(_latency)]


class Part(BaseModel):
    """Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class InTime(Part):
    """Holds from `after` to `until`, both since the emulator started; `until` null: to the end."""

    after: Seconds = 0.0
    until: Seconds | None = None

    def holds(self, age_s: float) -> bool:
        return self.after <= age_s and (self.until is None or age_s < self.until)

    @model_validator(mode="after")
    def _forward(self) -> InTime:
        if self.until is not None and self.until <= self.after:
            raise ValueError("`until` must be later than `after`")
        return self


def covers(zone: str, kind: str, in_zone: str, accelerator: str, generation: str) -> bool:
    """Whether a rule for (zone, kind), either of which may be `*`, is about this accelerator there."""
    return zone in ("*", in_zone) and kind in ("*", accelerator, generation)
