"""Every state of a queued resource, of a node and of a record against each other: no crash; unknown has no effect."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tpuctl.cloud.model import Node, NodeState, QrState, QueuedResource, Unknown, UnrecognisedState
from tpuctl.fleet.model import FleetRecords, FleetView, Plan
from tpuctl.fleet.plan import plan_fleet
from tpuctl.fleet.pools import digest_of
from tpuctl.store.records import Incarnation, Intent, Phase
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
DIGEST = digest_of(a_pool())
QR_STATES = (None, *QrState, UnrecognisedState("99"))
NODE_STATES = (None, *NodeState, UnrecognisedState("77"))
RECORDS = tuple(
    (intent, phase, doomed)
    for intent, phase, doomed in itertools.product(Intent, Phase, (False, True))
    if phase is not Phase.GONE
)


def plan(view: FleetView, *rows: Incarnation, wanted: bool = True) -> Plan:
    records = FleetRecords(rows, {(rows[0].pool, 0): 1} if rows else {})
    spec = a_cluster_spec()
    return plan_fleet(spec, wanted, records, view, (), START, 1000.0, EPOCH, cluster=CLUSTER, salt=SALT)


def row_of(intent: Intent, phase: Phase, doomed: bool) -> Incarnation:
    row = an_incarnation(intent=intent, phase=phase, spec_digest=DIGEST)
    return replace(row, delete_request_id="d", delete_reason="test") if doomed else row


def effects(made: Plan) -> int:
    return len(made.creates) + len(made.deletes)


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [True, False])
def test_every_combination_is_planned_and_touches_one_name_at_most_once(wanted: bool) -> None:
    count = 0
    node_states = NODE_STATES if wanted else (None, NodeState.READY, NodeState.PREEMPTED, UnrecognisedState("77"))
    for qr_state, node_state, record in itertools.product(QR_STATES, node_states, RECORDS):
        row = row_of(*record)
        queued = [] if qr_state is None else [a_queued_resource(state=qr_state)]
        nodes = [] if node_state is None else [a_node(state=node_state)]
        ray = a_ray_view(*ray_hosts(row.name, [0, 1]))
        made = plan(a_fleet_view(a_zone_view(queued, nodes), ray=ray), row, wanted=wanted)
        count += 1
        names = [create.incarnation.name for create in made.creates]
        names += [delete.incarnation.name for delete in made.deletes]
        assert len(names) == len(set(names)), (qr_state, node_state, record)
        assert wanted or not made.creates
        for create in made.creates:  # never beside one that may live
            alive = qr_state in (QrState.CREATING, QrState.ACTIVE, QrState.PROVISIONING, QrState.ACCEPTED)
            assert not alive or row.name in create.after, (qr_state, node_state, record)
    assert count == len(QR_STATES) * len(node_states) * len(RECORDS) >= 4000


def test_a_state_that_is_not_known_has_no_effect_in_any_record() -> None:
    unknown_qr: list[QueuedResource] = [a_queued_resource(state=UnrecognisedState("STATE_UNSPECIFIED"))]
    unknown_node: list[Node] = [a_node(state=UnrecognisedState("99"))]
    for record in RECORDS:
        row = row_of(*record)
        assert effects(plan(a_fleet_view(a_zone_view(unknown_qr, [a_node()])), row)) == 0, record
        if not row.delete_request_id and not row.phase.is_over:
            assert effects(plan(a_fleet_view(a_zone_view([a_queued_resource()], unknown_node)), row)) == 0, record


@pytest.mark.parametrize("wanted", [True, False])
def test_a_list_that_failed_is_incomplete_or_is_old_has_no_effect_in_any_record(wanted: bool) -> None:
    views = [
        a_zone_view(Unknown("503"), [a_node()]),
        a_zone_view(Unknown("503"), Unknown("503")),
        a_zone_view((), (), complete=False),
        a_zone_view((), (), monotonic_s=1000.0 - 61.0),
    ]
    for record, view in itertools.product(RECORDS, views):
        row = row_of(*record)
        made = plan(a_fleet_view(view), row, wanted=wanted)
        assert effects(made) == 0, (record, view)
        assert any(hold.is_problem for hold in made.holds)


def test_planning_again_on_what_was_planned_adds_nothing() -> None:
    for qr_state, record in itertools.product(QR_STATES, RECORDS):
        row = row_of(*record)
        queued = [] if qr_state is None else [a_queued_resource(state=qr_state)]
        view = a_fleet_view(a_zone_view(queued, [a_node()]), ray=a_ray_view(*ray_hosts(row.name, [0, 1])))
        first = plan(view, row)
        after = {row.name: row} | {change.after.name: change.after for change in first.changes}
        living = tuple(each for each in after.values() if each.phase is not Phase.GONE)
        if not living:
            continue
        again = plan(view, *(replace(each) for each in living))
        new = {create.incarnation.name for create in again.creates} - {c.incarnation.name for c in first.creates}
        fresh = {name for name in new if name not in after}
        # What vanished unasked is believed on the second look alone: then its successor is the one new thing.
        assert not fresh or qr_state is None, (qr_state, record, fresh)
