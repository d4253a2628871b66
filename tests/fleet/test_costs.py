"""What a pass costs: calls to the cloud and commits of the store. Counts, never times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuctl.base.ids import Zone
from tpuctl.emulator.calls import CallRecord
from tpuctl.emulator.scenario import CapacityRule, Latencies, Settings
from tpuctl.store.records import Phase
from tpuctl.testing.builders import a_cluster_spec, a_pool
from tpuctl.testing.fleet_world import FleetWorld

QUICK = Latencies(accepted=0, waiting=1, provisioning=1, deleting=30)


def calls_of(world: FleetWorld, passes: int = 1) -> list[CallRecord]:
    """What the cloud was asked in so many passes, a minute apart."""
    before = len(world.emulated.cloud.calls)
    world.passes(passes)
    return list(world.emulated.cloud.calls)[before:]


def commits_of(world: FleetWorld) -> int:
    """Commits that changed something in one pass, a minute later."""
    seen: list[str] = []
    world.store.on_commit = seen.append
    world.passes(1)
    world.store.on_commit = None
    return seen.count("after")


def test_a_pass_at_rest_writes_nothing_to_the_cloud_and_commits_once(world: FleetWorld) -> None:
    world.settle()

    assert commits_of(world) == 1
    assert [call.method for call in calls_of(world)] == ["GET", "GET"]


def test_a_pass_of_which_only_the_clock_stepped_moves_the_times_once(world: FleetWorld) -> None:
    world.settle()
    before = world.row().since

    world.clock.step_wall(3600.0)
    assert commits_of(world) == 2
    assert commits_of(world) == 1

    assert world.row().since == before.plus(3600.0)


def eight_zones(directory: Path, slices: int, chips: tuple[int, ...]) -> FleetWorld:
    """Pools of `slices` v4-16 (8 chips each), one a zone; `chips`: what each zone has."""
    names = [Zone(f"us-test{number}-a") for number in range(8)]
    rules = tuple(CapacityRule(zone=zone, type="v4", chips=count) for zone, count in zip(names, chips, strict=True))
    pools = [a_pool(f"p{index}", zones=(zone,), slices=slices) for index, zone in enumerate(names)]
    settings = Settings(zones=dict.fromkeys(names, ("v4",)), latencies=QUICK, capacity=rules)
    world = FleetWorld(directory, a_cluster_spec(*pools), settings)
    world.creates_per_minute = None
    return world


@pytest.mark.slow
def test_200_slices_in_8_zones_of_which_140_wait_take_two_lists_a_zone(tmp_path: Path) -> None:
    world = eight_zones(tmp_path, 25, (64, 56) * 4)
    world.settle()
    phases = list(world.phases().values())
    assert (phases.count(Phase.READY), phases.count(Phase.WAITING)) == (60, 140)

    calls = calls_of(world)

    assert len(calls) == 16
    assert {call.method for call in calls} == {"GET"}
    assert commits_of(world) == 1
    world.store.close()


@pytest.mark.slow
def test_54_slices_lost_at_once_are_deleted_and_asked_for_anew_in_one_pass(tmp_path: Path) -> None:
    world = eight_zones(
        tmp_path, 7, (112,) * 8
    )  # room for the lost, which are not gone at once, and for their successors
    world.settle()
    world.passes(1, every_s=3600.0)  # what dies young makes its zone suspect, and that is another matter
    lost = sorted(world.phases())[:54]
    for name in lost:
        world.preempt(name)

    calls = calls_of(world)

    methods = [call.method for call in calls if call.effect]
    assert (methods.count("DELETE"), methods.count("POST")) == (54, 54)
    world.check_safety()
    world.store.close()
