"""A pass killed anywhere: at each commit, and at three points of each call. Then passes until two in a row do nothing.

The histories are scripted, a pass a minute; something happens before some of them. The crash points are enumerated by
counting them in an undisturbed run; each is then met by a run of its own, in which the killed pass is followed by the
next as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tpuctl.base.ids import Epoch, Zone
from tpuctl.emulator.scenario import CapacityRule, CapacityStep, Latencies, Settings
from tpuctl.spec.pool import DeadlineSpec
from tpuctl.store.records import Phase
from tpuctl.testing.builders import ZONE, a_cluster_spec, a_pool
from tpuctl.testing.fleet_world import FleetWorld
from tpuctl.testing.killing import Killer

OTHER = Zone("us-east1-d")
LATENCIES = Latencies(accepted=0, waiting=10, provisioning=30, deleting=90)


@dataclass(frozen=True)
class History:
    """`happens` is called before each pass with its number, from 0; what it yields came to be and is asserted."""

    begin: Callable[[Path], FleetWorld]
    happens: Callable[[FleetWorld], Iterator[None]]
    points: int  # counted by test_the_enumeration_reaches_every_crash_point
    ends_in: dict[str, Zone]  # by slice: where it is READY at the end


def late(tmp_path: Path) -> FleetWorld:
    """Room for one slice at first, for both after four minutes."""
    steps = (CapacityStep(at=0, chips=8), CapacityStep(at=240, chips=16))
    settings = Settings(latencies=LATENCIES, capacity=(CapacityRule(zone=ZONE, type="v4", over_time=steps),))
    return FleetWorld(tmp_path, a_cluster_spec(a_pool(slices=2)), settings)


def one_is_lost(world: FleetWorld) -> Iterator[None]:
    while not (ready := ready_names(world)):
        yield
    world.preempt(ready[0])
    for _ in range(6):
        yield


def two_zones(tmp_path: Path) -> FleetWorld:
    """Pool a finds no room in its first zone, and gives up after two minutes; pool b is refused, and asks again."""
    settings = Settings(
        zones={ZONE: ("v4",), OTHER: ("v4",)}, latencies=LATENCIES, capacity=(CapacityRule(zone=ZONE, chips=0),)
    )
    first = a_pool("a", zones=(ZONE, OTHER), deadlines=DeadlineSpec(queue_s=120.0))
    world = FleetWorld(tmp_path, a_cluster_spec(first, a_pool("b", zones=(OTHER,))), settings)
    world.emulated.plant("error-before", method="POST", path=f"{OTHER}/", error="no-capacity", times=1)
    return world


def one_moves_one_dies(world: FleetWorld) -> Iterator[None]:
    while len(ready := ready_names(world)) < 2:
        yield
    world.hosts.kill(next(name for name in ready if "-b-" in name), 0)
    for _ in range(4):
        yield


def three_edits(tmp_path: Path) -> FleetWorld:
    settings = Settings(latencies=LATENCIES)
    return FleetWorld(tmp_path, a_cluster_spec(a_pool(slices=2), grant_chips=24), settings)


def edited_and_rebuilt(world: FleetWorld) -> Iterator[None]:
    """One slice fewer, then the head with its records is lost, then another slice and another pool."""
    while len(ready_names(world)) < 2:
        yield
    world.want(a_cluster_spec(a_pool(slices=1), grant_chips=24))
    yield
    world.epoch = Epoch("t6m9gb")
    world.lose_store()
    yield
    world.want(a_cluster_spec(a_pool(slices=2), a_pool("b"), grant_chips=24))
    yield
    yield


HISTORIES = {
    "late": History(late, one_is_lost, 78, {"v4-0": ZONE, "v4-1": ZONE}),
    "two zones": History(two_zones, one_moves_one_dies, 187, {"a-0": OTHER, "b-0": OTHER}),
    "edits": History(three_edits, edited_and_rebuilt, 75, {"v4-0": ZONE, "v4-1": ZONE, "b-0": ZONE}),
}


def slice_of(name: str) -> str:
    return name.removeprefix("lab-").rsplit("-", 2)[0]


def ready_names(world: FleetWorld) -> list[str]:
    return [name for name, phase in sorted(world.phases().items()) if phase is Phase.READY]


def play(history: History, directory: Path, killer: Killer) -> FleetWorld:
    world = history.begin(directory)
    for number, _ in enumerate(history.happens(world)):
        assert number < 30, "the history does not come to its end"
        world.emulated.pass_time(60)
        world.run_until_killed(killer)
    return world


@pytest.mark.parametrize("name", HISTORIES)
def test_the_enumeration_reaches_every_crash_point(tmp_path: Path, name: str) -> None:
    killer = Killer()
    play(HISTORIES[name], tmp_path, killer).store.close()
    assert killer.count == HISTORIES[name].points


@pytest.mark.parametrize("point", range(1, HISTORIES["late"].points + 1))
def test_a_pass_killed_anywhere_ends_in_exactly_the_wanted_slices(tmp_path: Path, point: int) -> None:
    kill(HISTORIES["late"], tmp_path, point)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "point"),
    [(name, point) for name in ("two zones", "edits") for point in range(1, HISTORIES[name].points + 1)],
)
def test_a_pass_killed_anywhere_in_a_longer_history_ends_so_too(tmp_path: Path, name: str, point: int) -> None:
    kill(HISTORIES[name], tmp_path, point)


def kill(history: History, directory: Path, point: int) -> None:
    killer = Killer(point)
    world = play(history, directory, killer)
    assert killer.killed

    world.settle()

    assert {slice_of(row.name): row.zone for row in world.rows() if row.phase is Phase.READY} == history.ends_in
    assert len(world.rows()) == len(world.states()) == len(history.ends_in), killer.killed
    assert set(world.states().values()) == {"ACTIVE"}
    world.check_safety()
    world.store.close()
