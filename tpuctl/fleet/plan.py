"""What a pass does: from records and one observation to changes of the records and actions, each with its reason. Pure.

In this order: what the sight makes of each record; what is ours and unknown; what is over, unwanted, late or suspect
is doomed; then empty slots are asked for within grant and pauses. Level-triggered: nothing here remembers what a former
pass meant to do but what its records say, so that a pass may be killed anywhere.

Unknown is never absent: what could not be looked at keeps its record, and nothing is created or deleted on ground of
it.
"""

from __future__ import annotations

from collections import Counter

from tpuctl.base.ids import ClusterName, Epoch, epoch_order
from tpuctl.base.units import Instant
from tpuctl.cloud.model import Listing
from tpuctl.fleet.adopt import adopt, highest_numbers, newest_epoch
from tpuctl.fleet.creation import Creation
from tpuctl.fleet.deadlines import overdue
from tpuctl.fleet.draft import Draft
from tpuctl.fleet.lifecycle import advance
from tpuctl.fleet.loss import given_up
from tpuctl.fleet.model import FleetRecords, FleetView, Hold, Plan
from tpuctl.fleet.pools import why_unwanted
from tpuctl.fleet.scene import Scene, Unseen
from tpuctl.fleet.wants import Demand, give_back, note_idle, wants_of
from tpuctl.spec.cluster import ClusterSpec
from tpuctl.spec.pool import DeadlineSpec
from tpuctl.store.records import Lease, Phase

_NEEDS_RAY = (Phase.JOINING, Phase.READY, Phase.SUSPECT)


def plan_fleet(
    spec: ClusterSpec | None,
    wanted: bool,
    records: FleetRecords,
    view: FleetView,
    leases: tuple[Lease, ...],
    now: Instant,
    monotonic_s: float,
    epoch: Epoch,
    *,
    cluster: ClusterName,
    salt: str,
    demand: Demand | None = None,
    beyond_grant: bool = False,
    seen_user: Instant | None = None,
    orphans: bool = False,
) -> Plan:
    """The one planner: `tpuctl plan` shows what it returns, `tpuctl reconcile` does it.

    `spec` None: nothing is known of what is wanted, so nothing is created; with `wanted` False all of ours is deleted.
    `salt`: a fresh UUID, from which request ids are made. `demand`: chips by pool that queued runs would fill.
    `beyond_grant`: the user goes on after the grant's end. `seen_user`: when a user last gave a command.
    `orphans`: with `wanted` False, what carries our labels goes too although neither records nor spec know it.
    """
    scene = Scene(
        spec,
        wanted,
        view,
        leases,
        now,
        monotonic_s,
        epoch,
        cluster,
        salt,
        beyond_grant,
        seen_user,
        records.surveyed,
        orphans,
    )
    if fence := _newer_head(scene, records):
        return Plan(actions=(fence,))
    draft = Draft(scene, records.incarnations)
    _tell_what_is_unknown(draft)
    _advance_all(draft)
    adopt(draft)
    _doom_duplicates(draft)
    _doom_unwanted_and_late(draft)
    for name, reason in given_up(draft.rows, scene).items():
        draft.doom(name, reason)
    if wanted and spec is not None:
        note_idle(draft)
        wants = wants_of(draft, spec, demand or {})
        give_back(draft, wants)
        if reason := scene.drain_reason:
            draft.hold(scene.cluster, f"nothing is asked for: {reason}", is_problem=True)
        else:
            Creation(draft, spec, records, highest_numbers(scene)).plan(wants)
    return draft.finish()


def _newer_head(scene: Scene, records: FleetRecords) -> Hold | None:
    """Whoever acts for an older epoch than what exists is a head that was replaced: it must not touch anything."""
    epochs = [row.epoch for row in records.incarnations]
    if (seen := newest_epoch(scene)) is not None:
        epochs.append(seen)
    newest = max(epochs, key=epoch_order, default=scene.epoch)
    if epoch_order(newest) <= epoch_order(scene.epoch):
        return None
    text = f"slices of epoch {newest} exist, which is newer than this head's {scene.epoch}: another head took over"
    return Hold(scene.cluster, text, is_problem=True)


def _tell_what_is_unknown(draft: Draft) -> None:
    """Each failed observation once, however many slices it concerns."""
    scene = draft.scene
    for view in scene.view.zones:
        for listing in (scene.queued_in(view.zone), scene.nodes_in(view.zone)):
            if isinstance(listing, Unseen):
                draft.hold(view.zone, listing.reason, is_problem=True)
            elif isinstance(listing, Listing) and not listing.complete:
                draft.hold(
                    view.zone, "the service could not read all of it: what is missing is unknown", is_problem=True
                )
    if isinstance(scene.ray, Unseen) and any(row.phase in _NEEDS_RAY for row in draft.rows):
        draft.hold("ray", scene.ray.reason, is_problem=True)


def _advance_all(draft: Draft) -> None:
    for row in draft.rows:
        step = advance(row, draft.sight(row.name), draft.scene)
        draft.put(step.row)
        draft.add(*step.events)
        draft.add_hold(step.hold)
        if step.lost:
            draft.doom(row.name, step.lost, Phase.LOST)


def _doom_duplicates(draft: Draft) -> None:
    """Two living rows of one slot: keep what is READY, else what is newest. Should never happen; must not stay."""
    living = [row for row in draft.rows if not row.phase.is_over]
    for (pool, slot), count in Counter((row.pool, row.slot) for row in living).items():
        if count < 2:
            continue
        rows = [row for row in draft.slot(pool, slot) if not row.phase.is_over]
        keeper = max(rows, key=lambda row: (row.phase is Phase.READY, epoch_order(row.epoch), row.n))
        for row in rows:
            if row.name != keeper.name:
                draft.doom(row.name, f"surplus: {keeper.name} fills slot {pool}-{slot}")


def _doom_unwanted_and_late(draft: Draft) -> None:
    scene = draft.scene
    for row in draft.rows:
        if row.phase.is_over:
            continue
        pool = scene.pool(row.pool)
        reason = why_unwanted(row, scene)
        reason = reason or overdue(row, pool.deadlines if pool is not None else DeadlineSpec(), scene)
        if reason and not draft.doom(row.name, reason) and reason == scene.drain_reason:
            draft.drain(row.name, reason)
