"""Incarnations, holds on zones, and passes."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from tpuctl.base.ids import Epoch, PoolName, QrName, SliceName, Zone
from tpuctl.base.units import Instant
from tpuctl.store.errors import SliceHeldError
from tpuctl.store.records import ENDLESS_S, Incarnation, PassRecord, Phase, ZoneHold
from tpuctl.store.rows import columns_of, from_row, insert_of, to_values, upsert_of

# A pass a minute: a week of them.
_KEPT_PASSES = 10_000
_COLUMNS = ", ".join(columns_of(Incarnation))

# The past of each slot is long and only its newest rows are wanted: `heads` steps through the index from one slot to
# the next, so that what is read grows with the slots and not with their past. (`(pool, slot) > (…)` would use the index
# for the pool alone.)
_RECENT = """
SELECT name FROM incarnations WHERE phase <> 'GONE'
UNION ALL
SELECT name FROM (
    WITH RECURSIVE heads (pool, slot) AS (
        SELECT * FROM (SELECT pool, slot FROM incarnations WHERE phase = 'GONE' ORDER BY pool, slot LIMIT 1)
        UNION ALL
        SELECT later.pool, later.slot FROM heads JOIN incarnations AS later ON later.rowid = COALESCE(
            (SELECT rowid FROM incarnations
             WHERE phase = 'GONE' AND pool = heads.pool AND slot > heads.slot ORDER BY slot LIMIT 1),
            (SELECT rowid FROM incarnations
             WHERE phase = 'GONE' AND pool > heads.pool ORDER BY pool, slot LIMIT 1)
        )
    )
    SELECT gone.name FROM heads JOIN incarnations AS gone ON gone.rowid IN (
        SELECT rowid FROM incarnations
        WHERE phase = 'GONE' AND pool = heads.pool AND slot = heads.slot ORDER BY created_at DESC, n DESC LIMIT ?
    )
)
"""


class FleetRows:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def incarnation(self, name: QrName) -> Incarnation | None:
        rows = self._incarnations("WHERE name = ?", name)
        return rows[0] if rows else None

    def incarnations(self) -> tuple[Incarnation, ...]:
        """All that ever were, oldest first."""
        return self._incarnations("ORDER BY created_at, pool, slot, n")

    def existing_incarnations(self) -> tuple[Incarnation, ...]:
        """All that are not GONE, oldest first."""
        return self._incarnations("WHERE phase <> 'GONE' ORDER BY created_at, pool, slot, n")

    def living_incarnations(self) -> tuple[Incarnation, ...]:
        """All that are not over (LOST, DELETING, GONE), oldest first."""
        return tuple(row for row in self.existing_incarnations() if not row.phase.is_over)

    def incarnations_of(self, slice_name: SliceName) -> tuple[Incarnation, ...]:
        """The whole history of one slot, oldest first."""
        pool, _, slot = slice_name.rpartition("-")
        return self._incarnations("WHERE pool = ? AND slot = ? ORDER BY created_at, n", pool, slot)

    def recent_incarnations(self, past: int) -> tuple[Incarnation, ...]:
        """All that are not GONE and, of each slot, the `past` newest that are; oldest first."""
        return self._incarnations(f"WHERE name IN ({_RECENT}) ORDER BY created_at, pool, slot, n", past)

    def last_numbers(self, epoch: Epoch) -> Mapping[tuple[PoolName, int], int]:
        """The highest n that a slot ever had in this epoch."""
        sql = "SELECT pool, slot, MAX(n) AS n FROM incarnations WHERE epoch = ? GROUP BY pool, slot"
        return {(PoolName(row["pool"]), row["slot"]): row["n"] for row in self._connection.execute(sql, (epoch,))}

    def put_incarnation(self, row: Incarnation) -> None:
        self._connection.execute(upsert_of("incarnations", Incarnation, ("name",)), to_values(row))

    def bar_slice(self, row: Incarnation) -> None:
        """Save a row that carries the decision to delete it, so that from this transaction on nobody can lease it.

        Raises SliceHeldError when a lease holds it, except when it is LOST: what the service took is no run's any
        more, whatever the leases say.
        """
        if not row.delete_request_id:
            raise ValueError(f"{row.name} carries no decision to delete it")
        if row.phase is not Phase.LOST and (holder := self.holder_of(row.name)) is not None:
            raise SliceHeldError(
                f"{row.name} is held by run {holder}: it is not deleted ({row.delete_reason}) before the run lets go"
            )
        self.put_incarnation(row)

    def holder_of(self, name: QrName) -> str | None:
        """The id of the run whose lease holds this incarnation."""
        row = self._connection.execute("SELECT run_id FROM leases WHERE incarnation = ?", (name,)).fetchone()
        return None if row is None else str(row["run_id"])

    def zone_holds(self) -> tuple[ZoneHold, ...]:
        rows = self._connection.execute("SELECT * FROM zone_holds ORDER BY zone, accelerator, kind")
        return tuple(from_row(ZoneHold, row) for row in rows)

    def put_zone_hold(self, hold: ZoneHold) -> None:
        self._connection.execute(upsert_of("zone_holds", ZoneHold, ("zone", "accelerator", "kind")), to_values(hold))

    def clear_zone_holds(self, zone: Zone, accelerator: str) -> None:
        """Something was created there: what held it back is over."""
        sql = "DELETE FROM zone_holds WHERE zone = ? AND accelerator = ?"
        self._connection.execute(sql, (zone, accelerator))

    def clear_endless_holds(self, now: Instant) -> None:
        """Those that wait for a change of the spec and not for a time."""
        self._connection.execute("DELETE FROM zone_holds WHERE until > ?", (now.plus(ENDLESS_S).unix_s,))

    def last_pass(self) -> PassRecord | None:
        row = self._connection.execute("SELECT * FROM passes ORDER BY id DESC LIMIT 1").fetchone()
        return None if row is None else from_row(PassRecord, row)

    def add_pass(self, record: PassRecord) -> None:
        cursor = self._connection.execute(insert_of("passes", PassRecord), to_values(record))
        self._connection.execute("DELETE FROM passes WHERE id <= ?", ((cursor.lastrowid or 0) - _KEPT_PASSES,))

    def _incarnations(self, tail: str, *values: str | int) -> tuple[Incarnation, ...]:
        rows = self._connection.execute(f"SELECT {_COLUMNS} FROM incarnations {tail}", values)
        return tuple(from_row(Incarnation, row) for row in rows)
