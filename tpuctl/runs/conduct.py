"""One attempt from its order to its outcome, on a gang that hides Ray. Everything that happens goes to the journal.

The first loss of a host, the first exit that is not 0, a notice, or a stop order ends the whole gang at once: SIGTERM
to all ranks, a grace, SIGKILL. The outcome is written when every rank is known to be over or out of reach, and after
the logs have been drained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from tpuctl.base.clock import Clock
from tpuctl.base.units import Instant
from tpuctl.runs.launcher import Ended
from tpuctl.runs.model import HostLoss, Outcome, RankExit
from tpuctl.runs.orders import Order, RunDocument, RunFolder, StopOrder
from tpuctl.runs.program import places


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits of a supervisor, in seconds. Those without a source are guesses."""

    poll_s: float = 0.2  # orders are looked at this often
    find_s: float = 20.0  # hosts that are READY are in Ray; a ghost of one is declared dead in less
    prepare_s: float = 300.0  # a large working directory has to be fetched
    start_s: float = 20.0
    beat_s: float = 1.0
    unreachable_s: float = 8.0  # without an answer; at most lease_s (`within`), when hosts end their programs
    blip_s: float = 2.0  # Ray says "unavailable" and no answer follows
    look_s: float = 0.5
    loss_grace_s: float = 2.0  # peers of a lost rank: no collective can finish, so there is little to wait for
    settle_s: float = 5.0  # beyond the grace, for the answer that all is over
    drain_s: float = 10.0
    margin_s: float = 2.0  # added to a lease's end before it counts as over
    idle_s: float = 600.0

    def within(self, lease_s: float) -> Limits:
        """For a lease of that length: a host that is silent for so long has ended its program by itself."""
        return replace(self, unreachable_s=min(self.unreachable_s, lease_s))


@dataclass(frozen=True, slots=True)
class RankEnded:
    rank: int
    ended: Ended


@dataclass(frozen=True, slots=True)
class RankLost:
    rank: int
    kind: str  # as HostLoss.kind
    why: str


@dataclass(frozen=True, slots=True)
class Output:
    rank: int
    data: bytes


Event = RankEnded | RankLost | Output


@dataclass(frozen=True, slots=True)
class NotStarted:
    detail: str
    lost: tuple[RankLost, ...]


class Gang(Protocol):
    def open(self, interrupted: Callable[[], bool]) -> NotStarted | None: ...
    def poll(self, timeout_s: float) -> list[Event]: ...
    def stop(self, grace_s: float) -> None: ...
    def drain(self) -> Iterator[Output]: ...
    def lease_end_s(self, rank: int) -> float | None: ...
    def close(self) -> None: ...


