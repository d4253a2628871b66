"""What the runs' planner sees and decides. Data only; the planner is pure, the agent's loop carries it out."""

from __future__ import annotations

from dataclasses import dataclass

from tpuctl.base.ids import PoolName, QrName, RunId, SliceName, Zone
from tpuctl.base.units import Instant
from tpuctl.store.records import Attempt, Phase, Run, RunState, Verdict


@dataclass(frozen=True, slots=True)
class SliceView:
    """A slice as a place for runs: the newest incarnation of a slot, with what Ray and the leases say now."""

    slice: SliceName
    incarnation: QrName
    pool: PoolName
    zone: Zone
    accelerator: str  # as the API calls it
    hosts: int
    chips_per_host: int
    phase: Phase
    whole: bool  # every expected host is alive in Ray now, with this incarnation, and none is draining
    lease: RunId | None  # who holds it
    suspect_until: Instant | None = None  # kept off after a loss of contact, although Ray may call it alive

    def is_usable(self, now: Instant) -> bool:
        """READY and whole: a run may start on it (if nobody holds it)."""
        kept_off = self.suspect_until is not None and now < self.suspect_until
        return self.phase is Phase.READY and self.whole and not kept_off


@dataclass(frozen=True, slots=True)
class RunWant:
    """What the planner needs of a run's spec, resolved against the cluster spec."""

    pools: tuple[PoolName, ...]  # allowed, in order of preference
    accelerators: tuple[str, ...]  # allowed, in order of preference; a gang has one accelerator type and one zone
    min_slices: int
    max_slices: int
    max_failures: int
    max_losses: int  # the bounded budget shared by host fault and lost contact
    grace_s: float = 30.0  # between SIGTERM and SIGKILL when the program is asked to stop


@dataclass(frozen=True, slots=True)
class RunView:
    run: Run
    want: RunWant
    attempt: Attempt | None  # the last one; open while `ended_at` is None
    outcome: Outcome | None  # of that attempt, when its supervisor has written one
    supervisor: SupervisorState


@dataclass(frozen=True, slots=True)
class SupervisorState:
    """ABSENT: Ray answered and has no such job. UNKNOWN: Ray could not be asked; nothing follows from it."""

    state: str  # "absent" | "starting" | "running" | "ended" | "unknown"
    since: Instant | None = None


@dataclass(frozen=True, slots=True)
class RankExit:
    rank: int
    slice: SliceName
    worker: int
    code: int | None  # exit status; None when a signal ended it
    signal: int | None
    at: Instant
    before_stop: bool  # it ended before we asked the gang to stop


@dataclass(frozen=True, slots=True)
class HostLoss:
    """A host that the supervisor could not reach any more, or that Ray calls dead or draining."""

    rank: int
    slice: SliceName
    incarnation: QrName
    worker: int
    # "unreachable", "dead" (Ray's word), "draining" (a notice), "worker-died" (its Ray worker, while the node lives),
    # "refused" (it would not start the program), "left" (processes of the attempt could not be ended)
    kind: str
    at: Instant


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended, as its supervisor saw it: facts, no verdict. Read from attempts/<n>/outcome.json."""

    attempt: int
    kind: str  # "done" | "exits" | "hosts-lost" | "stopped" | "not-started"
    exits: tuple[RankExit, ...]
    losses: tuple[HostLoss, ...]
    at: Instant
    fence_until: Instant | None  # no other attempt may start before, unless the cloud says the hosts are gone
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CloudWord:
    """What the cloud said of a slice of this attempt when the agent asked for the verdict."""

    incarnation: QrName
    state: str  # "taken" (preempted, suspended, failed, gone) | "healthy" | "unknown"
    text: str
    asked_at: Instant
    node_gone: bool = False  # the node exists no more, so nothing on it computes: its fence need not be waited for


# What the planner returns. Each action carries its reason.


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Lease these slices and order attempt n; start a supervisor first if none runs."""

    run_id: RunId
    attempt: int
    slices: tuple[SliceView, ...]  # in rank order
    reason: str


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """Ask the gang to stop: SIGTERM to all ranks at once, SIGKILL after the grace."""

    run_id: RunId
    attempt: int
    grace_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class AskCloud:
    """Before the verdict: what does the cloud say of these slices?"""

    run_id: RunId
    attempt: int
    incarnations: tuple[QrName, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class CloseAttempt:
    """Record the verdict, end the leases, and put the run where it belongs."""

    run_id: RunId
    attempt: int
    verdict: Verdict
    evidence: str
    next_state: RunState  # QUEUED, SUCCEEDED, FAILED or CANCELLED
    not_before: Instant | None
    exit_code: int | None
    keep_off: tuple[SliceName, ...]  # slices that lost contact: not offered again for the rejoin window
    reason: str
    fenced: tuple[SliceName, ...] = ()  # a program of the attempt may still live on these …
    fence: Instant | None = None  # … until then: they are no other run's either


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done for this run now. `reason` is what `tpuctl why` prints, with what would have to change."""

    run_id: RunId
    reason: str


@dataclass(frozen=True, slots=True)
class Rebook:
    """The cloud's word came after the verdict: move one charge from `losses` to `preemptions`. Not a RunAction."""

    run_id: RunId
    attempt: int
    verdict: Verdict
    evidence: str


RunAction = StartAttempt | StopAttempt | AskCloud | CloseAttempt | Wait
