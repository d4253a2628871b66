"""What happened, in order."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from tpuctl.base.units import Instant
from tpuctl.store.records import Event
from tpuctl.store.rows import from_row, insert_of, to_values


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events; the default is all of them."""

    since: Instant | None = None  # that instant or later
    kinds: tuple[str, ...] = ()  # of any of these; empty = of all
    subject: str = ""  # this very subject, or
    cluster: str = ""  # a queued resource `<cluster>-<subject>-…`: those of the slice or pool of that name


ALL = EventFilter()


class EventRows:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add_event(self, event: Event) -> None:
        self._connection.execute(insert_of("events", Event), to_values(event))

    def events_since(self, last_id: int, limit: int, wanted: EventFilter = ALL) -> tuple[tuple[int, Event], ...]:
        """Events with a larger id, with their ids, oldest first."""
        where, values = ["id > ?"], list[str | int | float]([last_id])
        if wanted.since is not None:
            where.append("at >= ?")
            values.append(wanted.since.unix_s)
        if wanted.kinds:
            where.append(f"kind IN ({', '.join('?' * len(wanted.kinds))})")
            values += wanted.kinds
        if wanted.subject:
            prefix = f"{wanted.cluster}-{wanted.subject}-"
            where.append("(subject = ? OR substr(subject, 1, ?) = ?)")
            values += [wanted.subject, len(prefix), prefix]
        sql = f"SELECT * FROM events WHERE {' AND '.join(where)} ORDER BY id LIMIT ?"
        rows = self._connection.execute(sql, (*values, limit))
        return tuple((row["id"], from_row(Event, row)) for row in rows)