class Conduct:
    def __init__(
        self,
        folder: RunFolder,
        document: RunDocument,
        order: Order,
        gang: Gang,
        clock: Clock,
        limits: Limits,
        leaving: Callable[[], StopOrder | None],
    ) -> None:
        self._folder, self._document, self._order = folder, document, order
        self._gang, self._clock, self._limits = gang, clock, limits
        self._leaving = leaving  # the supervisor itself has to go
        self._places = places(order)
        self._exits: dict[int, RankExit] = {}
        self._losses: dict[int, HostLoss] = {}
        self._over: set[int] = set()  # ranks that ended or are out of reach
        self._stop_by_s: float | None = None  # set once the gang is being stopped
        self._detail: list[str] = []

    def run(self) -> Outcome:
        """The outcome, already written."""
        self._note("ordered", slices=[each.slice for each in self._order.slices])
        outcome: Outcome | None = None
        try:
            kind = self._attempt()
            for output in self._gang.drain():
                self._copy(output)
            outcome = self._outcome(kind)
        finally:
            try:
                self._gang.close()
            finally:
                if outcome is not None:  # also if closing failed: what happened has happened, and must not be run again
                    self._folder.write_outcome(outcome)
        return outcome

    def _attempt(self) -> str:
        stop = self._stop_order()
        if stop is not None:
            self._detail.append(stop.reason)
            return "stopped"
        failure = self._gang.open(lambda: self._stop_order() is not None)
        if failure is not None:
            self._detail.append(failure.detail)
            for event in failure.lost:
                self._lose(event)
            stop = self._stop_order()
            return "not-started" if stop is None else "stopped"
        self._note("gang-up")
        self._note("started")
        self._watch()
        return self._kind()

    def _watch(self) -> None:
        while len(self._over) < len(self._places):
            for event in self._gang.poll(self._limits.poll_s):
                self._handle(event)
            self._consider_stop()
            if self._stop_by_s is not None and self._clock.monotonic() >= self._stop_by_s:
                for place in self._places:
                    if place.rank not in self._over:
                        self._lose(RankLost(place.rank, "unreachable", "it did not say that its program is over"))
        if self._stop_by_s is not None:
            self._note("stopped")

    def _handle(self, event: Event) -> None:
        match event:
            case Output():
                self._copy(event)
            case RankLost():
                self._lose(event)
            case RankEnded(rank, ended) if ended.left:
                self._exit(rank, ended)
                self._lose(RankLost(rank, "left", f"processes {list(ended.left)} could not be ended"))
            case RankEnded(rank, ended) if ended.why == "lease":
                self._lose(RankLost(rank, "unreachable", "its lease ran out, it ended its program by itself"))
            case RankEnded(rank, ended) if ended.why in ("watchdog gone", "launcher gone"):
                self._lose(RankLost(rank, "worker-died", ended.why))
            case RankEnded(rank, ended):
                self._exit(rank, ended)

    def _exit(self, rank: int, ended: Ended) -> None:
        place, before_stop = self._places[rank], self._stop_by_s is None
        at = self._clock.now()
        self._exits[rank] = RankExit(rank, place.slice.slice, place.worker, ended.code, ended.signal, at, before_stop)
        self._over.add(rank)
        self._note("rank-exit", rank=rank, code=ended.code, signal=ended.signal, before_stop=before_stop)

    def _lose(self, event: RankLost) -> None:
        place = self._places[event.rank]
        if event.kind == "draining":
            self._note("draining", rank=event.rank)
        else:
            self._over.add(event.rank)
            where = {"slice": place.slice.slice, "worker": place.worker}
            self._note("host-unreachable", rank=event.rank, kind=event.kind, why=event.why, **where)
        known = self._losses.get(event.rank)
        if known is None or known.kind == "draining":
            # A drained host that vanishes later was drained: the notice is the better evidence, and it came first.
            kind = "draining" if known is not None else event.kind
            self._losses[event.rank] = HostLoss(
                event.rank, place.slice.slice, place.slice.incarnation, place.worker, kind, self._clock.now()
            )
        if event.kind in ("refused", "left"):
            self._detail.append(f"host {place.worker} of {place.slice.slice}: {event.why}")

    def _consider_stop(self) -> None:
        """Once, on the first reason. A stop order that comes later may still shorten the grace."""
        if self._stop_by_s is None:
            self._stop_for(*self._first_reason())
        elif (order := self._stop_order()) is not None and order.grace_s == 0:
            self._stop_for(order.reason, 0.0)

    def _first_reason(self) -> tuple[str, float]:
        """("", 0) when there is none. Order matters: with a notice or an order there is time for a checkpoint."""
        order = self._stop_order()
        if order is not None:
            self._detail.append(order.reason)
            return order.reason, order.grace_s
        lost = [loss for loss in self._losses.values() if loss.kind != "draining"]
        if lost:
            return f"rank {lost[0].rank} is lost ({lost[0].kind})", self._limits.loss_grace_s
        bad = [each for each in self._exits.values() if each.code != 0]
        if bad:
            return f"rank {bad[0].rank} ended with {bad[0].code}", self._limits.loss_grace_s
        if self._losses:
            return "a host is draining", self._document.grace_s
        return "", 0.0

    def _stop_for(self, reason: str, grace_s: float) -> None:
        if not reason:
            return
        if self._stop_by_s is None:
            self._note("stopping", reason=reason, grace_s=grace_s)
        stop_by_s = self._clock.monotonic() + grace_s + self._limits.settle_s
        self._stop_by_s = stop_by_s if self._stop_by_s is None else min(self._stop_by_s, stop_by_s)
        self._gang.stop(grace_s)

    def _stop_order(self) -> StopOrder | None:
        return self._leaving() or self._folder.stop(self._order.attempt)

    def _kind(self) -> str:
        exits = self._exits.values()
        finished = len(exits) == len(self._places) and all(each.code == 0 and each.before_stop for each in exits)
        if finished and not any(loss.kind == "left" for loss in self._losses.values()):
            return "done"  # also if a host drained or died after its program had ended well
        if self._losses:
            return "hosts-lost"
        return "exits" if any(each.code != 0 and each.before_stop for each in exits) else "stopped"

    def _outcome(self, kind: str) -> Outcome:
        fence = self._fence()
        if fence is not None:
            self._note("fenced-at", until=fence.iso())
        exits = tuple(self._exits[rank] for rank in sorted(self._exits))
        losses = tuple(self._losses[rank] for rank in sorted(self._losses))
        detail = "; ".join(dict.fromkeys(self._detail))
        return Outcome(self._order.attempt, kind, exits, losses, self._clock.now(), fence, detail)

    def _fence(self) -> Instant | None:
        """When the last host that did not report its program's end must have ended it."""
        ends = [self._gang.lease_end_s(place.rank) for place in self._places]
        running = [end_s for end_s in ends if end_s is not None]
        if not running:
            return None
        return self._clock.now().plus(max(running) - self._clock.monotonic() + self._limits.margin_s)

    def _copy(self, output: Output) -> None:
        path = self._folder.log_path(self._order.attempt, output.rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(output.data)

    def _note(self, event: str, **fields: object) -> None:
        self._folder.append(self._order.attempt, self._clock.now(), event, **fields)
