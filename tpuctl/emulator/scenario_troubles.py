"""What a scenario lets happen: losses, maintenance, states going wrong, stalled stages, zones out of sight, faults."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from tpuctl.emulator.fault_errors import ERRORS
from tpuctl.emulator.scenario_parts import InTime, Kind, Latency, Part, Pattern, Seconds, covers
from tpuctl.emulator.tpu_states import NODE_STATES, WITHOUT_MACHINES

Choice = Literal["newest", "oldest", "seeded"]
Shows = Literal["PREEMPTED", "TERMINATED", "gone"]


class NodeRule(Part):
    """Nodes whose whole id matches `node`, in `zone`: at a time since the start, or so long after they were READY."""

    node: Pattern = ".*"
    zone: str = "*"
    at: Seconds | None = None
    after_ready: Latency | None = None
    times: int = Field(default=1, ge=1)  # slices that it befalls, in all
    share: float | None = Field(default=None, gt=0, le=1)  # of the READY slices at `at`, in place of `times`
    choose: Choice = "newest"

    @model_validator(mode="after")
    def _one_time(self) -> NodeRule:
        if (self.at is None) == (self.after_ready is None):
            raise ValueError("it needs one of `at` and `after_ready`")
        if self.share is not None and (self.at is None or "times" in self.model_fields_set):
            raise ValueError("`share` needs `at` and goes without `times`")
        return self


class PreemptionRule(NodeRule):
    notice: Seconds | None = None
    shows: Shows | None = None
    lag: Seconds = 0.0  # the queued resource says ACTIVE so long after the end of its node


class PreemptionRate(InTime):
    """Chance at work on spot slices: so many losses in a slice's hour, on average."""

    zone: str = "*"
    type: Kind = "*"
    per_slice_hour: float = Field(gt=0)
    notice: Seconds | None = None

    def covers(self, zone: str, accelerator: str, generation: str) -> bool:
        return covers(self.zone, self.type, zone, accelerator, generation)


class MaintenancePlan(Part):
    """Announced `lead` ahead; then the hosts are down for `lasts`; then the slice is well again, or over."""

    lead: Seconds = 60.0
    lasts: Seconds = 60.0
    warning: Seconds = 60.0  # instance/maintenance-event turns so long before it begins
    kind: Literal["SCHEDULED", "UNSCHEDULED"] = "SCHEDULED"
    worker: int | None = Field(default=None, ge=0)  # None: every host
    hosts: Literal["restart", "stay"] = "restart"
    ends: Literal["done", "terminated"] = "done"


class MaintenanceRule(NodeRule, MaintenancePlan):
    pass


class NodeStatePlan(Part):
    """The node's own state and health from now on; after `lasts` (null: never) it is `then`."""

    state: str | int
    health: str | None = None  # None: HEALTHY when READY, else none
    lasts: Seconds | None = None
    then: str | int = "READY"

    @model_validator(mode="after")
    def _comes_back(self) -> NodeStatePlan:
        if self.lasts is not None and (self.state == "gone" or self.state in WITHOUT_MACHINES):
            raise ValueError(f"a node that is {self.state} has no machines and does not come back; leave `lasts` out")
        return self

    @field_validator("state", "then")
    @classmethod
    def _known(cls, state: str | int) -> str | int:
        """A number or a word in `raw:` is what no client may know; other words must be the service's."""
        word = str(state)
        if word not in NODE_STATES and word != "gone" and not word.startswith("raw:") and not word.isdecimal():
            raise ValueError(
                f"{state!r} is no state of a node ({', '.join(NODE_STATES)}, gone); "
                "write raw:WORD or a number for one that clients do not know"
            )
        return state


class NodeStateRule(NodeRule, NodeStatePlan):
    pass


class Stall(Part):
    """Queued resources whose whole id matches stay in a stage `lasts` longer (null: for good), or fail in it."""

    queued: Pattern = ".*"
    zone: str = "*"
    stage: Literal["CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "BOOTING", "SUSPENDING", "DELETING"]
    lasts: Latency | None = None
    error: str = ""  # then FAILED with this error, by its name
    skip: int = Field(default=0, ge=0)
    times: int | None = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _can_fail(self) -> Stall:
        if self.error and self.stage not in ("ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING"):
            raise ValueError(f"a request cannot fail in stage {self.stage}; leave `error` out")
        if self.error and self.error not in ERRORS:
            raise ValueError(f"error {self.error!r} is unknown; known: {', '.join(ERRORS)}")
        return self


class Unreachable(InTime):
    """Lists leave the zone out and name it in `unreachable`."""

    zone: str


FaultKind = Literal[
    "error-before", "error-after", "lost-before", "lost-after", "lost-late", "hang-before", "hang-after", "slow",
    "partial", "fail-later", "operation-slow", "operation-never", "operation-lost", "grant-first",
]  # fmt: skip


class FaultRule(InTime):
    """Calls whose method is `method` and whose path holds `path` (a pattern): docs/emulator.md, Faults."""

    kind: FaultKind
    method: str = "*"
    path: Pattern = ""
    call: str = "*"  # e.g. nodes.list, queuedResources.create
    zone: str = "*"
    skip: int = Field(default=0, ge=0)  # matching calls let through first
    every: int = Field(default=1, ge=1)  # then each n-th
    times: int | None = Field(default=1, ge=1)  # None: always
    probability: float = Field(default=1.0, ge=0, le=1)
    seconds: Seconds = 60.0
    error: str = "unavailable"
    message: str = ""
    unreachable: tuple[str, ...] = ()

    @field_validator("error")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in ERRORS:
            raise ValueError(f"fault error {name!r} is unknown; known: {', '.join(ERRORS)}")
        return name


class Override(Part):
    """A resource shows these raw values instead of its own. None leaves the field out of the answer."""

    resource: str  # <zone>/queuedResources/<id> or <zone>/nodes/<id>; the end of its full name
    fields: dict[str, Any] = Field(default_factory=dict)
    hidden: bool = False  # not listed and 404
    seconds: Seconds | None = None  # None: until cleared
