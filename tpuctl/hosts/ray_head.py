"""The keeper of the Ray head: one `ray start --head --block`, published in ray.json once it answers.

When Ray ends, the keeper ends, and its unit starts both again: a restarted head has forgotten all nodes and jobs, and
with a new `started_at` in ray.json hosts and agent know that.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType

from tpuctl.base.clock import Clock, SystemClock
from tpuctl.base.errors import RetryLaterError, TpuctlError
from tpuctl.base.files import write_json_atomic
from tpuctl.base.web import NoAnswerError, call
from tpuctl.hosts.cleanup import end_ray, prune_sessions, ray_mark
from tpuctl.hosts.config import VmConfig, VmPlaces
from tpuctl.hosts.host_main import ray_command
from tpuctl.hosts.lookup import CloudLookup, cloud_lookup
from tpuctl.hosts.metadata import Metadata
from tpuctl.hosts.ports import RayPorts, claim_block
from tpuctl.hosts.probe import Versions, own_versions
from tpuctl.hosts.ray_command import head_arguments, head_environment, ray_environment
from tpuctl.hosts.ray_node import RayEnd, RayNode
from tpuctl.hosts.say import Say
from tpuctl.hosts.wake import Wake

START_LIMIT_S = 120.0
_STEP_S = 0.25
_TOKEN_TRIES = 30


class RayHeadError(TpuctlError):
    """Ray's head does not come up. Its unit tries again."""


@dataclass(frozen=True)
class HeadWorld:
    """What the keeper is given."""

    config: VmConfig
    places: VmPlaces
    address: str
    cloud: CloudLookup
    clock: Clock
    environment: Mapping[str, str]
    ray_command: tuple[str, ...]
    versions: Versions


class HeadKeeper:
    def __init__(self, world: HeadWorld) -> None:
        self._world = world
        self._say = Say("tpuctl-ray", world.clock)
        self._wake = Wake()
        self._stopping = False

    def stop(self) -> None:
        """From a signal handler."""
        self._stopping = True
        self._wake.call()

    def run(self) -> int:
        """Until Ray ends (1) or `stop` (0). Raises RayHeadError when it does not come up."""
        world = self._world
        world.places.ray_json.unlink(missing_ok=True)
        end_ray(world.places, world.clock)
        prune_sessions(world.places)
        # Ray would call itself "already running" while any host on this kernel names the same address.
        (world.places.ray / "ray_current_cluster").unlink(missing_ok=True)
        self._read_token()
        claim = claim_block(world.config.ray_ports)
        started = world.clock.now()
        node = self._start(claim.ports)
        try:
            if self._await_answer(node, claim.ports):
                self._publish(claim.ports, started.iso())
                self._say(f"Ray is up at {world.address}:{claim.ports.gcs}")
            end = self._await_end(node)
        finally:
            world.places.ray_json.unlink(missing_ok=True)
            node.close()
            end_ray(world.places, world.clock)
        self._say("stopped" if end is None else f"Ray ended with {end.status} after {end.lived_s:.0f}s")
        return 0 if end is None else 1

    def _read_token(self) -> None:
        """Read at every start, so that a rotated secret takes effect."""
        for left in reversed(range(_TOKEN_TRIES)):
            try:
                return self._world.cloud.read_token()
            except RetryLaterError as error:
                if left == 0 or self._stopping:
                    raise
                self._say(f"waiting for the secret: {error}")
                self._wake.wait(error.after_s)
        return None

    def _start(self, ports: RayPorts) -> RayNode:
        world = self._world
        base = ray_environment(world.environment, world.places, ray_mark(world.places))
        argv = (*world.ray_command, *head_arguments(world.address, ports, world.places))
        environment = head_environment(base, world.config.detection)
        return RayNode(argv, environment, world.places.ray_log, world.clock)

    def _await_answer(self, node: RayNode, ports: RayPorts) -> bool:
        """True when GCS and dashboard answer; False when the keeper is to stop. Raises RayHeadError."""
        world = self._world
        token = world.places.token.read_text().strip()
        url = f"{dashboard_url(world.address, ports)}/api/gcs_healthz"
        while not self._stopping:
            if (end := node.ended()) is not None:
                raise RayHeadError(f"Ray's head ended with {end.status} before it was up: {end.last_words}")
            if node.lived_s > START_LIMIT_S:
                raise RayHeadError(f"Ray's head does not answer at {url} after {START_LIMIT_S:g}s")
            try:
                if call("GET", url, token=token, timeout_s=2.0).status == 200:
                    return True
            except NoAnswerError:
                pass  # not up yet: what was started decides, by its end or by the limit
            self._wake.wait(_STEP_S, node)
        return False

    def _publish(self, ports: RayPorts, started_at: str) -> None:
        world = self._world
        write_json_atomic(
            world.places.ray_json,
            {
                "address": f"{world.address}:{ports.gcs}",
                "dashboard": dashboard_url(world.address, ports),
                "version": world.versions.ray,
                "python": world.versions.python,
                "started_at": started_at,
            },
        )

    def _await_end(self, node: RayNode) -> RayEnd | None:
        while not self._stopping:
            if (end := node.ended()) is not None:
                return end
            self._wake.wait(3600.0, node)
        return None


def dashboard_url(address: str, ports: RayPorts) -> str:
    return f"http://{address}:{ports.dashboard}"


def main() -> int:
    places = VmPlaces.from_environment(os.environ)
    keeper = HeadKeeper(
        HeadWorld(
            config=places.read_config(),
            places=places,
            address=Metadata.from_environment(os.environ).own_address(),
            cloud=cloud_lookup(),
            clock=SystemClock(),
            environment=dict(os.environ),
            ray_command=ray_command(),
            versions=own_versions(),
        )
    )

    def on_signal(_: int, __: FrameType | None) -> None:
        keeper.stop()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return keeper.run()
