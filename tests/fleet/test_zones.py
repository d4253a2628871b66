"""Pools over several zones, as whole passes on the emulated cloud and virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tpuctl.base.ids import Zone
from tpuctl.emulator.scenario import CapacityRule, Latencies, QuotaRule, Settings
from tpuctl.spec.cluster import GrantEntry, GrantSpec
from tpuctl.spec.pool import DeadlineSpec, SliceRange
from tpuctl.store.records import Phase
from tpuctl.testing.builders import EPOCH, POOL, ZONE, a_cluster_spec, a_pool, a_run
from tpuctl.testing.fleet_world import FleetWorld

OTHER, THIRD = Zone("us-east1-d"), Zone("us-east5-b")
ZONES = {ZONE: ("v4",), OTHER: ("v4",), THIRD: ("v4",)}
QUICK = Latencies(accepted=0)
HOLDER = a_run("held")


def settings(**changes: Any) -> Settings:
    values: dict[str, Any] = {"zones": ZONES, "latencies": QUICK, **changes}
    return Settings(**values)


def grant(chips: int, *zones: Zone) -> GrantSpec:
    return GrantSpec(entries=tuple(GrantEntry(zone=zone, generation="v4", tier="spot", chips=chips) for zone in zones))


def where(world: FleetWorld) -> dict[str, str]:
    """Zone of each queued resource that lives."""
    return {
        name.rsplit("/", 1)[1]: name.split("/")[3]
        for name, record in world.emulated.cloud.tpu.life.queued.items()
        if record.state.value not in ("DELETING", "SUSPENDED", "FAILED")
    }


def test_a10_a_create_unanswered_in_one_zone_is_read_again_before_the_next_zone_is_tried(tmp_path: Path) -> None:
    pool = a_pool(zones=(ZONE, OTHER, THIRD))
    world = FleetWorld(tmp_path, a_cluster_spec(pool), settings(latencies=Latencies(accepted=0, provisioning=300)))
    world.emulated.plant("hang-after", method="POST", path="queuedResources", times=1, seconds=600)

    world.passes(4)

    assert set(where(world).values()) == {ZONE}
    world.settle()
    assert world.effects("POST") == [f"lab-v4-0-{EPOCH}-1"]
    assert world.states() == {f"lab-v4-0-{EPOCH}-1": "ACTIVE"}
    world.check_safety()


def test_a_zone_without_capacity_is_left_at_the_queue_deadline_for_the_next(tmp_path: Path) -> None:
    pool = a_pool(zones=(ZONE, OTHER), deadlines=DeadlineSpec(queue_s=600.0))
    world = FleetWorld(tmp_path, a_cluster_spec(pool), settings(capacity=(CapacityRule(zone=ZONE, chips=0),)))

    world.passes(12)  # ten minutes of waiting change nothing
    world.settle()

    assert where(world) == {f"lab-v4-0-{EPOCH}-2": OTHER}
    assert [row.phase for row in world.rows()] == [Phase.READY]
    world.check_safety()


def test_a_full_quota_sends_the_next_slices_to_the_next_zone(tmp_path: Path) -> None:
    quota = QuotaRule(zone=ZONE, generation="v4", chips=8)
    world = FleetWorld(tmp_path, a_cluster_spec(a_pool(zones=(ZONE, OTHER), slices=3)), settings(quotas=(quota,)))

    world.settle()

    assert sorted(where(world).values()) == sorted([ZONE, OTHER, OTHER])
    assert world.run().plan.lines == ()
    world.check_safety()


def test_one_budget_of_the_grant_holds_for_all_pools_and_types_of_a_zone(tmp_path: Path) -> None:
    first = a_pool("a", zones=(ZONE, OTHER), slices=2)
    second = a_pool("b", zones=(ZONE, OTHER), accelerators=("v4-32", "v4-16"), slices=1)
    world = FleetWorld(tmp_path, a_cluster_spec(first, second, grant=grant(16, ZONE, OTHER)), settings())

    world.settle()

    chips: dict[str, int] = {}
    for name, record in world.emulated.cloud.tpu.life.queued.items():
        chips[name.split("/")[3]] = chips.get(name.split("/")[3], 0) + record.chips
    assert chips == {ZONE: 16, OTHER: 16}
    assert [row.accelerator for row in world.rows() if row.pool == "b"] == ["v4-32"]


def test_a_zone_that_cannot_be_listed_costs_the_others_nothing_once_it_was_taken_in(tmp_path: Path) -> None:
    pool = a_pool(zones=(ZONE, OTHER), slices=2)
    world = FleetWorld(tmp_path, a_cluster_spec(pool, grant=grant(8, ZONE, OTHER)), settings())
    world.settle()
    lost = next(name for name, zone in where(world).items() if zone == ZONE)
    world.emulated.plant("error-before", method="GET", path=f"{OTHER}/", times=None)

    world.preempt(lost)
    world.passes(6)

    assert len(world.effects("POST")) == 3
    assert sorted(where(world).values()) == sorted([ZONE, OTHER])
    assert sum(row.phase is Phase.READY for row in world.rows()) == 2
    world.check_safety()


def test_after_the_loss_of_the_records_nothing_is_asked_for_before_every_zone_was_seen(tmp_path: Path) -> None:
    world = FleetWorld(tmp_path, a_cluster_spec(a_pool(zones=(ZONE, OTHER))), settings())
    world.settle()
    world.lose_store()
    world.emulated.plant("error-before", method="GET", path=f"{ZONE}/", times=None)

    world.passes(3)
    assert len(world.effects("POST")) == 1  # it stands in the zone that cannot be seen

    world.emulated.cloud.faults.remove(None)
    world.settle()
    assert len(world.effects("POST")) == 1
    assert [row.phase for row in world.rows()] == [Phase.READY]


def test_a_pool_follows_demand_up_and_after_its_idle_time_down(tmp_path: Path) -> None:
    pool = a_pool(zones=(ZONE, OTHER), slices=SliceRange(min=0, max=3), idle_s=600.0)
    world = FleetWorld(tmp_path, a_cluster_spec(pool, grant=grant(16, ZONE, OTHER)), settings())
    world.settle()
    assert world.rows() == ()

    world.demand = {POOL: 24}
    world.settle()
    assert sum(row.phase is Phase.READY for row in world.rows()) == 3

    world.demand = {}
    (kept, *_) = world.rows()
    with world.store.transaction() as tx:
        tx.put_run(HOLDER)
        tx.take_leases(HOLDER.id, 1, [(kept.slice_name, kept.name)], world.clock.now())
    world.passes(15)
    assert [row.name for row in world.rows()] == [kept.name]  # never under a lease

    with world.store.transaction() as tx:
        tx.release_leases(HOLDER.id)
    world.settle()
    world.passes(15)
    assert world.rows() == ()
    world.check_safety()


def test_at_the_grants_end_a_leased_slice_is_drained_and_deleted_when_its_run_lets_go(tmp_path: Path) -> None:
    end = GrantSpec(until=None, entries=grant(16, ZONE).entries)
    world = FleetWorld(tmp_path, a_cluster_spec(a_pool(slices=2), grant=end), settings())
    world.settle()
    held = world.row(0)
    with world.store.transaction() as tx:
        tx.put_run(HOLDER)
        tx.take_leases(HOLDER.id, 1, [(held.slice_name, held.name)], world.clock.now())
    world.want(a_cluster_spec(a_pool(slices=2), grant=end.model_copy(update={"until": world.clock.now().plus(30)})))

    world.passes(3)
    assert [(row.name, row.phase) for row in world.rows()] == [(held.name, Phase.DRAINING)]

    with world.store.transaction() as tx:
        tx.release_leases(HOLDER.id)
    world.settle()
    assert world.states() == {}
    assert len(world.effects("POST")) == 2
    assert "the grant ended" in " ".join(world.run().plan.lines)
