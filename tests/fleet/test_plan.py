"""Rules of the planner, one at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tpuctl.base.ids import RunId, Zone
from tpuctl.base.units import Instant
from tpuctl.cloud.model import NodeState, QrState
from tpuctl.fleet.model import FleetRecords, FleetView, Plan, RayView
from tpuctl.fleet.plan import plan_fleet
from tpuctl.fleet.pools import digest_of
from tpuctl.spec.cluster import ClusterSpec
from tpuctl.spec.pool import DeadlineSpec
from tpuctl.store.records import Incarnation, Intent, Lease, Phase, ZoneHold
from tpuctl.testing.builders import (
    CLUSTER,
    EPOCH,
    POOL,
    ZONE,
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
DIGEST = digest_of(a_pool())


def plan(
    spec: ClusterSpec | None,
    view: FleetView,
    *rows: Incarnation,
    holds: tuple[ZoneHold, ...] = (),
    leases: tuple[Lease, ...] = (),
    wanted: bool = True,
    now: Instant = START,
    orphans: bool = False,
) -> Plan:
    numbers: dict[tuple[str, int], int] = {}
    for row in rows:
        numbers[row.pool, row.slot] = max(row.n, numbers.get((row.pool, row.slot), 0))
    records = FleetRecords(rows, numbers, holds)  # type: ignore[arg-type]  # PoolName is a str
    return plan_fleet(
        spec, wanted, records, view, leases, now, 1000.0, EPOCH, cluster=CLUSTER, salt=SALT, orphans=orphans
    )


def row(slot: int = 0, n: int = 1, **changes: Any) -> Incarnation:
    return an_incarnation(slot, n, spec_digest=DIGEST, **changes)


def after(made: Plan, name: str) -> Incarnation:
    return next(change.after for change in made.changes if change.after.name == name)


def healthy(count: int, ray: RayView) -> FleetView:
    slots = range(count)
    return a_fleet_view(a_zone_view([a_queued_resource(s) for s in slots], [a_node(s) for s in slots]), ray=ray)


def test_a_missing_host_makes_a_ready_slice_suspect_and_nothing_more() -> None:
    made = plan(a_cluster_spec(), healthy(1, a_ray_view(*ray_hosts(row().name, [0]))), row())

    assert (after(made, row().name).phase, made.deletes) == (Phase.SUSPECT, ())


def suspect(slot: int = 0, **changes: Any) -> Incarnation:
    values: dict[str, Any] = {"phase": Phase.SUSPECT, "suspect_since": START.plus(-100), "suspect_passes": 1} | changes
    return row(slot, **values)


def test_a_suspect_is_deleted_after_the_rejoin_window_on_the_second_look() -> None:
    made = plan(a_cluster_spec(), healthy(1, a_ray_view()), suspect())

    assert [delete.incarnation.name for delete in made.deletes] == [row().name]
    assert made.creates[0].after == (row().name,)


@pytest.mark.parametrize(
    ("changes", "head_since"),
    [
        ({"suspect_since": START.plus(-80)}, START.plus(-9999)),
        ({"suspect_passes": 0}, START.plus(-9999)),
        ({}, START.plus(-30)),
        ({}, None),
    ],
    ids=["within-the-window", "first-look", "young-head", "head-of-unknown-age"],
)
def test_a_suspect_is_kept(changes: dict[str, Any], head_since: Instant | None) -> None:
    made = plan(a_cluster_spec(), healthy(1, a_ray_view(head_since=head_since)), suspect(**changes))

    assert made.deletes == ()


def test_a_suspect_that_a_run_holds_waits_for_the_run() -> None:
    lease = Lease(row().slice_name, row().name, RunId("r"), 1, START)

    assert plan(a_cluster_spec(), healthy(1, a_ray_view()), suspect(), leases=(lease,)).deletes == ()


@pytest.mark.parametrize(("slices", "deleted"), [(3, 1), (10, 2), (20, 4)])
def test_only_a_fifth_of_the_slices_is_given_up_on_rays_word_in_one_pass(slices: int, deleted: int) -> None:
    rows = [suspect(slot) for slot in range(slices)]

    made = plan(a_cluster_spec(a_pool(slices=slices)), healthy(slices, a_ray_view()), *rows)

    assert len(made.deletes) == deleted


def test_a_head_restart_makes_suspects_and_deletes_nothing() -> None:
    rows = [row(slot) for slot in range(2)]

    made = plan(a_cluster_spec(a_pool(slices=2)), healthy(2, a_ray_view(head_since=START.plus(-1))), *rows)

    assert {change.after.phase for change in made.changes} == {Phase.SUSPECT}
    assert made.deletes == ()


def test_scale_down_deletes_the_highest_slots_and_waits_for_runs() -> None:
    rows = [row(0), row(1), row(2)]
    lease = Lease(rows[1].slice_name, rows[1].name, RunId("r"), 1, START)
    hosts = [host for each in rows for host in ray_hosts(each.name, [0, 1])]

    made = plan(a_cluster_spec(), healthy(3, a_ray_view(*hosts)), *rows, leases=(lease,))

    assert [delete.incarnation.name for delete in made.deletes] == [rows[2].name]
    assert "run r lets go" in " ".join(made.lines)


def test_what_the_service_took_is_deleted_although_a_run_holds_it() -> None:
    lease = Lease(row().slice_name, row().name, RunId("r"), 1, START)
    view = a_fleet_view(a_zone_view([a_queued_resource()], [a_node(state=NodeState.PREEMPTED)]))

    made = plan(a_cluster_spec(), view, row(), leases=(lease,))

    assert after(made, row().name).phase is Phase.LOST
    assert len(made.deletes) == len(made.creates) == 1


@pytest.mark.parametrize(
    ("phase", "qr", "node", "limit"),
    [
        (Phase.WAITING, QrState.WAITING_FOR_RESOURCES, None, "queue_s"),
        (Phase.PROVISIONING, QrState.PROVISIONING, None, "provision_s"),
        (Phase.BOOTING, QrState.ACTIVE, NodeState.CREATING, "boot_s"),
        (Phase.JOINING, QrState.ACTIVE, NodeState.READY, "join_s"),
    ],
)
def test_each_phase_has_its_own_deadline(phase: Phase, qr: QrState, node: NodeState | None, limit: str) -> None:
    late = row(phase=phase, ready_at=None)
    nodes = [] if node is None else [a_node(state=node)]
    view = a_fleet_view(a_zone_view([a_queued_resource(state=qr)], nodes))

    def with_limit(seconds: float | None) -> Plan:
        return plan(a_cluster_spec(a_pool(deadlines=DeadlineSpec(**{limit: seconds}))), view, late)

    assert len(with_limit(3599).deletes) == 1
    assert with_limit(None).deletes == with_limit(3601).deletes == ()


def test_the_grant_is_one_budget_in_which_the_dead_count() -> None:
    dead = row(0, phase=Phase.LOST, delete_request_id="d", delete_reason="SUSPENDED")
    view = a_fleet_view(a_zone_view([a_queued_resource(state=QrState.SUSPENDED)]))
    spec = a_cluster_spec(a_pool(slices=2), grant_chips=16)

    made = plan(spec, view, dead)

    assert len(made.creates) == 1
    assert "16 of 16 granted chips" in " ".join(made.lines)


def test_what_is_outside_the_grant_is_refused_before_a_call() -> None:
    made = plan(a_cluster_spec(a_pool(tier="on-demand"), grant_chips=64), a_fleet_view())

    assert made.creates == ()
    assert any(hold.is_problem and "not in the grant" in hold.reason for hold in made.holds)


@pytest.mark.parametrize(("kind", "with_leftover", "creates"), [
    ("quota-full", False, 0), ("quota-full", True, 1), ("no-capacity", True, 0), ("rate-limited", False, 0),
])  # fmt: skip
def test_pauses_hold_back_creates_but_own_leftovers_lift_the_quotas(
    kind: str, with_leftover: bool, creates: int
) -> None:
    hold = ZoneHold(ZONE, "v4-16", kind, START.plus(60), "refused")
    dead = row(0, phase=Phase.LOST, delete_request_id="d", delete_reason="SUSPENDED")
    view = a_fleet_view(a_zone_view([a_queued_resource(state=QrState.SUSPENDED)] if with_leftover else []))

    made = plan(a_cluster_spec(), view, *([dead] if with_leftover else []), holds=(hold,))

    assert len(made.creates) == creates
    assert len(plan(a_cluster_spec(), view, holds=(hold,), now=START.plus(61)).creates) == 1


def test_of_two_unknown_ones_of_a_slot_the_furthest_is_adopted_and_the_other_deleted() -> None:
    queued = [a_queued_resource(0, 1), a_queued_resource(0, 2, state=QrState.WAITING_FOR_RESOURCES)]

    made = plan(a_cluster_spec(), a_fleet_view(a_zone_view(queued, [a_node(0, 1)])))

    assert [delete.incarnation.n for delete in made.deletes] == [2]
    assert made.creates == ()
    assert "surplus" in made.deletes[0].reason


def test_ours_by_label_but_in_neither_records_nor_spec_is_only_told_of() -> None:
    made = plan(a_cluster_spec(), a_fleet_view(a_zone_view([a_queued_resource(5), a_queued_resource(pool="old")])))

    assert made.deletes == ()
    assert len([hold for hold in made.holds if "'tpuctl down --orphans' deletes it: left alone" in hold.reason]) == 2


def test_down_takes_orphans_only_when_it_is_told_to() -> None:
    view = a_fleet_view(a_zone_view([a_queued_resource(0), a_queued_resource(5), a_queued_resource(pool="old")]))

    assert [each.incarnation.slot for each in plan(a_cluster_spec(), view, wanted=False).deletes] == [0]
    told = plan(a_cluster_spec(), view, wanted=False, orphans=True)
    assert sorted((each.incarnation.pool, each.incarnation.slot) for each in told.deletes) == [
        ("old", 0), ("v4", 0), ("v4", 5),
    ]  # fmt: skip


def test_a_dead_one_of_ours_is_cleared_even_if_nothing_knows_its_pool() -> None:
    made = plan(a_cluster_spec(), a_fleet_view(a_zone_view([a_queued_resource(pool="old", state=QrState.FAILED)])))

    assert [delete.incarnation.pool for delete in made.deletes] == ["old"]


def test_a_refused_create_is_asked_again_under_its_name_with_a_new_request_id() -> None:
    refused = row(intent=Intent.REFUSED, phase=Phase.REQUESTED, error_kind="no-capacity", ready_at=None)

    made = plan(a_cluster_spec(), a_fleet_view(), refused)

    (create,) = made.creates
    assert create.incarnation.name == refused.name
    assert create.incarnation.request_id != refused.request_id


def test_an_unanswered_create_is_sent_again_under_its_name_and_request_id() -> None:
    sent = row(intent=Intent.SENT, phase=Phase.REQUESTED, ready_at=None, since=START.plus(-30))

    (create,) = plan(a_cluster_spec(), a_fleet_view(), sent).creates

    assert (create.incarnation.name, create.incarnation.request_id) == (sent.name, sent.request_id)


def test_an_unanswered_create_that_never_shows_is_given_up_before_the_next_name() -> None:
    sent = row(intent=Intent.SENT, phase=Phase.REQUESTED, ready_at=None, since=START.plus(-700))

    first = plan(a_cluster_spec(), a_fleet_view(), sent)
    doomed = after(first, sent.name)
    assert (len(first.deletes), first.creates) == (1, ())

    second = plan(a_cluster_spec(), a_fleet_view(), replace(doomed, absent_passes=1), now=START.plus(120))
    assert after(second, sent.name).intent is Intent.ABANDONED
    assert [create.incarnation.n for create in second.creates] == [2]


def test_a_number_seen_on_the_cloud_alone_is_not_used_again() -> None:
    gone_soon = a_queued_resource(0, 7, state=QrState.DELETING)

    made = plan(a_cluster_spec(), a_fleet_view(a_zone_view([gone_soon])))

    assert [create.incarnation.n for create in made.creates] == [8]


def test_without_a_spec_nothing_is_created_or_deleted() -> None:
    made = plan(None, healthy(1, a_ray_view(*ray_hosts(row().name, [0, 1]))), row())

    assert (made.creates, made.deletes) == ((), ())


def test_a_pool_made_of_something_else_is_replaced() -> None:
    spec = a_cluster_spec(a_pool(accelerator="v4-32"))

    made = plan(spec, healthy(1, a_ray_view(*ray_hosts(row().name, [0, 1]))), row())

    assert (len(made.deletes), len(made.creates)) == (1, 1)
    assert made.creates[0].incarnation.accelerator == "v4-32"


def test_a_zone_that_was_not_looked_at_gets_no_create() -> None:
    made = plan(a_cluster_spec(a_pool(zones=(Zone("us-east1-d"),))), a_fleet_view(a_zone_view()))

    assert made.creates == ()
    assert POOL in made.lines[-1]
