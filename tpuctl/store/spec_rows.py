"""The cluster's spec, and single facts by key: cluster, epoch, wanted, down_options."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from tpuctl.base.units import Instant


@dataclass(frozen=True, slots=True)
class StoredSpec:
    document: str  # tpuctl.spec.cluster.ClusterSpec as JSON
    digest: str
    at: Instant


class SpecRows:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def spec(self) -> StoredSpec | None:
        row = self._connection.execute("SELECT document, digest, at FROM spec WHERE id = 1").fetchone()
        return None if row is None else StoredSpec(row["document"], row["digest"], Instant(row["at"]))

    def put_spec(self, document: str, digest: str, at: Instant) -> None:
        sql = (
            "INSERT INTO spec (id, document, digest, at) VALUES (1, ?, ?, ?) ON CONFLICT (id) DO UPDATE "
            "SET document = excluded.document, digest = excluded.digest, at = excluded.at"
        )
        self._connection.execute(sql, (document, digest, at.unix_s))

    def meta(self, key: str) -> str | None:
        row = self._connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row["value"])

    def put_meta(self, key: str, value: str) -> None:
        sql = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        self._connection.execute(sql, (key, value))

    def forget_requests(self, before: Instant) -> None:
        """Request ids of submissions are kept so that a repeated one makes no second run (A42); nobody repeats one that
        is older than this."""
        sql = (
            "DELETE FROM meta WHERE key >= 'request:' AND key < 'request;' "
            "AND value NOT IN (SELECT id FROM runs WHERE submitted_at >= ?)"
        )
        self._connection.execute(sql, (before.unix_s,))
