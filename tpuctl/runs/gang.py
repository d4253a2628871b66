"""The hosts of one attempt as Ray actors: placed together, watched together, ended together. Facts only, no verdict.

One STRICT_SPREAD placement group whose bundles are pinned by our labels `tpuctl/incarnation` and `tpuctl/worker`: it is
atomic, rank order is bundle order, and a host that rejoined under another incarnation can never be taken for the old
one. Ray's own slice reservation does neither.

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
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from tpuctl.base.clock import Clock
from tpuctl.base.units import show_duration
from tpuctl.runs.conduct import Event, Limits, NotStarted, Output, RankEnded, RankLost
from tpuctl.runs.launcher import CHUNK_BYTES, Beat, Ended, Launcher, Prepared, Refused
from tpuctl.runs.orders import Order, RunDocument
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


class RayGang:
    """Implements runs/conduct.py's Gang."""

    def __init__(self, document: RunDocument, order: Order, clock: Clock, limits: Limits) -> None:
        self._document, self._order, self._clock, self._limits = document, order, clock, limits
        self._hosts: list[_Host] = []
        self._group: Any = None
        self._looked_s = NEVER

    # Coming up.

    def open(self, interrupted: Callable[[], bool]) -> NotStarted | None:
        """Place all launchers, then start all programs. None when every rank runs."""
        wanted = places(self._order)
        nodes = self._find_nodes(wanted, interrupted)
        if isinstance(nodes, NotStarted):
            return nodes
        self._place(wanted, nodes)
        prepared = self._ask_all(
            [host.actor.prepare.remote(self._document, self._order, host.place) for host in self._hosts],
            self._limits.prepare_s,
            interrupted,
        )
        if isinstance(prepared, NotStarted):
            return prepared
        heard_s = self._clock.monotonic()
        for host, answer in zip(self._hosts, prepared, strict=True):
            assert isinstance(answer, Prepared)
            host.host_now_s, host.heard_s = answer.now_s, heard_s
        return self._start(prepared[0].coordinator, interrupted)

    def _find_nodes(self, wanted: tuple[Place, ...], interrupted: Callable[[], bool]) -> list[str] | NotStarted:
        """Ray's node of each rank. A worker that Ray lists twice (rejoined, its ghost not yet dead) is waited for."""
        give_up_s = self._clock.monotonic() + self._limits.find_s
        while True:
            by_place: dict[tuple[str, str], list[str]] = {}
            draining = ray_state.get_draining_nodes()
            for node in ray.nodes():
                labels = node["Labels"]
                if node["Alive"] and node["NodeID"] not in draining:
                    key = (labels.get("tpuctl/incarnation", ""), labels.get("tpuctl/worker", ""))
                    by_place.setdefault(key, []).append(node["NodeID"])
            found = [by_place.get((place.slice.incarnation, str(place.worker)), []) for place in wanted]
            if all(len(nodes) == 1 for nodes in found):
                return [nodes[0] for nodes in found]
            if interrupted() or self._clock.monotonic() >= give_up_s:
                missing = [(place, nodes) for place, nodes in zip(wanted, found, strict=True) if len(nodes) != 1]
                lost = tuple(RankLost(place.rank, "dead", f"Ray has {len(nodes)} of it") for place, nodes in missing)
                return NotStarted("not all hosts are in Ray", lost)
            self._clock.sleep(0.1)

    def _place(self, wanted: tuple[Place, ...], nodes: list[str]) -> None:
        self._group = placement_group(
            [{"TPU": place.slice.chips_per_host} for place in wanted],
            strategy="STRICT_SPREAD",
            name=f"{self._document.id}-{self._order.attempt}",
            bundle_label_selector=[
                {"tpuctl/incarnation": place.slice.incarnation, "tpuctl/worker": str(place.worker)} for place in wanted
            ],
        )
        # max_concurrency: `wait` blocks one thread for the whole attempt, beats and stops need others.
        actor = ray.remote(max_restarts=0, max_task_retries=0, max_concurrency=6, num_cpus=0)(Launcher)
        for place, node_id in zip(wanted, nodes, strict=True):
            strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=place.rank)
            options = actor.options(resources={"TPU": place.slice.chips_per_host}, scheduling_strategy=strategy)
            self._hosts.append(_Host(place, options.remote(self._clock), node_id))

    def _start(self, coordinator: Any, interrupted: Callable[[], bool]) -> NotStarted | None:
        refs = []
        for host in self._hosts:
            until_s = self._grant(host)
            refs.append(host.actor.start.remote(coordinator, until_s))
        started = self._ask_all(refs, self._limits.start_s, interrupted)
        if isinstance(started, NotStarted):
            return started
        for host in self._hosts:
            host.waiting = host.actor.wait.remote()
        return None

    def _ask_all(self, refs: list[Any], limit_s: float, interrupted: Callable[[], bool]) -> list[Any] | NotStarted:
        """All answers in rank order; NotStarted with the ranks that refused, died or did not answer in time."""
        give_up_s = self._clock.monotonic() + limit_s
        pending = list(refs)
        while pending:
            _, pending = ray.wait(pending, num_returns=len(pending), timeout=0.2)
            bad = [event for event in self._look() if isinstance(event, RankLost)]
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
        answers: list[Any] = []
        lost: list[RankLost] = []
        for rank, ref in enumerate(refs):
            try:
                answer = ray.get(ref)
            except RayError as error:
                lost.append(self._lost_by(self._hosts[rank], error))
                continue
            if isinstance(answer, Refused):
                lost.append(RankLost(rank, "refused", answer.reason))
            answers.append(answer)
        return NotStarted("; ".join(event.why for event in lost), tuple(lost)) if lost else answers

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
        events: list[Event] = []
        for ref in ready:
            events += self._answered(refs[ref], ref)
        events += self._look()
        events += [event for host in self._hosts for event in self._silent(host)]
        return events

    def _send_beat(self, host: _Host) -> None:
        now_s = self._clock.monotonic()
        if host.lost or host.ended or host.beat is not None or now_s - host.sent_s < self._limits.beat_s:
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
            if host.waiting is None:
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
        elif now_s - host.heard_s > self._limits.unreachable_s:
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
