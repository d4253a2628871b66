"""Runs, attempts and leases."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from tpuctl.base.ids import QrName, RunId, SliceName
from tpuctl.base.units import Instant
from tpuctl.store.errors import LeaseTakenError
from tpuctl.store.records import Attempt, Lease, Phase, Run, RunState
from tpuctl.store.rows import from_row, insert_of, to_values, upsert_of

__all__ = ["LeaseTakenError", "RunRows"]

_OVER = tuple(state.value for state in RunState if state.is_over)
_OVER_MARKS = ", ".join("?" * len(_OVER))


class RunRows:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, run_id: RunId | str) -> Run | None:
        rows = self._runs("WHERE id = ?", run_id)
        return rows[0] if rows else None

    def runs(self) -> tuple[Run, ...]:
        """Oldest first."""
        return self._runs("ORDER BY submitted_at, id")

    def runs_in(self, states: Iterable[RunState]) -> tuple[Run, ...]:
        """Runs in any of these states, oldest first."""
        values = [state.value for state in states]
        return self._runs(f"WHERE state IN ({', '.join('?' * len(values))}) ORDER BY submitted_at, id", *values)

    def living_runs(self) -> tuple[Run, ...]:
        """Neither succeeded, failed nor cancelled; oldest first."""
        return self._runs(f"WHERE state NOT IN ({_OVER_MARKS}) ORDER BY submitted_at, id", *_OVER)

    def recent_runs(self, limit: int) -> tuple[Run, ...]:
        """The runs that are over, the last one that ended first."""
        tail = f"WHERE state IN ({_OVER_MARKS}) ORDER BY ended_at DESC, submitted_at DESC, id LIMIT ?"
        return self._runs(tail, *_OVER, limit)

    def newest_run_named(self, name: str) -> Run | None:
        rows = self._runs("WHERE name = ? ORDER BY submitted_at DESC, id DESC LIMIT 1", name)
        return rows[0] if rows else None

    def put_run(self, run: Run) -> None:
        """Raises sqlite3.IntegrityError when another run of that name lives."""
        self._connection.execute(upsert_of("runs", Run, ("id",)), to_values(run))

    def attempts(self, run_id: RunId) -> tuple[Attempt, ...]:
        """In order."""
        rows = self._connection.execute("SELECT * FROM attempts WHERE run_id = ? ORDER BY n", (run_id,))
        return tuple(from_row(Attempt, row) for row in rows)

    def attempt(self, run_id: RunId, n: int) -> Attempt | None:
        row = self._connection.execute("SELECT * FROM attempts WHERE run_id = ? AND n = ?", (run_id, n)).fetchone()
        return None if row is None else from_row(Attempt, row)

    def last_attempt(self, run_id: RunId) -> Attempt | None:
        sql = "SELECT * FROM attempts WHERE run_id = ? ORDER BY n DESC LIMIT 1"
        row = self._connection.execute(sql, (run_id,)).fetchone()
        return None if row is None else from_row(Attempt, row)

    def put_attempt(self, attempt: Attempt) -> None:
        self._connection.execute(upsert_of("attempts", Attempt, ("run_id", "n")), to_values(attempt))

    def leases(self) -> tuple[Lease, ...]:
        return tuple(from_row(Lease, row) for row in self._connection.execute("SELECT * FROM leases ORDER BY slice"))

    def take_leases(
        self, run_id: RunId, attempt: int, slices: Sequence[tuple[SliceName, QrName]], now: Instant
    ) -> None:
        """All of them or none. Raises LeaseTakenError if a slice is leased, or its incarnation is not READY or is
        marked for deletion."""
        for slice_name, incarnation in slices:
            if obstacle := self._obstacle(slice_name, incarnation):
                raise LeaseTakenError(f"run {run_id} cannot have slice {slice_name}: {obstacle}")
        statement = insert_of("leases", Lease)
        for slice_name, incarnation in slices:
            self._connection.execute("UPDATE incarnations SET idle_since = NULL WHERE name = ?", (incarnation,))
            lease = Lease(slice_name, incarnation, run_id, attempt, now)
            try:
                self._connection.execute(statement, to_values(lease))
            except sqlite3.IntegrityError as error:  # the same slice twice in one request
                self.release_leases(run_id)
                raise LeaseTakenError(f"run {run_id} asks for slice {slice_name} twice") from error

    def release_leases(self, run_id: RunId) -> None:
        """Every lease of the run. None is no error."""
        self._connection.execute("DELETE FROM leases WHERE run_id = ?", (run_id,))

    def _obstacle(self, slice_name: SliceName, incarnation: QrName) -> str:
        lease = self._connection.execute("SELECT run_id FROM leases WHERE slice = ?", (slice_name,)).fetchone()
        if lease is not None:
            return f"run {lease['run_id']} holds it"
        sql = "SELECT phase, delete_request_id FROM incarnations WHERE name = ?"
        row = self._connection.execute(sql, (incarnation,)).fetchone()
        if row is None:
            return f"there is no incarnation {incarnation}"
        if row["delete_request_id"]:
            return f"{incarnation} is being deleted"
        if row["phase"] != Phase.READY.value:
            return f"{incarnation} is {row['phase']}"
        return ""

    def _runs(self, tail: str, *values: str | int) -> tuple[Run, ...]:
        return tuple(from_row(Run, row) for row in self._connection.execute(f"SELECT * FROM runs {tail}", values))
