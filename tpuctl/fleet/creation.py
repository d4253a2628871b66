"""Which slots are asked for, and under which name. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tpuctl.base.ids import IncarnationId, PoolName
from tpuctl.cloud.model import QueuedResource, UnrecognisedState
from tpuctl.fleet.draft import Draft
from tpuctl.fleet.lifecycle import NAME_CONFLICT
from tpuctl.fleet.model import Create, FleetRecords
from tpuctl.fleet.pools import digest_of
from tpuctl.fleet.room import Budget, fruitless_text, pause
from tpuctl.fleet.scene import Absent
from tpuctl.spec.accelerators import accelerator
from tpuctl.spec.cluster import ClusterSpec, PoolSpec
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

    def plan(self) -> None:
        for pool in self._spec.pools:
            for slot in range(pool.slices):
                self._slot(pool, slot)

    def _slot(self, pool: PoolSpec, slot: int) -> None:
        rows = self._draft.slot(pool.name, slot)
        living = [row for row in rows if not row.phase.is_over]
        if living:
            self._again(pool, living[0])
            return
        name = f"{pool.name}-{slot}"
        if reason := self._why_not(pool, slot, rows):
            self._draft.hold(name, f"not asked for: {reason.text}", is_problem=reason.is_problem)
            return
        self._budget.take(pool)
        former = rows[-1].reason if rows else ""
        row = self._new_row(pool, slot)
        self._draft.put(row)
        why = f"slot {name} is empty" if not former else f"replaces {rows[-1].name}: {former}"
        self._draft.create(Create(row, pool, tuple(each.name for each in rows), why))

    def _again(self, pool: PoolSpec, row: Incarnation) -> None:
        """A living incarnation that no list shows: planned and never sent, sent and unanswered, or refused."""
        if (
            row.delete_request_id
            or row.intent is Intent.SEEN
            or not isinstance(self._draft.sight(row.name).queued, Absent)
        ):
            return
        former = tuple(each.name for each in self._draft.slot(pool.name, row.slot) if each.phase.is_over)
        if row.intent is Intent.SENT:
            self._draft.create(Create(row, pool, former, "its create was sent and not answered: the same again"))
            return
        refused = row.intent is Intent.REFUSED
        if refused and row.error_kind in UNTIL_SPEC_CHANGES:
            self._draft.hold(row.name, f"refused until the spec changes: {row.error_text}", is_problem=True)
            return
        if reason := self._why_not(pool, row.slot, (), has_row=not refused):
            self._draft.hold(row.name, f"not asked for: {reason.text}", is_problem=reason.is_problem)
            return
        if refused:
            self._budget.take(pool)
            scene = self._draft.scene
            # The refused request left nothing behind; the next one is another request.
            row = replace(
                row,
                intent=Intent.PLANNED,
                request_id=scene.request_id(row.name, "create"),
                since=scene.now,
                error_kind="" if row.error_kind == NAME_CONFLICT else row.error_kind,
            )
            self._draft.put(row)
        text = f"refused before ({row.error_kind}), the pause is over" if refused else "planned before and not sent"
        self._draft.create(Create(row, pool, former, text))

    def _why_not(
        self, pool: PoolSpec, slot: int, rows: tuple[Incarnation, ...], *, has_row: bool = False
    ) -> _Reason | None:
        """`has_row`: the slot's own row is in the budget already."""
        scene, draft = self._draft.scene, self._draft
        if not scene.sees_all_of(pool.zone):
            # The failed list itself is told as the problem, once.
            return _Reason(f"{pool.zone} could not be listed; what is missing there may exist", is_problem=False)
        for row in rows:
            if row.intent is Intent.SENT:
                return _Reason(f"{row.name} may still appear; it is being given up", is_problem=False)
            if self._state_is_unknown(row):
                return _Reason(f"{row.name} is in a state that this tpuctl does not know", is_problem=False)
            if not row.delete_request_id:
                return _Reason(f"{row.name} is {row.phase.value} and not being deleted", is_problem=True)
        if (grant := self._spec.grant) is not None and grant.until is not None and scene.now >= grant.until:
            return _Reason(f"the grant ended at {grant.until.iso()}", is_problem=True)
        if text := fruitless_text(pool, slot, digest_of(pool), draft):
            return _Reason(text, is_problem=True)
        if text := pause(pool, self._records, draft):
            return _Reason(text, is_problem=False)
        if not has_row and (text := self._budget.obstacle(pool)):
            return _Reason(text, is_problem=not any(row.phase.is_over for row in draft.rows))
        return None

    def _state_is_unknown(self, row: Incarnation) -> bool:
        queued = self._draft.sight(row.name).queued
        return isinstance(queued, QueuedResource) and isinstance(queued.state, UnrecognisedState)

    def _new_row(self, pool: PoolSpec, slot: int) -> Incarnation:
        scene, key = self._draft.scene, (pool.name, slot)
        n = max(self._records.last_numbers.get(key, 0), self._seen.get(key, 0)) + 1
        made = IncarnationId(scene.cluster, pool.name, slot, scene.epoch, n)
        kind = accelerator(pool.accelerator)
        return Incarnation(
            name=made.qr_name,
            pool=pool.name,
            slot=slot,
            epoch=scene.epoch,
            n=n,
            zone=pool.zone,
            accelerator=kind.name,
            chips=kind.chips,
            hosts=kind.hosts,
            request_id=scene.request_id(made.qr_name, "create"),
            intent=Intent.PLANNED,
            phase=Phase.REQUESTED,
            since=scene.now,
            created_at=scene.now,
            spec_digest=digest_of(pool),
        )
