"""The rows of the store. Decisions are stored, measurements are not.

Writers: the pass writes incarnations, zone holds and passes; the agent writes runs, attempts and leases; both write
events. Times are Instants (UTC); in the database they are REAL seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tpuctl.base.ids import Epoch, PoolName, QrName, RunId, RunName, SliceName, Zone
from tpuctl.base.units import Instant


class Phase(Enum):
    """Where an incarnation stands. What cannot be seen keeps its phase, plus `unseen_since`."""

    REQUESTED = "REQUESTED"  # the create is planned or sent and the QR not yet seen, or CREATING
    WAITING = "WAITING"  # ACCEPTED, WAITING_FOR_RESOURCES
    PROVISIONING = "PROVISIONING"
    BOOTING = "BOOTING"  # ACTIVE, node not yet READY
    JOINING = "JOINING"  # node READY, not all hosts in Ray yet
    READY = "READY"  # every expected host joined with the right incarnation and passed the probe
    SUSPECT = "SUSPECT"  # was READY; Ray lost a host, the cloud says nothing yet
    DRAINING = "DRAINING"  # notice of preemption, or a planned removal
    LOST = "LOST"  # the service took it, or it failed
    DELETING = "DELETING"  # our delete was sent; remembered until NOT_FOUND
    GONE = "GONE"  # NOT_FOUND after that; terminal

    @property
    def is_over(self) -> bool:
        """No longer living: its slot may be asked for anew (grant and quota permitting)."""
        return self in (Phase.LOST, Phase.DELETING, Phase.GONE)


class Intent(Enum):
    """How far the create call of an incarnation came."""

    PLANNED = "PLANNED"  # written before anything was sent
    SENT = "SENT"  # may have taken effect; only ever re-sent under the same name and request id
    SEEN = "SEEN"  # the QR was observed
    REFUSED = "REFUSED"  # the service said no: there is no such QR
    ABANDONED = "ABANDONED"  # given up: deleted and NOT_FOUND in two passes


@dataclass(frozen=True, slots=True)
class Incarnation:
    name: QrName  # primary key; also the node id
    pool: PoolName
    slot: int
    epoch: Epoch
    n: int
    zone: Zone
    accelerator: str  # API name, e.g. v4-16
    chips: int  # of the whole slice
    hosts: int  # expected
    request_id: str
    intent: Intent
    phase: Phase
    since: Instant  # when the phase was entered
    created_at: Instant  # when it was planned
    spec_digest: str = ""  # of what was asked for
    reason: str = ""  # why it is in this phase, for people
    cloud_state: str = ""  # last seen QR state, raw
    node_state: str = ""  # last seen node state, raw
    joined: int = 0  # hosts last seen in Ray with this incarnation
    node_seen: bool = False  # its node was in a list once: its absence from a complete list means gone
    active_at: Instant | None = None
    ready_at: Instant | None = None
    unseen_since: Instant | None = None
    suspect_since: Instant | None = None
    suspect_passes: int = 0  # passes that saw it SUSPECT with a fresh cloud list
    absent_passes: int = 0  # complete lists in a row without the QR after delete or unanswered create
    delete_request_id: str = ""  # set = deletion is decided, and remembered until NOT_FOUND
    delete_reason: str = ""
    error_kind: str = ""  # CloudError.kind of the last refusal
    error_text: str = ""
    tier: str = "spot"  # what was asked for: spot, on-demand or reserved
    not_before: Instant | None = None  # start of the window in which the service may fulfil the request
    expires_at: Instant | None = None  # end of the window in which the service may fulfil the request
    idle_since: Instant | None = None  # without a run since then; only kept for pools that give back
    ended_at: Instant | None = None  # when it ceased to be living
    was_lost: bool = False  # the service took it

    @property
    def slice_name(self) -> SliceName:
        return SliceName(f"{self.pool}-{self.slot}")


class RunState(Enum):
    QUEUED = "QUEUED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_over(self) -> bool:
        return self in (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Run:
    id: RunId
    name: RunName
    spec_json: str  # tpuctl.spec.run.RunSpec, as JSON
    user: str
    priority: int
    state: RunState
    since: Instant
    submitted_at: Instant
    reason: str = ""
    bundle: str = ""  # sha256 of the working directory's archive; "" = none
    failures: int = 0  # verdict failed
    preemptions: int = 0  # verdict preempted
    losses: int = 0  # verdicts host fault and lost contact: the bounded budget
    attempts: int = 0  # number of the last attempt
    activation: int = 0  # k of the supervisor's job <run>-<epoch>-<k>
    not_before: Instant | None = None  # pause before the next attempt
    cancel_asked: bool = False
    exit_code: int | None = None
    ended_at: Instant | None = None


class Verdict(Enum):
    SUCCEEDED = "succeeded"
    PREEMPTED = "preempted"
    FAILED = "failed"
    HOST_FAULT = "host-fault"
    LOST_CONTACT = "lost-contact"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Attempt:
    run_id: RunId
    n: int  # from 1; only grows
    epoch: Epoch
    activation: int
    slices: tuple[tuple[SliceName, QrName], ...]  # in rank order
    ordered_at: Instant
    started_at: Instant | None = None  # all ranks started
    stopping_at: Instant | None = None
    stop_reason: str = ""
    ended_at: Instant | None = None
    verdict: Verdict | None = None
    evidence: str = ""  # for people: what the verdict rests on


@dataclass(frozen=True, slots=True)
class Lease:
    """One run's right to a whole slice. At most one a slice; written before anything starts."""

    slice: SliceName
    incarnation: QrName
    run_id: RunId
    attempt: int
    since: Instant


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, for the timeline and `tpuctl events`."""

    at: Instant
    kind: str  # requested, ready, notice, lost, deleted, gone, submitted, attempt-ordered, started, verdict, …
    subject: str  # QR name, slice name or run name
    text: str


# A pause that is longer ends with a change of the spec, not with time.
ENDLESS_S = 10 * 365 * 86400.0


@dataclass(frozen=True, slots=True)
class ZoneHold:
    """Creates of this kind are paused in this zone until then. Zone or accelerator `*`: in all, of all types."""

    zone: Zone
    accelerator: str
    kind: str  # CloudError.kind
    until: Instant
    text: str


@dataclass(frozen=True, slots=True)
class PassRecord:
    started_at: Instant
    ended_at: Instant
    exit_code: int
    summary: str
