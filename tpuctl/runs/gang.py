"""The hosts of one attempt as Ray actors: placed together, watched together, ended together. Facts only, no verdict.

Leases: each beat tells a host until when its program may run, as a moment of that host's own clock. It is reckoned from
the clock reading in the host's last answer, so a beat that is delayed on the way can never extend a lease beyond
`lease_s` after it was *sent*. `lease_end_s` is therefore safe also for a beat that was never answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ray
from ray._private.state import state as ray_state
from ray.exceptions import ActorUnavailableError, RayActorError, RayError
from ray.util.placement_group import remove_placement_group

from tpuctl.base.clock import Clock
from tpuctl.base.units import show_duration
from tpuctl.runs.conduct import Event, Limits, NotStarted, Output, RankEnded, RankLost
from tpuctl.runs.launcher import CHUNK_BYTES, Beat, Ended, Prepared, Refused
from tpuctl.runs.orders import Order, RunDocument
from tpuctl.runs.placement import find_nodes, launchers, reserve
from tpuctl.runs.program import Place, places

NEVER = float("-inf")


@dataclass(slots=True)
class _Host:
    """What is known of one rank's host. `*_s` are readings of the supervisor's monotonic clock."""

    place: Place
    actor: Any
    node_id: str
    host_now_s: float = 0.0  # the host's clock in its last answer …
    heard_s: float = 0.0  # … and when that answer came
    beat: Any = None  # the one beat under way
    sent_s: float = NEVER
    unavailable_s: float | None = None  # Ray called it unavailable since; cleared by an answer
    waiting: Any = None  # the answer to wait()
    offset: int = 0  # of the log
    lease_end_s: float = NEVER
    ended: bool = False
    lost: bool = False  # no calls any more
    draining: bool = False


@dataclass(frozen=True, slots=True)
class _Answer:
    value: Any
    heard_s: float  # no earlier than the host gave it


class RayGang:
    """Implements runs/conduct.py's Gang."""

    def __init__(self, document: RunDocument, order: Order, clock: Clock, limits: Limits) -> None:
        self._document, self._order, self._clock, self._limits = document, order, clock, limits
        self._hosts: list[_Host] = []
        self._group: Any = None
        self._looked_s = NEVER
        self._up_s = NEVER  # since when every rank runs: silence before that is none
        self._early: list[Event] = []  # of ranks that ran while others still started

    # Coming up.

    def open(self, interrupted: Callable[[], bool]) -> NotStarted | None:
        """Place all launchers, then start all programs. None when every rank runs."""
        wanted = places(self._order)
        nodes = find_nodes(wanted, self._clock, self._limits.find_s, interrupted)
        if isinstance(nodes, NotStarted):
            return nodes
        self._group = reserve(f"{self._document.id}-{self._order.attempt}", wanted)
        actors = launchers(self._group, wanted, self._clock)
        self._hosts = [_Host(*each) for each in zip(wanted, actors, nodes, strict=True)]
        prepared = self._ask_all(
            [host.actor.prepare.remote(self._document, self._order, host.place) for host in self._hosts],
            self._limits.prepare_s,
            interrupted,
        )
        if isinstance(prepared, NotStarted):
            return prepared
        for host, answer in zip(self._hosts, prepared, strict=True):
            assert isinstance(answer.value, Prepared)
            host.host_now_s, host.heard_s = answer.value.now_s, answer.heard_s
        return self._start(prepared[0].value.coordinator, interrupted)

    def _start(self, coordinator: Any, interrupted: Callable[[], bool]) -> NotStarted | None:
        refs = []
        for host in self._hosts:
            until_s = self._grant(host)
            refs.append(host.actor.start.remote(coordinator, until_s))
        started = self._ask_all(refs, self._limits.start_s, interrupted)
        if isinstance(started, NotStarted):
            return started
        self._up_s = self._clock.monotonic()
        for host in self._hosts:
            if host.waiting is None:
                host.waiting = host.actor.wait.remote()
        return None

    def _ask_all(self, refs: list[Any], limit_s: float, interrupted: Callable[[], bool]) -> list[_Answer] | NotStarted:
        """All answers in rank order; NotStarted with the ranks that refused, died or did not answer in time."""
        give_up_s = self._clock.monotonic() + limit_s
        pending = list(refs)
        heard_s: dict[Any, float] = {}
        while pending:
            ready, pending = ray.wait(pending, num_returns=len(pending), timeout=0.2)
            # Each for itself: a host that answered first must not have its clock taken for as late as the last one's.
            heard_s |= dict.fromkeys(ready, self._clock.monotonic())
            self._early += [*self._renew(), *self._look()]
            bad = [event for event in self._early if isinstance(event, RankLost)]
            if bad:
                return NotStarted("a host was lost while the gang came up", tuple(bad))
            if pending and interrupted():
                return NotStarted("stopped while the gang came up", ())
            if pending and self._clock.monotonic() >= give_up_s:
                silent = tuple(
                    RankLost(rank, "unreachable", f"no answer in {show_duration(limit_s)}")
                    for rank, ref in enumerate(refs)
                    if ref in pending
                )
                return NotStarted(f"not all hosts answered within {show_duration(limit_s)}", silent)
        answers: list[_Answer] = []
        lost: list[RankLost] = []
        for rank, ref in enumerate(refs):
            try:
                answer = ray.get(ref)
            except RayError as error:
                lost.append(self._lost_by(self._hosts[rank], error))
                continue
            if isinstance(answer, Refused):
                lost.append(RankLost(rank, "refused", answer.reason))
            answers.append(_Answer(answer, heard_s[ref]))
        return NotStarted("; ".join(event.why for event in lost), tuple(lost)) if lost else answers

    def _renew(self) -> list[Event]:
        """Beats for the programs that run already: the last one to start may take longer than a lease."""
        for host in self._hosts:
            self._send_beat(host)
        beats = {host.beat: host for host in self._hosts if host.beat is not None}
        if not beats:
            return []
        ready, _ = ray.wait(list(beats), num_returns=len(beats), timeout=0)
        return [event for ref in ready for event in self._answered(beats[ref], ref)]

    # Watching.

    def poll(self, timeout_s: float) -> list[Event]:
        """Renew leases that are due, then what has happened; waits at most so long for something to happen."""
        for host in self._hosts:
            self._send_beat(host)
        refs = {
            ref: host for host in self._hosts if not host.lost for ref in (host.beat, host.waiting) if ref is not None
        }
        ready: list[Any] = []
        if refs:
            ready, _ = ray.wait(list(refs), num_returns=len(refs), timeout=timeout_s, fetch_local=True)
        else:
            self._clock.sleep(timeout_s)
        events, self._early = self._early, []
        for ref in ready:
            events += self._answered(refs[ref], ref)
        events += self._look()
        events += [event for host in self._hosts for event in self._silent(host)]
        return events

    def _send_beat(self, host: _Host) -> None:
        now_s = self._clock.monotonic()
        granted = host.lease_end_s != NEVER  # by the message that starts the program
        idle = not granted or host.lost or host.ended
        if idle or host.beat is not None or now_s - host.sent_s < self._limits.beat_s:
            return
        host.beat = host.actor.beat.remote(self._grant(host), host.offset)

    def _grant(self, host: _Host) -> float:
        """The lease's end on the host's clock, for a message that is sent now."""
        now_s = self._clock.monotonic()
        host.sent_s = now_s
        host.lease_end_s = now_s + self._document.lease_s
        return host.host_now_s + (now_s - host.heard_s) + self._document.lease_s

    def _answered(self, host: _Host, ref: Any) -> Iterator[Event]:
        is_beat = ref == host.beat
        try:
            answer = ray.get(ref)
        except ActorUnavailableError as error:
            yield from self._unavailable(host, is_beat, error)
            return
        except RayError as error:
            if not host.lost:
                yield self._lost_by(host, error)
            return
        host.unavailable_s = None
        if is_beat:
            assert isinstance(answer, Beat)
            host.beat = None
            host.host_now_s, host.heard_s = answer.now_s, self._clock.monotonic()
            if len(answer.log) == CHUNK_BYTES:
                host.sent_s = NEVER  # there is more: ask at once
            if host.waiting is None and not host.ended:
                host.waiting = host.actor.wait.remote()
            yield from self._output(host, answer.log)
        else:
            assert isinstance(answer, Ended)
            host.waiting, host.ended = None, True
            yield RankEnded(host.place.rank, answer)

    def _unavailable(self, host: _Host, is_beat: bool, error: RayError) -> Iterator[Event]:
        """Once may be a blip of the network: the next beat is sent at once and decides."""
        again = is_beat and host.unavailable_s is not None
        if host.unavailable_s is None:
            host.unavailable_s = self._clock.monotonic()
        if is_beat:
            host.beat, host.sent_s = None, NEVER
        else:
            host.waiting = None
        if again and not host.lost:
            yield self._lose(host, "unreachable", _short(error))

    def _silent(self, host: _Host) -> Iterator[Event]:
        if host.lost or host.ended:
            return
        now_s = self._clock.monotonic()
        if host.unavailable_s is not None and now_s - host.unavailable_s > self._limits.blip_s:
            yield self._lose(host, "unreachable", "Ray calls its actor unavailable")
        elif now_s - max(host.heard_s, self._up_s) > self._limits.unreachable_s:
            yield self._lose(host, "unreachable", f"no answer for {show_duration(self._limits.unreachable_s)}")

    def _look(self) -> list[Event]:
        """What Ray's own table says of the gang's nodes, twice a second."""
        now_s = self._clock.monotonic()
        if now_s - self._looked_s < self._limits.look_s:
            return []
        self._looked_s = now_s
        draining = ray_state.get_draining_nodes()
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        events: list[Event] = []
        for host in self._hosts:
            if host.lost:
                continue
            if host.node_id not in alive:
                events.append(self._lose(host, "dead", "Ray declared its node dead"))
            elif host.node_id in draining and not host.draining:
                host.draining = True
                events.append(RankLost(host.place.rank, "draining", "its node drains"))
        return events

    def _lost_by(self, host: _Host, error: RayError) -> RankLost:
        if isinstance(error, ActorUnavailableError):
            return self._lose(host, "unreachable", _short(error))
        if isinstance(error, RayActorError):
            alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
            return self._lose(host, "worker-died" if host.node_id in alive else "dead", _short(error))
        return self._lose(host, "refused", _short(error))

    def _lose(self, host: _Host, kind: str, why: str) -> RankLost:
        host.lost = True
        return RankLost(host.place.rank, kind, why)

    # Ending.

    def stop(self, grace_s: float) -> None:
        """SIGTERM on all hosts that can be reached; does not wait."""
        for host in self._hosts:
            if not host.lost and not host.ended:
                host.actor.stop.remote(grace_s)

    def drain(self) -> Iterator[Output]:
        """What the programs printed last, from every host that still answers."""
        yield from (event for event in self._early if isinstance(event, Output))
        reachable = [host for host in self._hosts if not host.lost]
        give_up_s = self._clock.monotonic() + self._limits.drain_s
        while reachable:
            refs = [host.actor.read_log.remote(host.offset) for host in reachable]
            ray.wait(refs, num_returns=len(refs), timeout=max(0.0, give_up_s - self._clock.monotonic()))
            more = []
            for host, ref in zip(reachable, refs, strict=True):
                try:
                    data = ray.get(ref, timeout=0)
                except RayError:
                    continue  # lost meanwhile, or too slow: its log ends where it was copied to
                yield from self._output(host, data)
                if data:
                    more.append(host)
            reachable = more if self._clock.monotonic() < give_up_s else []

    def _output(self, host: _Host, data: bytes) -> Iterator[Output]:
        if data:
            host.offset += len(data)
            yield Output(host.place.rank, data)

    def lease_end_s(self, rank: int) -> float | None:
        """Until when, on the supervisor's clock, that rank's program may live. None: its end was reported, or it never
        started."""
        if rank >= len(self._hosts):
            return None
        host = self._hosts[rank]
        return None if host.ended or host.lease_end_s == NEVER else host.lease_end_s

    def close(self) -> None:
        """Give the hosts back. Whatever still runs there is ended by its watchdog: its lifeline closes."""
        for host in self._hosts:
            ray.kill(host.actor)
        if self._group is not None:
            remove_placement_group(self._group)


def _short(error: RayError) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1].strip()[:200] if lines else type(error).__name__
