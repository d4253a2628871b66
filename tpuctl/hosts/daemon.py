"""The host daemon: keeps this host in the head's Ray for as long as the slice lives.

    clean up -> probe -> find the head -> join -> (Ray ends, the head moved) -> clean up …
                                               -> (notice, SIGTERM) -> drain, and never join again

It ends only by SIGTERM. After the notice it stays, so that its unit does not start it again.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType

from tpuctl.base.clock import Clock
from tpuctl.base.errors import RetryLaterError, StaleError
from tpuctl.base.files import write_json_atomic
from tpuctl.hosts.chips import ChipPlaces
from tpuctl.hosts.cleanup import clean_up, end_ray, prune_sessions, ray_mark
from tpuctl.hosts.config import VmConfig, VmPlaces
from tpuctl.hosts.follow import HeadFinder, HeadView
from tpuctl.hosts.identity import HostIdentity
from tpuctl.hosts.metadata import Metadata, MetadataError
from tpuctl.hosts.notice import NoticeWatch
from tpuctl.hosts.ports import NoPortsError, PortClaim, claim_block
from tpuctl.hosts.probe import Versions, why_other_versions, why_unusable
from tpuctl.hosts.ray_command import DRAIN_S, host_arguments, host_environment, ray_environment
from tpuctl.hosts.ray_node import RayNode, pause_after
from tpuctl.hosts.reports import Reports
from tpuctl.hosts.say import Say
from tpuctl.hosts.wake import Wake

HEAD_CHECK_S = 3.0
STEP_S = 1.0
BLOCKED_S = 3.0
NOTICE_RETRY_S = 0.5
JOIN_LIMIT_S = 90.0  # `ray start` gives up by itself within a minute, but not when it hangs


@dataclass(frozen=True)
class HostWorld:
    """What the daemon is given."""

    config: VmConfig
    identity: HostIdentity
    places: VmPlaces
    chips: ChipPlaces
    metadata: Metadata
    finder: HeadFinder
    clock: Clock
    environment: Mapping[str, str]
    ray_command: tuple[str, ...]
    versions: Versions
    cpus: int


class HostDaemon:
    def __init__(self, world: HostWorld) -> None:
        self._world = world
        self._say = Say("tpuctl-host", world.clock)
        self._wake = Wake()
        self._stopping = False
        self._noticed = threading.Event()
        self._node: RayNode | None = None
        self._claim: PortClaim | None = None  # held for as long as the node may use its ports
        self._failures = 0
        self._reports = self._new_reports()
        self._notice_reports = self._new_reports()

    def run(self) -> int:
        """Until `stop`. Returns the exit status."""
        self._reports.tell("booting")
        NoticeWatch(self._world.metadata, self._world.clock, self._on_notice).start()
        while not self._leaving:
            if self._is_blocked():
                self._wake.wait(BLOCKED_S)
                continue
            head = self._await_head()
            # Waiting may have taken long, and what blocks a host may have come meanwhile.
            if head is not None and not self._is_blocked():
                self._live_with(head)
        return self._leave()

    def stop(self) -> None:
        """From a signal handler: leave in peace."""
        self._stopping = True
        self._wake.call()

    @property
    def _leaving(self) -> bool:
        return self._stopping or self._noticed.is_set()

    def _new_reports(self) -> Reports:
        world = self._world
        return Reports(world.identity, world.metadata, lambda: world.places.token.read_text().strip())

    def _on_notice(self) -> None:
        """On the watch's thread: Ray learns it first, so that programs get their SIGTERM; then the agent."""
        self._noticed.set()
        if (node := self._node) is not None:
            node.drain()
        self._wake.call()
        self._say("notice of preemption: draining")
        while not self._notice_reports.tell("notice", "the instance is being preempted"):
            self._world.clock.sleep(NOTICE_RETRY_S)

    def _is_blocked(self) -> bool:
        world = self._world
        cleaned = clean_up(world.places, world.chips, world.clock)
        if cleaned.ended:
            self._say(f"ended {cleaned.ended} processes of a former life")
        why = "; ".join(cleaned.blockers) or why_unusable(world.identity.config, world.chips)
        if why is not None:
            self._refuse(why)
        return why is not None

    def _refuse(self, why: str) -> None:
        self._say(f"not joining: {why}")
        self._reports.tell("refused", why)

    def _await_head(self) -> HeadView | None:
        """A head whose Ray this host may join; None when the daemon is to leave."""
        said = ""
        while not self._leaving:
            try:
                head = self._world.finder.find()
            except (RetryLaterError, StaleError) as error:
                if str(error) != said:
                    said = str(error)
                    self._say(f"waiting for the head: {said}")
                self._wake.wait(getattr(error, "after_s", BLOCKED_S))
                continue
            self._reports.agent = self._notice_reports.agent = head.agent
            if (why := why_other_versions(self._world.versions, head.versions)) is None:
                return head
            self._refuse(why)
            self._wake.wait(BLOCKED_S)
        return None

    def _live_with(self, head: HeadView) -> None:
        """Join, and stay until Ray ends, the head has moved, or the daemon is to leave (then the node stays)."""
        try:
            claim = claim_block(self._world.config.ray_ports)
        except NoPortsError as error:
            self._refuse(str(error))
            self._wake.wait(error.after_s)
            return
        write_host_file(self._world, head)
        prune_sessions(self._world.places)
        self._reports.tell("joining")
        self._claim = claim
        self._node = self._start_node(head, claim)
        self._say(f"joining Ray at {head.ray_address}, epoch {head.epoch}, ports from {claim.ports.first}")
        self._watch_node(self._node, head)
        if not self._leaving:
            self._end_node()

    def _start_node(self, head: HeadView, claim: PortClaim) -> RayNode:
        world = self._world
        arguments = host_arguments(
            world.config, world.identity, head.ray_address, claim.ports, world.places, world.cpus
        )
        base = ray_environment(world.environment, world.places, ray_mark(world.places))
        environment = host_environment(base, world.config.detection)
        return RayNode((*world.ray_command, *arguments), environment, world.places.ray_log, world.clock)

    def _watch_node(self, node: RayNode, head: HeadView) -> None:
        checked_s = self._world.clock.monotonic()
        while not self._leaving:
            if (end := node.ended()) is not None:
                self._failures = 0 if end.was_up else self._failures + 1
                self._say(f"Ray ended with {end.status} after {end.lived_s:.0f}s {end.last_words}".rstrip())
                self._reports.tell("left" if end.was_up else "refused", end.last_words or f"Ray ended ({end.status})")
                self._wake.wait(pause_after(self._failures))
                return
            if node.is_up():
                self._reports.tell("joined")
            elif node.lived_s > JOIN_LIMIT_S:
                self._failures += 1
                self._refuse(f"Ray did not come up within {JOIN_LIMIT_S:g}s: starting it anew")
                return
            if self._world.clock.monotonic() - checked_s >= HEAD_CHECK_S:
                checked_s = self._world.clock.monotonic()
                if self._has_moved(head):
                    self._say("the head's Ray is another one now: joining that")
                    return
            self._wake.wait(STEP_S, node)

    def _has_moved(self, head: HeadView) -> bool:
        """Only a known other Ray counts; a head that does not answer may be back in a moment."""
        try:
            return self._world.finder.find() != head
        except (RetryLaterError, StaleError):
            return False

    def _end_node(self) -> None:
        if self._node is not None:
            self._node.close()
            self._node = None
            end_ray(self._world.places, self._world.clock)
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    def _leave(self) -> int:
        if self._stopping and not self._noticed.is_set() and self._is_preempted():
            # The soft-off stops the unit before the watch's answer came through.
            self._noticed.wait(timeout=STEP_S)
        if self._node is not None:
            self._say("draining")
            self._node.drain()
            self._await_drained(self._node)
            self._end_node()
        if not self._noticed.is_set():
            self._reports.tell("left", "the host's daemon was stopped")
        while not self._stopping:
            self._wake.wait(3600.0)
        return 0

    def _await_drained(self, node: RayNode) -> None:
        deadline = self._world.clock.monotonic() + DRAIN_S + STEP_S
        while node.ended() is None and (left_s := deadline - self._world.clock.monotonic()) > 0:
            self._wake.wait(left_s, node)

    def _is_preempted(self) -> bool:
        try:
            return self._world.metadata.is_preempted()
        except MetadataError:
            return False


def write_host_file(world: HostWorld, head: HeadView) -> None:
    """What the launcher needs, before Ray can start one here."""
    host = world.identity.config
    write_json_atomic(
        world.places.host,
        {
            "incarnation": host.incarnation,
            "slice": host.slice,
            "worker": world.identity.worker,
            "boot_id": world.identity.boot_id,
            "epoch": head.epoch,
            "address": world.identity.address,
            "agent": head.agent,
            "chips_per_host": host.chips_per_host,
            "pool": host.pool,
            "zone": host.zone,
            "accelerator": host.accelerator,
        },
    )


def install_signals(daemon: HostDaemon) -> None:
    def on_signal(_: int, __: FrameType | None) -> None:
        daemon.stop()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
