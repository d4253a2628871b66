"""Queued resources that carry our labels and are not in the records: after the store was lost, or a create that took
effect after it was given up. Pure.

Adopted is what the spec wants and nothing else fills; what is dead, or stands beside the one that fills the slot, is
adopted to be deleted. The rest is only told of: neither the records nor the spec know it, so nobody can say it is not
somebody's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tpuctl.base.ids import Epoch, IncarnationId, PoolName, epoch_order
from tpuctl.cloud.model import Listing, QrState, QueuedResource, UnrecognisedState
from tpuctl.fleet.draft import Draft
from tpuctl.fleet.lifecycle import advance
from tpuctl.fleet.pools import digest_of, slot_exists, what_differs
from tpuctl.fleet.scene import Scene, state_text
from tpuctl.spec.accelerators import UnknownAcceleratorError, accelerator, canonical_name
from tpuctl.store.records import Event, Incarnation, Intent, Phase

# How the reason of a hold begins that tells of one.
ORPHAN = "an orphan: ours by its labels, but neither in the records nor in the spec; 'tpuctl down --orphans' deletes it"

_DEAD = (QrState.SUSPENDING, QrState.SUSPENDED, QrState.FAILED)
_RANK = {QrState.ACTIVE: 4, QrState.PROVISIONING: 3, QrState.WAITING_FOR_RESOURCES: 2, QrState.ACCEPTED: 2}


@dataclass(frozen=True, slots=True)
class Found:
    id: IncarnationId
    queued: QueuedResource

    @property
    def order(self) -> tuple[int, int, int]:
        """The one to keep is the furthest; of equals the newest."""
        state = self.queued.state
        rank = 0 if isinstance(state, UnrecognisedState) else _RANK.get(state, 1)
        return (rank, epoch_order(self.id.epoch), self.id.n)


def newest_epoch(scene: Scene) -> Epoch | None:
    """The newest epoch among the labels of what is ours; None when nothing is seen."""
    epochs = [found.id.epoch for found in _ours(scene)]
    return max(epochs, key=epoch_order) if epochs else None


def highest_numbers(scene: Scene) -> dict[tuple[PoolName, int], int]:
    """The highest n of each slot in this epoch, by what the cloud shows."""
    highest: dict[tuple[PoolName, int], int] = {}
    for found in _ours(scene):
        if found.id.epoch == scene.epoch:
            key = (found.id.pool, found.id.slot)
            highest[key] = max(highest.get(key, 0), found.id.n)
    return highest


def adopt(draft: Draft) -> None:
    groups: dict[tuple[PoolName, int], list[Found]] = {}
    for found in _ours(draft.scene):
        if draft.knows(found.queued.name) or found.queued.state is QrState.DELETING:
            continue
        if reason := _why_left_alone(found, draft.scene):
            draft.hold(found.queued.name, f"{reason}: left alone")
        elif found.queued.state in _DEAD or not draft.scene.wanted:
            _take_in(found, draft)
        else:
            groups.setdefault((found.id.pool, found.id.slot), []).append(found)
    for key, group in groups.items():
        _fill(key, group, draft)


def _fill(key: tuple[PoolName, int], group: list[Found], draft: Draft) -> None:
    """At most one living queued resource a slot: keep the one in the records, else the furthest."""
    group.sort(key=lambda found: found.order, reverse=True)
    open_rows = [row for row in draft.slot(*key) if not row.phase.is_over]
    unsent = [row for row in open_rows if row.intent in (Intent.PLANNED, Intent.REFUSED)]
    for row in unsent:
        draft.doom(row.name, f"{group[0].queued.name} fills the slot already")
    if len(open_rows) > len(unsent):
        keeper = next(row.name for row in open_rows if row not in unsent)
        surplus = group
    else:
        keeper, surplus = group[0].queued.name, group[1:]
        _take_in(group[0], draft)
    for found in surplus:
        _take_in(found, draft)
        draft.doom(found.queued.name, f"surplus: {keeper} fills slot {key[0]}-{key[1]}")


def _take_in(found: Found, draft: Draft) -> None:
    scene, queued = draft.scene, found.queued
    row = _row_of(found, scene)
    draft.put(row)
    draft.add(Event(scene.now, "adopted", row.name, f"{state_text(queued.state)}, not in the records"))
    step = advance(row, draft.sight(row.name), scene)
    draft.put(step.row)
    draft.add(*step.events)
    if step.lost:
        draft.doom(row.name, step.lost, Phase.LOST)


def _row_of(found: Found, scene: Scene) -> Incarnation:
    queued, made = found.queued, found.id
    pool = scene.pool(made.pool)
    chips, hosts = _size_of(queued.accelerator_type)
    matches = pool is not None and not what_differs(queued, pool)
    return Incarnation(
        name=queued.name,
        pool=made.pool,
        slot=made.slot,
        epoch=made.epoch,
        n=made.n,
        zone=queued.zone,
        accelerator=canonical_name(queued.accelerator_type),
        chips=chips,
        hosts=hosts,
        request_id="",
        intent=Intent.SEEN,
        phase=Phase.REQUESTED,
        since=scene.now,
        created_at=scene.now,  # the cloud's clock may differ from ours: ages are taken on ours alone
        spec_digest=digest_of(pool, canonical_name(queued.accelerator_type)) if matches and pool is not None else "",
        tier=queued.tier,
    )


def _size_of(name: str) -> tuple[int, int]:
    try:
        made = accelerator(name)
    except UnknownAcceleratorError:
        return 0, 0
    return made.chips, made.hosts


def _why_left_alone(found: Found, scene: Scene) -> str:
    if found.queued.name != found.id.qr_name:
        return f"its labels say that it is {found.id.qr_name}"
    if not scene.wanted:
        known = scene.orphans or scene.spec is None or slot_exists(scene.spec, found.id.pool, found.id.slot)
        return "" if known else ORPHAN
    if isinstance(found.queued.state, UnrecognisedState):
        return f"in state {found.queued.state.raw!r}, which this tpuctl does not know"
    if scene.spec is None:
        return "ours by its labels, but there is no spec yet"
    if found.queued.state not in _DEAD and not slot_exists(scene.spec, found.id.pool, found.id.slot):
        return ORPHAN
    return ""


def _ours(scene: Scene) -> Iterator[Found]:
    for view in scene.view.zones:
        listing = scene.queued_in(view.zone)
        if isinstance(listing, Listing):
            for queued in listing.items:
                made = scene.identity_of(queued)
                if made is not None:
                    yield Found(made, queued)
