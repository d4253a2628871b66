"""A plan in the making. Lives inside one call of plan_fleet; what leaves it is frozen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tpuctl.base.ids import PoolName, QrName, Zone
from tpuctl.cloud.model import QrState, UnrecognisedState
from tpuctl.fleet.lifecycle import enter
from tpuctl.fleet.model import Action, Change, Create, Delete, Hold, Plan
from tpuctl.fleet.scene import Absent, Foreign, Scene, Sight, Unseen
from tpuctl.store.records import Event, Incarnation, Intent, Phase


class Draft:
    def __init__(self, scene: Scene, rows: Iterable[Incarnation]) -> None:
        self.scene = scene
        self._before: dict[QrName, Incarnation | None] = {row.name: row for row in rows}
        self._rows: dict[QrName, Incarnation] = {row.name: row for row in rows}
        self._sights: dict[QrName, Sight] = {}
        self._slots: dict[tuple[PoolName, int], list[QrName]] = {}
        for row in self._rows.values():
            self._slots.setdefault((row.pool, row.slot), []).append(row.name)
        self._creates: list[Create] = []
        self._holds: list[Hold] = []
        self._events: list[Event] = []

    @property
    def rows(self) -> tuple[Incarnation, ...]:
        """All that are not GONE by now, in the order in which they were made."""
        return tuple(row for row in self._rows.values() if row.phase is not Phase.GONE)

    @property
    def all_rows(self) -> Iterable[Incarnation]:
        """GONE ones too, as far as they were read."""
        return self._rows.values()

    def knows(self, name: QrName) -> bool:
        row = self._rows.get(name)
        return row is not None and row.phase is not Phase.GONE

    def row(self, name: QrName) -> Incarnation:
        return self._rows[name]

    def has_leftovers(self, zone: Zone) -> bool:
        """Dead ones of ours that still count against the quota there."""
        return any(row.phase.is_over and row.zone == zone for row in self.rows)

    def slot(self, pool: PoolName, slot: int) -> tuple[Incarnation, ...]:
        return tuple(row for row in self.history(pool, slot) if row.phase is not Phase.GONE)

    def history(self, pool: PoolName, slot: int) -> tuple[Incarnation, ...]:
        """GONE ones too, as far as they were read."""
        return tuple(self._rows[name] for name in self._slots.get((pool, slot), ()))

    def sight(self, name: QrName) -> Sight:
        if name not in self._sights:
            self._sights[name] = self.scene.look_at(self._rows[name])
        return self._sights[name]

    def put(self, row: Incarnation) -> None:
        if row.name not in self._rows:
            self._before[row.name] = None
            self._slots.setdefault((row.pool, row.slot), []).append(row.name)
        self._rows[row.name] = row

    def hold(self, subject: str, reason: str, *, is_problem: bool = False) -> None:
        self._holds.append(Hold(subject, reason, is_problem))

    def add(self, *events: Event) -> None:
        self._events += events

    def add_hold(self, hold: Hold | None) -> None:
        if hold is not None:
            self._holds.append(hold)

    def create(self, action: Create) -> None:
        self._creates.append(action)

    def doom(self, name: QrName, reason: str, phase: Phase = Phase.DELETING) -> bool:
        """Decide the deletion. False when it has to wait, because a run holds the slice or nobody can look.

        What was never sent, or was refused, is over without a call.
        """
        row = self._rows[name]
        if row.delete_request_id:
            return True
        queued = self.sight(name).queued
        never_was = row.intent in (Intent.PLANNED, Intent.REFUSED) and isinstance(queued, Absent | Foreign)
        if never_was or row.intent is Intent.PLANNED:
            self.put(enter(row, Phase.GONE, self.scene, reason))
            return True
        if isinstance(queued, Unseen | Foreign):
            self.hold(name, f"would be deleted ({reason}), but cannot be looked at")
            return False
        if phase is not Phase.LOST and (holder := self.scene.holder_of(name)) is not None:
            self.hold(name, f"is to be deleted ({reason}) as soon as run {holder} lets go")
            return False
        row = enter(row, phase, self.scene, reason)
        request_id = self.scene.request_id(name, "delete")
        self.put(replace(row, delete_request_id=request_id, delete_reason=reason, unseen_since=None))
        if phase is not Phase.LOST:
            self.add(Event(self.scene.now, "deleting", name, reason))
        return True

    def drain(self, name: QrName, reason: str) -> None:
        """Give back a slice although a run holds it: the run is stopped with its grace, and lets go."""
        row = self._rows[name]
        if row.phase in (Phase.READY, Phase.SUSPECT, Phase.JOINING) or (
            row.phase is Phase.DRAINING and row.reason != reason
        ):
            self.put(enter(row, Phase.DRAINING, self.scene, reason))
            self.add(Event(self.scene.now, "draining", name, reason))

    def finish(self) -> Plan:
        deletes = tuple(self._deletes())
        sent = {delete.incarnation.name for delete in deletes}
        creates = (replace(each, after=tuple(name for name in each.after if name in sent)) for each in self._creates)
        changes = tuple(
            Change(self._before[name], row) for name, row in self._rows.items() if self._before[name] != row
        )
        actions: tuple[Action, ...] = (*deletes, *creates, *self._holds)
        return Plan(changes, actions, tuple(self._events))

    def _deletes(self) -> Iterable[Delete]:
        for row in self.rows:
            if row.delete_request_id and self._is_to_be_sent(row):
                yield Delete(row, row.delete_reason)

    def _is_to_be_sent(self, row: Incarnation) -> bool:
        """Each pass again until the service says DELETING; also to what was sent and never seen, to make sure."""
        queued = self.sight(row.name).queued
        if isinstance(queued, Unseen | Foreign):
            return False
        if isinstance(queued, Absent):
            return row.intent is Intent.SENT
        if isinstance(queued.state, UnrecognisedState):
            return not self.scene.wanted  # on the user's word, not on ground of a state that we cannot read
        return queued.state is not QrState.DELETING
