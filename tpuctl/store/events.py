"""What happened, in order."""

from __future__ import annotations

import sqlite3

from tpuctl.store.records import Event
from tpuctl.store.rows import from_row, insert_of, to_values


class EventRows:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add_event(self, event: Event) -> None:
        self._connection.execute(insert_of("events", Event), to_values(event))

    def events_since(self, last_id: int, limit: int) -> tuple[tuple[int, Event], ...]:
        """Events with a larger id, with their ids, oldest first."""
        rows = self._connection.execute("SELECT * FROM events WHERE id > ? ORDER BY id LIMIT ?", (last_id, limit))
        return tuple((row["id"], from_row(Event, row)) for row in rows)
