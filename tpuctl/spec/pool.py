"""A pool of the cluster spec: how many slices, of which types, where, on which terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from tpuctl.base.ids import PoolName, Zone
from tpuctl.spec.accelerators import Accelerator, accelerator
from tpuctl.spec.model import Model, Tier, When, plain

MAX_POOL_NAME = 16
MAX_POOL_SLICES = 1000


class DeadlineSpec(Model):
    """None = no deadline."""

    queue_s: float | None = None
    provision_s: float | None = 7200.0
    boot_s: float | None = 1200.0
    join_s: float | None = 600.0


class SliceRange(Model):
    """At least `min` slices always; more, up to `max`, while queued runs want them."""

    min: int = Field(ge=0)
    max: int | None = Field(ge=0)  # None: as many as the grant has chips for

    @property
    def is_fixed(self) -> bool:
        return self.min == self.max

    def __str__(self) -> str:
        """`2`, `0 to 4`, `1 to what the grant has`."""
        if self.is_fixed:
            return str(self.min)
        return f"{self.min} to {'what the grant has' if self.max is None else self.max}"


def fixed(slices: int) -> SliceRange:
    return SliceRange(min=slices, max=slices)


def _range(value: Any) -> Any:
    # A spec that was stored by tpuctl 0.1 has a number.
    return {"min": value, "max": value} if isinstance(value, int) else value


class WindowSpec(Model):
    """When the service may fulfil a request.

    With `until_s` each request is good for so long and is renewed when it expires; with `until` the end is a moment,
    after which nothing is asked for. At most one of the two is set.
    """

    after: When | None = None
    until: When | None = None
    until_s: float | None = None


class DataDiskSpec(Model):
    disk: str  # name of a disk in the slice's zone, or its full path
    mode: Literal["read-only", "read-write"] = "read-only"  # several hosts can only read


@dataclass(frozen=True, slots=True)
class Place:
    """Where and what one request of a pool may be for."""

    zone: Zone
    accelerator: Accelerator

    def __str__(self) -> str:
        return f"{self.accelerator.name} in {self.zone}"


class PoolSpec(Model):
    name: Annotated[PoolName, plain(MAX_POOL_NAME)]
    accelerators: tuple[str, ...] = Field(min_length=1)  # as the API calls them, in order of preference
    zones: tuple[Zone, ...] = Field(min_length=1)  # in order of preference
    tier: Tier = "spot"
    reservation: str = ""  # of tier reserved: its name; "" = any
    runtime: str = ""  # "" = the usual one of each generation
    slices: Annotated[SliceRange, BeforeValidator(_range)]
    idle_s: float | None = None  # given back after so long without a run; None = never
    valid: WindowSpec = WindowSpec()
    labels: tuple[tuple[str, str], ...] = ()  # besides ours
    metadata: tuple[tuple[str, str], ...] = ()  # besides ours
    data_disks: tuple[DataDiskSpec, ...] = ()
    deadlines: DeadlineSpec = DeadlineSpec()

    @model_validator(mode="before")
    @classmethod
    def _one_accelerator(cls, value: Any) -> Any:
        # A spec that was stored by tpuctl 0.1 has one.
        if isinstance(value, dict) and "accelerator" in value:
            rest = {key: each for key, each in value.items() if key != "accelerator"}
            return rest | {"accelerators": (value["accelerator"],)}
        return value

    @property
    def places(self) -> tuple[Place, ...]:
        """Every type in every zone: the type that is liked best first, each in the zones in their order."""
        return tuple(Place(zone, accelerator(name)) for name in self.accelerators for zone in self.zones)

    def runtime_of(self, made: Accelerator) -> str:
        return self.runtime or made.runtime
