"""Which slots are asked for, where, and under which name. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tpuctl.base.ids import IncarnationId, PoolName
from tpuctl.base.units import Instant
from tpuctl.cloud.model import QueuedResource, UnrecognisedState
from tpuctl.fleet.draft import Draft
from tpuctl.fleet.lifecycle import NAME_CONFLICT
from tpuctl.fleet.model import Create, FleetRecords
from tpuctl.fleet.places import in_order, slowed_down
from tpuctl.fleet.pools import digest_of
from tpuctl.fleet.room import Budget, fruitless_text, pause
from tpuctl.fleet.scene import Absent
from tpuctl.fleet.wants import PoolWant
from tpuctl.spec.accelerators import accelerator
from tpuctl.spec.cluster import ClusterSpec
from tpuctl.spec.pool import Place, PoolSpec
from tpuctl.store.records import Incarnation, Intent, Phase

# Refusals that only a change of the spec can mend: asking again would hear the same.
UNTIL_SPEC_CHANGES = frozenset({"type-not-in-zone", "bad-request"})


@dataclass(frozen=True, slots=True)
class _Reason:
    text: str
    is_problem: bool


class Creation:
    def __init__(
        self, draft: Draft, spec: ClusterSpec, records: FleetRecords, seen: Mapping[tuple[PoolName, int], int]
    ) -> None:
        """`seen`: the highest n of each slot in this epoch by the cloud's labels."""
        self._draft = draft
        self._spec = spec
        self._records = records
        self._seen = seen
        self._budget = Budget(draft, spec.grant)
        self._ready = {row.pool for row in draft.rows if row.phase is Phase.READY}
        self._has_dead = any(row.phase.is_over for row in draft.rows)  # they take room that comes back
        # What concerns a place and not the slot is looked up once a pass, however many slots ask.
        self._troubles: dict[tuple[PoolName, Place], _Reason | None] = {}

    def plan(self, wants: Mapping[PoolName, PoolWant]) -> None:
        for pool in self._spec.pools:
            want = wants[pool.name]
            slots = [self._draft.slot(pool.name, slot) for slot in range(want.most)]
            lacking = want.target - sum(any(not row.phase.is_over for row in rows) for rows in slots)
            for slot, rows in enumerate(slots):
                living = [row for row in rows if not row.phase.is_over]
                if living:
                    self._again(pool, living[0])
                elif lacking > 0:
                    lacking -= 1
                    self._ask(pool, slot, rows)

    def _ask(self, pool: PoolSpec, slot: int, former: tuple[Incarnation, ...]) -> None:
        name = f"{pool.name}-{slot}"
        if reason := self._former_obstacle(former):
            self._draft.hold(name, f"not asked for: {reason.text}", is_problem=reason.is_problem)
            return
        found = self._place_for(pool, slot)
        if isinstance(found, _Reason):
            self._draft.hold(name, f"not asked for: {found.text}", is_problem=found.is_problem)
            return
        self._budget.take(found, pool.tier)
        row = self._new_row(pool, slot, found)
        self._draft.put(row)
        why = f"replaces {former[-1].name}: {former[-1].reason}" if former else f"slot {name} is empty"
        self._draft.create(Create(row, pool, tuple(each.name for each in former), why))

    def _again(self, pool: PoolSpec, row: Incarnation) -> None:
        """A living incarnation that no list shows: planned and never sent, sent and unanswered, or refused."""
        if (
            row.delete_request_id
            or row.intent is Intent.SEEN
            or not isinstance(self._draft.sight(row.name).queued, Absent)
        ):
            return
        former = tuple(each for each in self._draft.slot(pool.name, row.slot) if each.phase.is_over)
        names = tuple(each.name for each in former)
        if row.intent is Intent.SENT:
            self._draft.create(Create(row, pool, names, "its create was sent and not answered: the same again"))
            return
        here = Place(row.zone, accelerator(row.accelerator))
        refused = row.intent is Intent.REFUSED
        reason = self._why_not(pool, here, row.slot, has_row=not refused)
        if reason is not None and row.error_kind != NAME_CONFLICT and self._move_on(pool, row, former):
            return
        if refused and row.error_kind in UNTIL_SPEC_CHANGES:
            self._draft.hold(row.name, f"refused until the spec changes: {row.error_text}", is_problem=True)
            return
        if reason is not None:
            self._draft.hold(row.name, f"not asked for: {reason.text}", is_problem=reason.is_problem)
            return
        if refused:
            self._budget.take(here, row.tier)
            row = self._asked_anew(pool, row)
            self._draft.put(row)
        text = f"refused before ({row.error_kind}), the pause is over" if refused else "planned before and not sent"
        self._draft.create(Create(row, pool, names, text))

    def _move_on(self, pool: PoolSpec, row: Incarnation, former: tuple[Incarnation, ...]) -> bool:
        """Ask elsewhere for what was refused here, or never sent: neither left anything behind, so no slot is filled
        twice."""
        found = self._place_for(pool, row.slot)
        if isinstance(found, _Reason):
            return False
        what = f"refused ({row.error_kind})" if row.intent is Intent.REFUSED else "never sent"
        self._draft.doom(row.name, f"{what}: {found} is next")
        self._budget.take(found, pool.tier)
        new = self._new_row(pool, row.slot, found)
        self._draft.put(new)
        names = tuple(each.name for each in former)
        self._draft.create(Create(new, pool, names, f"{row.zone}: {what}; {found} is next"))
        return True

    def _asked_anew(self, pool: PoolSpec, row: Incarnation) -> Incarnation:
        """The refused request left nothing behind; the next one is another request."""
        scene = self._draft.scene
        not_before, expires_at = self._window(pool)
        return replace(
            row,
            intent=Intent.PLANNED,
            request_id=scene.request_id(row.name, "create"),
            since=scene.now,
            not_before=not_before,
            expires_at=expires_at,
            error_kind="" if row.error_kind == NAME_CONFLICT else row.error_kind,
        )

    def _former_obstacle(self, former: tuple[Incarnation, ...]) -> _Reason | None:
        """Why the slot's dead ones keep it from being asked for."""
        for row in former:
            if row.intent is Intent.SENT:
                return _Reason(f"{row.name} may still appear; it is being given up", is_problem=False)
            if self._state_is_unknown(row):
                return _Reason(f"{row.name} is in a state that this tpuctl does not know", is_problem=False)
            if not row.delete_request_id:
                return _Reason(f"{row.name} is {row.phase.value} and not being deleted", is_problem=True)
        return None

    def _place_for(self, pool: PoolSpec, slot: int) -> Place | _Reason:
        """The first place that may be asked, or why none may."""
        if reason := self._why_nowhere(pool):
            return reason
        history = [row for row in self._draft.history(pool.name, slot) if row.phase.is_over]
        refusals: list[tuple[Place, _Reason]] = []
        for place in in_order(pool, history, self._draft.scene.now):
            if not self._budget.covers(place, pool.tier) and len(pool.places) > 1:
                continue  # the reader saw to it that some place is granted
            reason = self._why_not(pool, place, slot, has_row=False)
            if reason is None:
                return place
            refusals.append((place, reason))
        if not refusals:
            return _Reason("none of its places is in the grant", is_problem=True)
        if len(refusals) == 1:
            return refusals[0][1]
        text = "; ".join(f"{place}: {reason.text}" for place, reason in refusals)
        return _Reason(text, is_problem=all(reason.is_problem for _, reason in refusals))

    def _why_nowhere(self, pool: PoolSpec) -> _Reason | None:
        scene = self._draft.scene
        if pool.valid.until is not None and scene.now >= pool.valid.until:
            return _Reason(f"pool {pool.name} was valid until {pool.valid.until.iso()}", is_problem=True)
        for zone in pool.zones:
            # A slot that was never looked for in a zone may be filled there (the records may be new).
            if zone not in scene.surveyed and not scene.sees_all_of(zone):
                return _Reason(f"{zone} could not be listed; what is missing there may exist", is_problem=False)
        return None

    def _why_not(self, pool: PoolSpec, place: Place, slot: int, *, has_row: bool) -> _Reason | None:
        """`has_row`: the slot's own row is in the budget already."""
        scene, draft = self._draft.scene, self._draft
        if not scene.sees_all_of(place.zone):
            # The failed list itself is told as the problem, once.
            return _Reason(f"{place.zone} could not be listed; what is missing there may exist", is_problem=False)
        if pool.name in self._ready and (text := fruitless_text(pool, place, (slot,), draft)):
            return _Reason(text, is_problem=True)
        if (pool.name, place) not in self._troubles:
            self._troubles[pool.name, place] = self._trouble_with(pool, place)
        if (trouble := self._troubles[pool.name, place]) is not None:
            return trouble
        if not has_row and (text := self._budget.obstacle(place, pool.tier)):
            return _Reason(text, is_problem=not self._has_dead)
        return None

    def _trouble_with(self, pool: PoolSpec, place: Place) -> _Reason | None:
        draft = self._draft
        slots = () if pool.name in self._ready else range(self._spec.most_slices(pool))
        if text := fruitless_text(pool, place, slots, draft):
            return _Reason(text, is_problem=True)
        if text := pause(place, self._records, draft):
            return _Reason(text, is_problem=False)
        if text := slowed_down(place, draft.all_rows, draft.scene.now, draft.scene.detection.young_s):
            return _Reason(text, is_problem=False)
        return None

    def _state_is_unknown(self, row: Incarnation) -> bool:
        queued = self._draft.sight(row.name).queued
        return isinstance(queued, QueuedResource) and isinstance(queued.state, UnrecognisedState)

    def _window(self, pool: PoolSpec) -> tuple[Instant | None, Instant | None]:
        """From when to when the service may fulfil a request that is made now. The renewal rule: one that expires is
        asked for anew, with a window as long, unless the spec names the moment of its end."""
        now, valid = self._draft.scene.now, pool.valid
        after = valid.after if valid.after is not None and valid.after > now else None
        if valid.until_s is not None:
            return after, (after or now).plus(valid.until_s)
        return after, valid.until

    def _new_row(self, pool: PoolSpec, slot: int, place: Place) -> Incarnation:
        scene, key = self._draft.scene, (pool.name, slot)
        past = [row.n for row in self._draft.history(pool.name, slot) if row.epoch == scene.epoch]
        n = max(self._records.last_numbers.get(key, 0), self._seen.get(key, 0), *past, 0) + 1
        made = IncarnationId(scene.cluster, pool.name, slot, scene.epoch, n)
        kind = place.accelerator
        not_before, expires_at = self._window(pool)
        return Incarnation(
            name=made.qr_name,
            pool=pool.name,
            slot=slot,
            epoch=scene.epoch,
            n=n,
            zone=place.zone,
            accelerator=kind.name,
            chips=kind.chips,
            hosts=kind.hosts,
            request_id=scene.request_id(made.qr_name, "create"),
            intent=Intent.PLANNED,
            phase=Phase.REQUESTED,
            since=scene.now,
            created_at=scene.now,
            spec_digest=digest_of(pool, kind.name),
            tier=pool.tier,
            not_before=not_before,
            expires_at=expires_at,
        )
