"""What a refused create does to the records and the plan (A13 to A16), over the emulated cloud and virtual time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tpuctl.base.ids import QrName, Zone
from tpuctl.cloud.effects import OF, TABLE, Scope
from tpuctl.cloud.model import QrRequest, TpuApi
from tpuctl.emulator.scenario import CapacityRule, Latencies, QuotaRule, Settings
from tpuctl.fleet.pace import KEY, Pace
from tpuctl.store.database import Store
from tpuctl.store.records import ENDLESS_S, Phase
from tpuctl.testing.builders import EPOCH, ZONE, a_cluster_spec, a_pool
from tpuctl.testing.clock import FakeClock
from tpuctl.testing.fleet_world import FleetWorld

OTHER, THIRD = Zone("us-east1-d"), Zone("us-east5-b")
QUICK = Latencies(accepted=0)

# kind -> (error that the emulator can plant, its text instead of the usual one)
PLANTED = {
    "quota-zero": ("quota", "Quota limit 'TPUV4sPreemptible' has been exceeded. Limit: 0 in region us-central2."),
    "quota-full": ("quota", "Quota limit 'TPUV4sPreemptible' has been exceeded. Limit: 64 in zone us-central2-b."),
    "no-capacity": ("no-capacity", ""),
    "rate-limited": ("rate-limit", ""),
    "permission": (
        "permission",
        "Permission 'tpu.queuedResources.create' denied on 'projects/p' (or it may not exist).",
    ),
    "location-policy": ("permission", f"Permission denied on 'locations/{ZONE}' (or it may not exist)."),
    "api-disabled": ("permission", "Cloud TPU API has not been used in project 1 before or it is disabled."),
    "credentials": ("unauthenticated", ""),
    "conflict": ("aborted", ""),
    "transient": ("unavailable", ""),
    "bad-request": ("unimplemented", ""),
    "not-found": ("not-found", ""),
}


def zones(*more: Zone) -> Settings:
    return Settings(zones=dict.fromkeys((ZONE, OTHER, *more), ("v4",)), latencies=QUICK)


def refuse(world: FleetWorld, kind: str, times: int | None = None, zone: str = ZONE) -> None:
    error, message = PLANTED[kind]
    path = f"{zone}/queuedResources"
    if message:
        world.emulated.plant("error-before", method="POST", path=path, times=times, error=error, message=message)
    else:
        world.emulated.plant("error-before", method="POST", path=path, times=times, error=error)


def asked(world: FleetWorld) -> list[str]:
    """Zone of each create that arrived, answered or refused."""
    return [
        call.path.split("/locations/")[1].split("/")[0] for call in world.emulated.cloud.calls if call.method == "POST"
    ]


@pytest.mark.parametrize("kind", sorted(PLANTED))
def test_a13_each_kind_pauses_what_its_row_says_and_no_more(tmp_path: Path, kind: str) -> None:
    effect = OF[kind]
    world = FleetWorld(tmp_path, a_cluster_spec(a_pool(zones=(ZONE, OTHER))), zones())
    refuse(world, kind)

    world.run()

    assert asked(world) == [ZONE]
    assert world.row().error_kind == kind
    with world.store.snapshot() as tx:
        holds = tx.zone_holds()
    if effect.scope is Scope.SLOT:
        assert holds == ()
    else:
        (hold,) = holds
        where = {Scope.PROJECT: ("*", "*"), Scope.ZONE: (ZONE, "*"), Scope.TYPE: (ZONE, "v4-16")}
        assert (hold.kind, (hold.zone, hold.accelerator)) == (kind, where[effect.scope])
        assert effect.pause_s <= hold.until.since(world.clock.now()) <= 1.25 * effect.pause_s
    world.emulated.pass_time(5)
    world.run()
    assert (OTHER in asked(world)) == effect.next_zone
    world.store.close()


def test_every_kind_that_a_create_can_meet_is_tried_above() -> None:
    # The emulator itself says that a type is not in the zone (A16), and that a name is taken (A08).
    elsewhere = {"type-not-in-zone", "already-exists"}
    assert set(PLANTED) | elsewhere == {effect.kind for effect in TABLE}


@pytest.mark.slow
def test_a13_four_exhausted_answers_have_four_reasons_and_four_effects(tmp_path: Path) -> None:
    places = (ZONE, OTHER, THIRD, Zone("us-west4-a"))
    pools = [a_pool(f"p{index}", zones=(zone,)) for index, zone in enumerate(places)]
    world = FleetWorld(tmp_path, a_cluster_spec(*pools), zones(THIRD, places[3]))
    kinds = ("quota-zero", "quota-full", "no-capacity", "rate-limited")
    for zone, kind in zip(places, kinds, strict=True):
        refuse(world, kind, times=1, zone=zone)

    result = world.run()

    assert result.exit_code == 3
    assert {row.zone: row.error_kind for row in world.rows()} == dict(zip(places, kinds, strict=True))
    assert "us-central2" in next(row.error_text for row in world.rows() if row.zone == ZONE)
    came: dict[str, int] = {}
    for minute in range(1, 90):
        world.passes(1)
        for where in asked(world)[4:]:
            came.setdefault(where, minute)
    assert came[places[3]] <= 2
    assert 2 <= came[OTHER] <= 4
    assert 5 <= came[THIRD] <= 8
    assert 60 <= came[ZONE] <= 77
    assert {row.phase for row in world.rows()} == {Phase.READY}


@pytest.mark.slow
def test_a14_120_slices_over_12_zones_come_within_four_passes_and_none_twice(tmp_path: Path) -> None:
    names = [Zone(f"us-test{number}-a") for number in range(12)]
    pools = [a_pool(f"p{index}", zones=(zone,), slices=10) for index, zone in enumerate(names)]
    settings = Settings(zones=dict.fromkeys(names, ("v4",)), latencies=QUICK, creates_per_minute=60)
    world = FleetWorld(tmp_path, a_cluster_spec(*pools), settings)

    results = world.passes(4)

    made = world.effects("POST")
    assert len(made) == len(set(made)) == 120
    assert len(asked(world)) == 120  # the budget was kept: the service refused nothing
    assert "60 creates a minute" in results[0].summary
    assert "\n" not in results[0].summary


@pytest.mark.slow
def test_a14_refusals_of_a_rate_that_others_use_up_are_told_in_one_line_and_end_no_pass(tmp_path: Path) -> None:
    names = [Zone(f"us-test{number}-a") for number in range(12)]
    pools = [a_pool(f"p{index}", zones=(zone,), slices=10) for index, zone in enumerate(names)]
    settings = Settings(zones=dict.fromkeys(names, ("v4",)), latencies=QUICK, creates_per_minute=40)
    world = FleetWorld(tmp_path, a_cluster_spec(*pools), settings)

    first, *_ = world.passes(4)

    made = world.effects("POST")
    assert len(made) == len(set(made)) == 120
    assert first.applied is not None
    assert len(first.applied.created) == 40
    assert len(first.applied.problems) == 1
    assert first.summary.count("\n") == 0
    assert "79 left for the next pass" in first.summary


@pytest.mark.slow
def test_a14_the_budget_is_one_for_passes_that_follow_within_seconds(tmp_path: Path) -> None:
    world = FleetWorld(tmp_path, a_cluster_spec(a_pool(slices=70)), Settings(latencies=QUICK, creates_per_minute=60))
    for _ in range(5):
        world.emulated.pass_time(2)
        world.restart()  # another process: what only memory knew is lost
        world.run()

    assert len(asked(world)) == 60

    world.emulated.pass_time(60)
    world.run()
    assert len(world.effects("POST")) == len(asked(world)) == 70


@pytest.mark.slow
def test_the_budget_can_be_lifted_and_holds_no_delete(tmp_path: Path) -> None:
    world = FleetWorld(tmp_path, a_cluster_spec(a_pool(slices=70)), Settings(latencies=QUICK))
    world.creates_per_minute = None
    world.settle()
    assert len(world.effects("POST")) == 70

    world.creates_per_minute = 1
    world.want_nothing()
    world.run()

    assert len(world.effects("DELETE")) == 70


def test_the_budget_after_a_reboot_follows_the_wall_clock_and_never_blocks_for_ever(tmp_path: Path) -> None:
    clock = FakeClock()
    store = Store.open(tmp_path / "store.sqlite3", clock=clock, create=True)
    pace = Pace(store, clock, per_minute=1)
    with store.transaction() as tx:
        pace.count(tx)
    assert pace.wait_s() == pytest.approx(60.0, abs=0.01)
    for monotonic_s, wall_s, expected in ((9e9, -20.0, 40.0), (9e9, 20.0, 0.0), (-5.0, 0.0, 55.0), (-61.0, 0.0, 0.0)):
        stored = {"ages_s": [0.0], "at_s": [clock.monotonic() + monotonic_s, clock.now().unix_s + wall_s]}
        with store.transaction() as tx:
            tx.put_meta(KEY, json.dumps(stored))
        assert pace.wait_s() == pytest.approx(expected, abs=0.01)
    store.close()


def test_a15_a_missing_permission_is_one_error_with_its_names_and_the_rest_is_done(tmp_path: Path) -> None:
    well = a_pool("well", zones=(OTHER,), slices=2)
    world = FleetWorld(tmp_path, a_cluster_spec(well), zones(THIRD))
    world.settle()
    refuse(world, "permission")
    world.want(a_cluster_spec(well, a_pool("a", slices=3), a_pool("c", zones=(THIRD,))))

    result = world.run()

    assert result.exit_code == 3
    assert result.applied is not None
    (problem,) = result.applied.problems
    assert "'tpu.queuedResources.create'" in problem
    assert "the account that runs tpuctl in project test-project" in problem
    assert asked(world).count(ZONE) == 1
    assert asked(world).count(THIRD) == 1
    world.passes(3)
    assert asked(world).count(ZONE) == 1
    assert {row.name: row.phase for row in world.rows() if row.zone != ZONE} == {
        f"lab-well-0-{EPOCH}-1": Phase.READY,
        f"lab-well-1-{EPOCH}-1": Phase.READY,
        f"lab-c-0-{EPOCH}-1": Phase.READY,
    }
    assert world.effects("DELETE") == []


@pytest.mark.slow
def test_a16_a_type_that_the_zone_lacks_is_asked_for_once_until_the_spec_changes(tmp_path: Path) -> None:
    lacking = Settings(zones={ZONE: ("v5e",), OTHER: ("v4",)}, latencies=QUICK)
    wrong, right = a_pool("wrong", zones=(ZONE,), slices=2), a_pool("right", zones=(OTHER,))
    world = FleetWorld(tmp_path, a_cluster_spec(wrong, right), lacking)

    results = world.passes(30)

    assert {result.exit_code for result in results} == {3}
    assert asked(world).count(ZONE) == 1
    with world.store.snapshot() as tx:
        (hold,) = tx.zone_holds()
    assert hold.until.since(world.clock.now()) > ENDLESS_S
    assert [row.phase for row in world.rows() if row.zone == OTHER] == [Phase.READY]

    world.want(a_cluster_spec(a_pool("wrong", zones=(OTHER,), slices=2), right))
    world.settle()
    assert asked(world).count(ZONE) == 1
    assert [row.phase for row in world.rows()] == [Phase.READY] * 3


def test_a_full_quota_waits_but_not_for_own_dead_that_are_gone(tmp_path: Path) -> None:
    quota = Settings(latencies=QUICK, quotas=(QuotaRule(zone=ZONE, generation="v4", chips=8),))
    world = FleetWorld(tmp_path, a_cluster_spec(a_pool(slices=2)), quota)
    world.passes(3)
    assert [row.error_kind for row in world.rows() if row.error_kind] == ["quota-full"]
    living = next(row.name for row in world.rows() if row.phase is Phase.READY)

    world.preempt(living)
    world.passes(4)

    assert len(world.effects("POST")) == 2
    assert len(world.effects("DELETE")) == 1


def test_a_zone_without_capacity_gives_a_queued_resource_no_error_and_is_no_refusal(tmp_path: Path) -> None:
    empty = Settings(latencies=QUICK, capacity=(CapacityRule(zone=ZONE, chips=0),))
    world = FleetWorld(tmp_path, a_cluster_spec(), empty)

    world.passes(5)

    assert (world.row().phase, world.row().error_kind) == (Phase.WAITING, "")
    assert len(asked(world)) == 1


class RequestIds:
    """Notes the request id of each effect, in order, by its kind and object."""

    def __init__(self, tpu: TpuApi) -> None:
        self._tpu = tpu
        self.sent: dict[tuple[str, str], list[str]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tpu, name)

    def create_queued_resource(self, request: QrRequest, request_id: str) -> None:
        self.sent.setdefault(("create", request.name), []).append(request_id)
        self._tpu.create_queued_resource(request, request_id)

    def delete_queued_resource(self, zone: Zone, name: QrName, request_id: str) -> None:
        self.sent.setdefault(("delete", name), []).append(request_id)
        self._tpu.delete_queued_resource(zone, name, request_id)


def test_a_repeated_effect_has_its_first_request_id_and_a_refused_create_another(tmp_path: Path) -> None:
    world = FleetWorld(tmp_path, a_cluster_spec(), Settings(latencies=QUICK))
    noted = RequestIds(world.tpu)
    world.wrap_tpu = lambda _tpu: noted
    name = f"lab-v4-0-{EPOCH}-1"
    world.emulated.plant("error-before", method="POST", path="queuedResources", times=3)
    for _ in range(4):  # each in a process of its own
        world.passes(1)
        world.restart()
    creates = noted.sent["create", name]
    assert len(creates) >= 4
    assert len(set(creates)) == 1

    world.settle()
    world.emulated.plant("error-before", method="DELETE", times=3)
    world.want_nothing()
    for _ in range(5):
        world.passes(1)
        world.restart()
    deletes = noted.sent["delete", name]
    assert len(deletes) >= 4
    assert len(set(deletes)) == 1
    assert set(deletes) != set(creates)

    other = FleetWorld(tmp_path / "other", a_cluster_spec(), Settings(latencies=QUICK))
    noted = RequestIds(other.tpu)
    other.wrap_tpu = lambda _tpu: noted
    refuse(other, "no-capacity", times=1)
    other.passes(10)
    refused, accepted = noted.sent["create", name]
    assert refused != accepted
    assert refused
