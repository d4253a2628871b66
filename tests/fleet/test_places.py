"""Pools over several places, with a changing number of slices: where and when they ask, and what they give back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tpuctl.base.ids import PoolName, RunId, Zone
from tpuctl.base.units import Instant
from tpuctl.cloud.model import NodeHealth, NodeState, QrState, Unknown
from tpuctl.fleet.model import FleetRecords, FleetView, Plan
from tpuctl.fleet.plan import plan_fleet
from tpuctl.fleet.pools import digest_of
from tpuctl.spec.cluster import ClusterSpec, DetectionSpec, GrantEntry, GrantSpec
from tpuctl.spec.pool import DeadlineSpec, PoolSpec, SliceRange, WindowSpec
from tpuctl.store.records import Incarnation, Intent, Lease, Phase, ZoneHold
from tpuctl.testing.builders import (
    CLUSTER,
    EPOCH,
    a_cluster_spec,
    a_fleet_view,
    a_node,
    a_pool,
    a_queued_resource,
    a_ray_view,
    a_zone_view,
    an_incarnation,
    ray_hosts,
)
from tpuctl.testing.clock import START

SALT = "5c7a8f0e-3b1d-4e4b-9a51-6a3f0d2c9b11"
FIRST, SECOND = Zone("us-central2-b"), Zone("us-east1-d")
POOL = a_pool(zones=(FIRST, SECOND))


def plan(
    pool: PoolSpec,
    *rows: Incarnation,
    view: FleetView | None = None,
    holds: tuple[ZoneHold, ...] = (),
    leases: tuple[Lease, ...] = (),
    grant: GrantSpec | None = None,
    now: Instant = START,
    surveyed: frozenset[Zone] = frozenset(),
    spec: ClusterSpec | None = None,
    **more: Any,
) -> Plan:
    numbers: dict[tuple[PoolName, int], int] = {}
    for row in rows:
        numbers[row.pool, row.slot] = max(row.n, numbers.get((row.pool, row.slot), 0))
    records = FleetRecords(rows, numbers, holds, surveyed)
    seen = view or a_fleet_view(a_zone_view(), a_zone_view(zone=SECOND))
    wanted = spec or a_cluster_spec(pool, grant=grant)
    return plan_fleet(wanted, True, records, seen, leases, now, 1000.0, EPOCH, cluster=CLUSTER, salt=SALT, **more)


def row(slot: int = 0, n: int = 1, *, pool: PoolSpec = POOL, **changes: Any) -> Incarnation:
    return an_incarnation(slot, n, spec_digest=digest_of(pool), **changes)


def ready(*slots: int, zone: Zone = FIRST) -> tuple[FleetView, tuple[Incarnation, ...]]:
    rows = tuple(row(slot) for slot in slots)
    hosts = [host for each in rows for host in ray_hosts(each.name, [0, 1])]
    view = a_fleet_view(
        a_zone_view([a_queued_resource(slot) for slot in slots], [a_node(slot) for slot in slots], zone=zone),
        a_zone_view(zone=SECOND),
        ray=a_ray_view(*hosts),
    )
    return view, rows


def granted(**chips: int) -> GrantSpec:
    zones = {"first": FIRST, "second": SECOND}
    return GrantSpec(
        entries=tuple(
            GrantEntry(zone=zones[name], generation="v4", tier="spot", chips=count) for name, count in chips.items()
        )
    )


def hold(zone: Zone, kind: str = "no-capacity", seconds: float = 60.0) -> ZoneHold:
    return ZoneHold(zone, "v4-16", kind, START.plus(seconds), "there is no more capacity")


def lease(of: Incarnation) -> Lease:
    return Lease(of.slice_name, of.name, RunId("digits-1"), 1, START)


def places(made: Plan) -> list[tuple[str, str]]:
    return [(each.incarnation.zone, each.incarnation.accelerator) for each in made.creates]


def test_the_first_place_that_may_be_asked_is_asked() -> None:
    assert places(plan(POOL)) == [(FIRST, "v4-16")]
    assert places(plan(POOL, holds=(hold(FIRST),))) == [(SECOND, "v4-16")]

    several = a_pool(zones=(FIRST, SECOND), accelerators=("v4-32", "v4-16"))
    assert places(plan(several)) == [(FIRST, "v4-32")]
    assert places(plan(several, grant=granted(first=8, second=8))) == [(FIRST, "v4-16")]  # v4-32 is 16 chips


def test_a_place_outside_the_grant_is_passed_over_and_all_places_share_its_chips() -> None:
    pool = a_pool(zones=(FIRST, SECOND), slices=3)

    made = plan(pool, grant=granted(first=8, second=8))

    assert places(made) == [(FIRST, "v4-16"), (SECOND, "v4-16")]
    (told,) = made.holds
    assert "v4-16 in us-central2-b: 8 of 8 granted chips" in told.reason
    assert "v4-16 in us-east1-d: 8 of 8 granted chips" in told.reason
    assert places(plan(pool, grant=granted(second=16))) == [(SECOND, "v4-16"), (SECOND, "v4-16")]


def test_a_refused_request_moves_to_the_next_place_under_a_new_name() -> None:
    refused = row(intent=Intent.REFUSED, phase=Phase.REQUESTED, error_kind="no-capacity", ready_at=None)

    made = plan(POOL, refused, holds=(hold(FIRST),))

    assert places(made) == [(SECOND, "v4-16")]
    assert made.creates[0].incarnation.n == 2
    assert made.deletes == ()  # a refusal left nothing behind
    assert "us-central2-b: refused (no-capacity); v4-16 in us-east1-d is next" in made.creates[0].reason
    (gone,) = [change.after for change in made.changes if change.after.name == refused.name]
    assert gone.phase is Phase.GONE


def test_an_unanswered_request_is_asked_again_where_it_was_and_nowhere_else() -> None:  # A10
    sent = row(intent=Intent.SENT, phase=Phase.REQUESTED, ready_at=None, since=START.plus(-30))

    (create,) = plan(POOL, sent, holds=(hold(FIRST),)).creates

    assert (create.incarnation.name, create.incarnation.zone) == (sent.name, FIRST)
    assert create.incarnation.request_id == sent.request_id


def test_what_was_given_up_in_one_place_is_asked_for_in_the_next_and_later_here_again() -> None:
    given_up = row(
        phase=Phase.GONE, ready_at=None, delete_reason="queue deadline: WAITING", delete_request_id="d",
        ended_at=START.plus(-60), since=START.plus(-60),
    )  # fmt: skip

    assert places(plan(POOL, given_up)) == [(SECOND, "v4-16")]
    assert places(plan(POOL, given_up, now=START.plus(3600))) == [(FIRST, "v4-16")]


def test_a_place_where_slices_die_young_or_never_come_up_is_slowed_down_with_the_reason() -> None:
    def died(n: int, ago_s: float) -> Incarnation:
        return row(
            0, n, phase=Phase.GONE, was_lost=True, ready_at=START.plus(-ago_s - 60), ended_at=START.plus(-ago_s),
            delete_request_id="d", delete_reason="node PREEMPTED",
        )  # fmt: skip

    def barren(n: int, ago_s: float) -> Incarnation:
        return row(
            0, n, phase=Phase.GONE, ready_at=None, ended_at=START.plus(-ago_s), delete_request_id="d",
            delete_reason="provision deadline: PROVISIONING",
        )  # fmt: skip

    one_place = a_pool()
    young = (died(1, 900), barren(2, 600), died(3, 100))
    made = plan(one_place, *young)
    assert made.creates == ()
    assert "3 slices there died within 15m00s of READY or never came up in the last 2h00m; next try in 3m20s" in (
        made.holds[0].reason
    )
    assert len(plan(one_place, *young, now=START.plus(201)).creates) == 1
    assert places(plan(POOL, *young)) == [(SECOND, "v4-16")]
    assert len(plan(one_place, *young[:2]).creates) == 1  # two may be an accident

    old_age = replace(young[2], ready_at=START.plus(-100 - 901))
    assert len(plan(one_place, *young[:2], old_age).creates) == 1
    patient = a_cluster_spec(one_place, detection=DetectionSpec(young_s=None))
    assert len(plan(one_place, *young, spec=patient).creates) == 1


def test_nothing_is_asked_for_before_every_zone_of_the_pool_was_looked_at_once() -> None:
    """The records may be new, and the slot filled where nobody has looked yet."""
    blind = a_fleet_view(a_zone_view(), a_zone_view(Unknown("503"), zone=SECOND))

    assert plan(POOL, view=blind).creates == ()
    assert places(plan(POOL, view=blind, surveyed=frozenset({FIRST, SECOND}))) == [(FIRST, "v4-16")]
    assert plan(POOL, view=blind, surveyed=frozenset({FIRST, SECOND}), holds=(hold(FIRST),)).creates == ()


def test_a_pool_grows_with_demand_between_its_bounds() -> None:
    pool = a_pool(slices=SliceRange(min=1, max=3))
    view, rows = ready(0)

    assert len(plan(pool).creates) == 1
    assert plan(pool, *rows, view=view).creates == ()
    assert len(plan(pool, *rows, view=view, demand={POOL.name: 8}).creates) == 0  # the free one serves it
    assert len(plan(pool, *rows, view=view, demand={POOL.name: 9}).creates) == 1
    assert len(plan(pool, *rows, view=view, demand={POOL.name: 8}, leases=(lease(rows[0]),)).creates) == 1
    assert len(plan(pool, *rows, view=view, demand={POOL.name: 800}).creates) == 2


def test_max_grant_grows_to_what_the_grant_has() -> None:
    pool = a_pool(slices=SliceRange(min=0, max=None))

    assert len(plan(pool, grant=granted(first=27), demand={POOL.name: 800}).creates) == 3


def test_idle_slices_above_the_minimum_are_given_back_and_never_under_a_lease() -> None:
    pool = a_pool(slices=SliceRange(min=1, max=3), idle_s=600.0)
    view, rows = ready(0, 1, 2)

    noted = plan(pool, *rows, view=view)
    assert noted.deletes == ()
    idle = tuple(change.after for change in noted.changes)
    assert [each.idle_since for each in idle] == [START, START, START]

    later = START.plus(601)
    made = plan(pool, *idle, view=view, now=later)
    assert [each.incarnation.slot for each in made.deletes] == [1, 2]
    assert "idle for 10m01s; pool v4 wants 1: no run wants it" in made.deletes[0].reason

    held = plan(pool, *idle, view=view, now=later, leases=(lease(rows[2]),))
    assert [each.incarnation.slot for each in held.deletes] == [0, 1]
    wanted = plan(pool, *idle, view=view, now=later, demand={POOL.name: 16})
    assert [each.incarnation.slot for each in wanted.deletes] == [2]


def test_idle_never_gives_nothing_back() -> None:
    view, rows = ready(0, 1)

    made = plan(a_pool(slices=SliceRange(min=0, max=2)), *rows, view=view, now=START.plus(10**6))

    assert made.deletes == ()
    assert [change.after.idle_since for change in made.changes] == [None, None]


def test_a_request_carries_its_window_and_one_that_expired_is_renewed_at_once() -> None:
    pool = a_pool(valid=WindowSpec(until_s=3600.0))
    (create,) = plan(pool).creates
    assert create.incarnation.expires_at == START.plus(3600)

    waiting = replace(create.incarnation, intent=Intent.SEEN, phase=Phase.WAITING)
    failed = a_fleet_view(a_zone_view([a_queued_resource(state=QrState.FAILED, error="valid until passed")]))
    made = plan(pool, waiting, view=failed, now=START.plus(3700), grant=granted(first=16))

    assert [each.incarnation.name for each in made.deletes] == [waiting.name]
    assert "expired: not fulfilled by" in made.deletes[0].reason
    assert made.creates[0].incarnation.expires_at == START.plus(3700 + 3600)

    early = plan(pool, waiting, view=failed, now=START.plus(600))
    assert "queued resource FAILED: valid until passed" in early.deletes[0].reason


def test_nothing_is_asked_for_after_the_moment_until_which_the_pool_is_valid() -> None:
    pool = a_pool(valid=WindowSpec(after=START.plus(60), until=START.plus(3600)))

    (create,) = plan(pool).creates
    assert (create.incarnation.not_before, create.incarnation.expires_at) == (START.plus(60), START.plus(3600))
    (later,) = plan(pool, now=START.plus(120)).creates
    assert later.incarnation.not_before is None
    made = plan(pool, now=START.plus(3600))
    assert made.creates == ()
    assert "was valid until" in made.holds[0].reason


@pytest.mark.parametrize("beyond", [False, True])
def test_at_the_grants_end_all_is_drained_and_deleted_unless_the_user_goes_on(beyond: bool) -> None:
    view, rows = ready(0, 1)
    grant = granted(first=16).model_copy(update={"until": START})

    made = plan(a_pool(slices=2), *rows, view=view, grant=grant, leases=(lease(rows[0]),), beyond_grant=beyond)

    if beyond:
        assert made.deletes == ()
        assert {change.after.phase for change in made.changes} == {Phase.READY}
        return
    assert [each.incarnation.slot for each in made.deletes] == [1]
    (drained,) = [change.after for change in made.changes if change.after.slot == 0]
    assert drained.phase is Phase.DRAINING  # its run is stopped with grace, and lets go
    assert "the grant ended with" in drained.reason
    assert made.creates == ()
    assert "'tpuctl up --beyond-grant' goes on" in made.holds[-1].reason


def test_without_a_sign_of_life_of_a_user_for_the_ttl_all_is_given_back() -> None:
    view, rows = ready(0)
    spec = a_cluster_spec(a_pool(), ttl_s=3600.0)

    assert plan(POOL, *rows, view=view, spec=spec).deletes == ()  # no sign was ever noted: nothing follows
    assert plan(POOL, *rows, view=view, spec=spec, seen_user=START.plus(-3599)).deletes == ()
    made = plan(POOL, *rows, view=view, spec=spec, seen_user=START.plus(-3600))
    assert "no command of a user for 1h00m (ttl 1h00m)" in made.deletes[0].reason
    assert made.creates == ()


def test_a_zone_more_in_the_spec_leaves_what_exists_and_a_zone_less_replaces_it() -> None:
    view, rows = ready(0)

    assert plan(a_pool(zones=(SECOND, FIRST)), *rows, view=view).lines == ()
    made = plan(a_pool(zones=(SECOND,)), *rows, view=view, surveyed=frozenset({SECOND}))
    assert "us-central2-b is not one of its zones any more" in made.deletes[0].reason
    assert places(made) == [(SECOND, "v4-16")]


def test_a_slice_of_another_tier_is_not_one_of_the_pool() -> None:
    view, rows = ready(0)

    made = plan(a_pool(tier="on-demand"), *rows, view=view)

    assert "the spec of pool v4 changed: tier" in made.deletes[0].reason
    assert made.creates[0].incarnation.tier == "on-demand"


def test_a_type_that_the_zone_has_not_is_passed_over_until_the_spec_changes() -> None:  # A16
    forever = hold(FIRST, "type-not-in-zone", 20 * 365 * 86400.0)

    assert places(plan(POOL, holds=(forever,))) == [(SECOND, "v4-16")]
    made = plan(a_pool(), holds=(forever,))
    assert made.creates == ()
    assert "type-not-in-zone until the spec changes" in made.holds[0].reason


def test_a_pool_that_never_comes_up_in_one_place_goes_on_in_the_other() -> None:
    barren = tuple(
        row(
            0, n, phase=Phase.GONE, ready_at=None, delete_reason="join deadline: 1/2 hosts", delete_request_id="d",
            ended_at=START.plus(-20000 + n), created_at=START.plus(-30000 + n), since=START.plus(-20000 + n),
        )
        for n in (1, 2, 3)
    )  # fmt: skip

    assert "pool v4 is paused" in plan(a_pool(), *barren).holds[0].reason
    assert places(plan(POOL, *barren)) == [(SECOND, "v4-16")]


def test_health_is_told_and_alone_changes_nothing() -> None:
    view, rows = ready(0)
    node = a_node(0, state=NodeState.READY, health=NodeHealth.UNHEALTHY_MAINTENANCE)
    view = replace(view, zones=(a_zone_view([a_queued_resource(0)], [node]), view.zones[1]))

    made = plan(a_pool(), *rows, view=view)

    assert made.lines == ()
    assert made.changes[0].after.node_state == "READY, UNHEALTHY_MAINTENANCE"


def test_deadlines_of_the_pool_still_hold() -> None:
    pool = a_pool(zones=(FIRST, SECOND), deadlines=DeadlineSpec(queue_s=60.0))
    waiting = row(phase=Phase.WAITING, ready_at=None, active_at=None, node_seen=False, created_at=START.plus(-61))
    view = a_fleet_view(a_zone_view([a_queued_resource(state=QrState.WAITING_FOR_RESOURCES)]), a_zone_view(zone=SECOND))

    made = plan(pool, waiting, view=view)

    assert [each.incarnation.name for each in made.deletes] == [waiting.name]
    assert places(made) == [(SECOND, "v4-16")]
