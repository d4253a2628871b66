"""May one more slice be asked for: the grant, the pauses after refusals, and pools that never come up. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tpuctl.base.ids import Zone
from tpuctl.base.units import show_duration
from tpuctl.cloud.model import Listing
from tpuctl.fleet.deadlines import MAX_FRUITLESS, fruitless
from tpuctl.fleet.draft import Draft
from tpuctl.fleet.model import FleetRecords
from tpuctl.fleet.scene import Scene
from tpuctl.spec.accelerators import UnknownAcceleratorError, accelerator
from tpuctl.spec.cluster import GrantSpec, PoolSpec
from tpuctl.store.records import Incarnation, Intent, Phase

QUOTA_FULL = "quota-full"

Key = tuple[Zone, str, str]  # zone, generation, tier


class Budget:
    """Chips of the grant in use: everything of ours that is not known to be gone, dead or alive, asked for or only
    planned. What was refused takes nothing."""

    def __init__(self, draft: Draft, grant: GrantSpec | None) -> None:
        self._grant = grant
        self._used: dict[Key, int] = {}
        for row in draft.rows:
            if row.intent is not Intent.REFUSED:
                self._add((row.zone, generation_of(row.accelerator), _tier_of(row, draft.scene)), row.chips)
        for key, chips in _unrecorded(draft):
            self._add(key, chips)

    def obstacle(self, pool: PoolSpec) -> str:
        """Why one more slice of the pool is not within the grant; "" if it is."""
        if self._grant is None:
            return ""
        made = accelerator(pool.accelerator)
        key = (pool.zone, made.generation, pool.tier)
        name = "/".join(key)
        granted = [entry.chips for entry in self._grant.entries if (entry.zone, entry.generation, entry.tier) == key]
        if not granted:
            return f"{name} is not in the grant"
        used = self._used.get(key, 0)
        if used + made.chips > sum(granted):
            return f"{used} of {sum(granted)} granted chips of {name} are in use (dead ones count), {made.chips} wanted"
        return ""

    def take(self, pool: PoolSpec) -> None:
        made = accelerator(pool.accelerator)
        self._add((pool.zone, made.generation, pool.tier), made.chips)

    def _add(self, key: Key, chips: int) -> None:
        self._used[key] = self._used.get(key, 0) + chips


def pause(pool: PoolSpec, records: FleetRecords, draft: Draft) -> str:
    """Why creates of the pool wait after a refusal; "" if they need not.

    Quota that is full while dead ones of ours stand in the zone is full because of them: they are being deleted, so the
    next pass tries again.
    """
    scene = draft.scene
    leftovers = any(row.phase.is_over and row.zone == pool.zone for row in draft.rows)
    for hold in records.holds:
        if hold.zone != pool.zone or hold.accelerator not in (pool.accelerator, "*") or hold.until <= scene.now:
            continue
        if hold.kind == QUOTA_FULL and leftovers:
            continue
        return f"{hold.kind} for another {show_duration(hold.until.since(scene.now))}: {hold.text}"
    return ""


def fruitless_text(pool: PoolSpec, slot: int, digest: str, draft: Draft) -> str:
    """Why a slot is not asked for again after several incarnations that never came up; "" if it is.

    While no slice of the pool is READY, one such slot pauses the whole pool: they would fare alike.
    """
    works = any(row.pool == pool.name and row.phase is Phase.READY for row in draft.rows)
    slots: Iterable[int] = (slot,) if works else range(pool.slices)
    for each in slots:
        history = draft.history(pool.name, each)
        count = fruitless(tuple(row for row in history if row.phase.is_over), digest)
        if count >= MAX_FRUITLESS:
            last = max(history, key=lambda row: (row.created_at, row.n))
            what = f"{count} slices in a row never came up, the last one: {last.delete_reason}"
            return f"pool {pool.name} is paused: {what}. Change the pool in the spec to try again"
    return ""


def generation_of(name: str) -> str:
    try:
        return accelerator(name).generation
    except UnknownAcceleratorError:
        return ""  # of an adopted stranger: in no grant entry


def _tier_of(row: Incarnation, scene: Scene) -> str:
    pool = scene.pool(row.pool)
    return "spot" if pool is None else pool.tier


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
                tier = "spot" if queued.spot else "on-demand"
                yield (view.zone, generation, tier), accelerator(queued.accelerator_type).chips
