"""A pass killed anywhere: at each commit, and at three points of each call. Then passes until two in a row do nothing.

The history is scripted: two slices requested, one of them lost, one late. The crash points are enumerated by counting
them in an undisturbed run; each is then met by a run of its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuctl.base.ids import QrName, Zone
from tpuctl.cloud.model import Listing, Node, QrRequest, QueuedResource, TpuApi
from tpuctl.emulator.scenario import CapacityRule, CapacityStep, Latencies, Settings
from tpuctl.store.records import Phase
from tpuctl.testing.builders import ZONE, a_cluster_spec, a_pool
from tpuctl.testing.fleet_world import FleetWorld


class KilledError(BaseException):
    """SIGKILL in process: nothing catches it, what was not committed is lost."""


class Killer:
    """Counts crash points, and kills at the n-th."""

    def __init__(self, at: int | None = None) -> None:
        self._at = at
        self.count = 0
        self.killed = ""

    def point(self, name: str) -> None:
        self.count += 1
        if self.count == self._at:
            self.killed = name
            raise KilledError(name)


class KillingTpu:
    """Three points a call: before it is sent, after its effect before its answer, after its answer.

    The middle one is a call that took effect and whose caller died before anything came back, so nothing between the
    effect and the caller may run: the result is dropped here.
    """

    def __init__(self, tpu: TpuApi, killer: Killer) -> None:
        self._tpu, self._killer = tpu, killer

    def list_queued_resources(self, zone: Zone) -> Listing[QueuedResource]:
        self._killer.point("list before")
        answer = self._tpu.list_queued_resources(zone)
        self._killer.point("list answered")
        return answer

    def list_nodes(self, zone: Zone) -> Listing[Node]:
        self._killer.point("nodes before")
        answer = self._tpu.list_nodes(zone)
        self._killer.point("nodes answered")
        return answer

    def get_queued_resource(self, zone: Zone, name: QrName) -> QueuedResource:
        self._killer.point("get before")
        answer = self._tpu.get_queued_resource(zone, name)
        self._killer.point("get answered")
        return answer

    def get_node(self, zone: Zone, node_id: str) -> Node:
        return self._tpu.get_node(zone, node_id)

    def create_queued_resource(self, request: QrRequest, request_id: str) -> None:
        self._killer.point("create before")
        self._tpu.create_queued_resource(request, request_id)
        self._killer.point("create took effect")
        self._killer.point("create answered")

    def delete_queued_resource(self, zone: Zone, name: QrName, request_id: str) -> None:
        self._killer.point("delete before")
        self._tpu.delete_queued_resource(zone, name, request_id)
        self._killer.point("delete took effect")
        self._killer.point("delete answered")


def late(tmp_path: Path) -> FleetWorld:
    """Room for one slice at first, for both after four minutes."""
    steps = (CapacityStep(at=0, chips=8), CapacityStep(at=240, chips=16))
    settings = Settings(
        latencies=Latencies(accepted=0, waiting=10, provisioning=30, deleting=90),
        capacity=(CapacityRule(zone=ZONE, type="v4", over_time=steps),),
    )
    return FleetWorld(tmp_path, a_cluster_spec(a_pool(slices=2)), settings)


def script(world: FleetWorld, killer: Killer) -> None:
    """Seven passes, one a minute; a killed one is followed by the next as if nothing had happened."""
    world.wrap_tpu = lambda tpu: KillingTpu(tpu, killer)
    world.store.on_commit = killer.point
    lost = False
    for _ in range(7):
        world.emulated.pass_time(60)
        ready = [name for name, phase in world.phases().items() if phase is Phase.READY]
        if ready and not lost:
            world.preempt(ready[0])
            lost = True
        try:
            world.run()
        except KilledError:
            world.restart()
    assert lost
    world.wrap_tpu = lambda tpu: tpu
    world.store.on_commit = None


# Counted by test_the_enumeration_reaches_every_crash_point.
POINTS = 72


def test_the_enumeration_reaches_every_crash_point(tmp_path: Path) -> None:
    killer = Killer()
    world = late(tmp_path)
    script(world, killer)
    assert killer.count == POINTS
    assert POINTS >= 60
    world.store.close()


@pytest.mark.parametrize("point", range(1, POINTS + 1))
def test_a_pass_killed_anywhere_ends_in_exactly_the_wanted_slices(tmp_path: Path, point: int) -> None:
    killer = Killer(point)
    world = late(tmp_path)
    script(world, killer)
    assert killer.killed

    world.settle()

    assert list(world.states().values()) == ["ACTIVE", "ACTIVE"], killer.killed
    assert {(row.slot, row.phase) for row in world.rows()} == {(0, Phase.READY), (1, Phase.READY)}
    world.check_safety()
    world.store.close()
