"""What a scenario says a project may have: quotas, reservations, and types that are not offered at some tier."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from tpuctl.emulator.accelerators import QUOTA_CLASSES
from tpuctl.emulator.scenario_parts import Kind, Part

QuotaTier = Literal["spot", "on-demand", "reserved"]


def _quota_class(text: str) -> str:
    if text not in QUOTA_CLASSES:
        raise ValueError(f"{text!r} has no quota of its own; it is one of: {', '.join(QUOTA_CLASSES)}")
    return text


class QuotaRule(Part):
    """What each project may hold of a generation in a zone (`*`: in every zone), or in a region.

    `limit` counts as the service does: TensorCores of v2 to v4 and v5p, chips of v5e and v6e. `chips` are chips.
    """

    zone: str = "*"
    region: str = ""
    generation: Annotated[str, AfterValidator(_quota_class)]
    tier: QuotaTier = "spot"
    chips: int | None = Field(default=None, ge=0)
    limit: int | None = Field(default=None, ge=0)

    @property
    def place(self) -> str:
        return f"region {self.region}" if self.region else f"zone {self.zone}"

    @model_validator(mode="after")
    def _one_place_and_one_number(self) -> QuotaRule:
        if self.region and self.zone != "*":
            raise ValueError("a quota is of a zone or of a region; leave one of `zone` and `region` out")
        if self.chips is not None and self.limit is not None:
            raise ValueError("leave one of `chips` and `limit` out")
        return self


class Reservation(Part):
    """Chips that are kept for requests that name it, or that ask for any. They are not part of the zone's capacity."""

    name: str = Field(pattern=r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")
    zone: str
    type: Kind
    chips: int = Field(ge=0)


class NotOffered(Part):
    """Refused whatever quota and capacity say."""

    zone: str = "*"
    type: Kind = "*"
    tier: Literal["spot", "on-demand", "reserved", "*"] = "*"
