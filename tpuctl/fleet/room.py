"""May one more slice be asked for: the grant, the pauses after refusals, and pools that never come up. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tpuctl.base.ids import Zone
from tpuctl.base.units import show_duration
from tpuctl.cloud.model import Listing
from tpuctl.fleet.deadlines import MAX_FRUITLESS, fruitless
from tpuctl.fleet.draft import Draft
from tpuctl.fleet.model import FleetRecords
from tpuctl.fleet.places import at
from tpuctl.fleet.pools import digest_of
from tpuctl.spec.accelerators import UnknownAcceleratorError, accelerator
from tpuctl.spec.cluster import GrantSpec
from tpuctl.spec.pool import Place, PoolSpec
from tpuctl.store.records import ENDLESS_S, Intent

QUOTA_FULL = "quota-full"

Key = tuple[Zone, str, str]  # zone, generation, tier


class Budget:
    """Chips of the grant in use: everything of ours that is not known to be gone, dead or alive, asked for or only
    planned. What was refused takes nothing. One budget for all pools and types of an entry."""

    def __init__(self, draft: Draft, grant: GrantSpec | None) -> None:
        self._granted: dict[Key, int] | None = None
        if grant is not None:
            self._granted = {(entry.zone, entry.generation, entry.tier): entry.chips for entry in grant.entries}
        self._used: dict[Key, int] = {}
        for row in draft.rows:
            if row.intent is not Intent.REFUSED:
                self._add((row.zone, generation_of(row.accelerator), row.tier), row.chips)
        for key, chips in _unrecorded(draft):
            self._add(key, chips)

    def covers(self, place: Place, tier: str) -> bool:
        """The grant has an entry for it, however full."""
        return self._granted is None or _key(place, tier) in self._granted

    def obstacle(self, place: Place, tier: str) -> str:
        """Why one more slice there is not within the grant; "" if it is."""
        if self._granted is None:
            return ""
        key = _key(place, tier)
        name = "/".join(key)
        granted = self._granted.get(key)
        if granted is None:
            return f"{name} is not in the grant"
        used = self._used.get(key, 0)
        if used + place.accelerator.chips > granted:
            wanted = place.accelerator.chips
            return f"{used} of {granted} granted chips of {name} are in use (dead ones count), {wanted} wanted"
        return ""

    def take(self, place: Place, tier: str) -> None:
        self._add(_key(place, tier), place.accelerator.chips)

    def _add(self, key: Key, chips: int) -> None:
        self._used[key] = self._used.get(key, 0) + chips


def _key(place: Place, tier: str) -> Key:
    return (place.zone, place.accelerator.generation, tier)


def pause(place: Place, records: FleetRecords, draft: Draft) -> str:
    """Why creates in the place wait after a refusal; "" if they need not.

    Quota that is full while dead ones of ours stand in the zone is full because of them: they are being deleted, so the
    next pass tries again.
    """
    scene = draft.scene
    for hold in records.holds:
        if hold.zone not in (place.zone, "*") or hold.accelerator not in (place.accelerator.name, "*"):
            continue
        if hold.until <= scene.now or (hold.kind == QUOTA_FULL and draft.has_leftovers(place.zone)):
            continue
        left_s = hold.until.since(scene.now)
        how_long = "until the spec changes" if left_s > ENDLESS_S else f"for another {show_duration(left_s)}"
        return f"{hold.kind} {how_long}: {hold.text}"
    return ""


_PAUSED = re.compile(r"\bpool (?P<pool>[a-z0-9-]+) is paused: ")


def fruitless_text(pool: PoolSpec, place: Place, slots: Iterable[int], draft: Draft) -> str:
    """Why a place is not asked again after several incarnations of a slot there never came up; "" if it is.

    `slots`: those whose history counts: the slot's own, or all of the pool's while none of it is READY, for they would
    fare alike.
    """
    digest = digest_of(pool, place.accelerator.name)
    for slot in slots:
        history = tuple(row for row in draft.history(pool.name, slot) if at(row, place))
        count = fruitless(tuple(row for row in history if row.phase.is_over), digest)
        if count >= MAX_FRUITLESS:
            last = max(history, key=lambda row: (row.created_at, row.n))
            what = f"{count} slices in a row never came up, the last one: {last.delete_reason}"
            return f"pool {pool.name} is paused: {what}. Change the pool in the spec to try again"
    return ""


def paused_pool(reason: str) -> str:
    """The pool that a reason calls paused, in the words above; "" when it calls none so."""
    found = _PAUSED.search(reason)
    return found["pool"] if found else ""


def generation_of(name: str) -> str:
    try:
        return accelerator(name).generation
    except UnknownAcceleratorError:
        return ""  # of an adopted stranger: in no grant entry


def _unrecorded(draft: Draft) -> Iterable[tuple[Key, int]]:
    """What carries our labels and is not in the records counts too."""
    for view in draft.scene.view.zones:
        listing = draft.scene.queued_in(view.zone)
        if not isinstance(listing, Listing):
            continue
        for queued in listing.items:
            if draft.scene.identity_of(queued) is None or draft.knows(queued.name):
                continue
            generation = generation_of(queued.accelerator_type)
            if generation:
                yield (view.zone, generation, queued.tier), accelerator(queued.accelerator_type).chips
