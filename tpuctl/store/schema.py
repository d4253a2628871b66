"""Numbered migrations, each in one transaction with its number. PRAGMA user_version is the number of the last one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

import tpuctl
from tpuctl.store.errors import StoreDamagedError, StoreTooNewError

# SQLite's own mark of whose file it is ("tpuc"), so that another program's database is never taken for ours.
APPLICATION_ID = 0x74707563
# Key in the meta table: which tpuctl brought the schema to where it is.
WRITER = "schema_by"


@dataclass(frozen=True, order=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str


def migrations() -> tuple[Migration, ...]:
    """In order, numbered from 1 without a gap."""
    files = [
        entry for entry in (resources.files("tpuctl.store") / "migrations").iterdir() if entry.name.endswith(".sql")
    ]
    found = sorted(Migration(int(entry.name[:4]), entry.name, entry.read_text()) for entry in files)
    return tuple(found)


def migrate(connection: sqlite3.Connection, what: str, known: tuple[Migration, ...]) -> None:
    """Bring the schema up to date. Killed anywhere, the next call goes on from the last whole migration.

    Raises StoreTooNewError, and StoreDamagedError when it is another program's file.
    """
    newest, at = known[-1].number, version_of(connection)
    if at > 0 and _pragma(connection, "application_id") != APPLICATION_ID:
        raise StoreDamagedError(f"{what} is a database of another program, not a store of tpuctl; it was left as it is")
    if at > newest:
        writer = _writer(connection)
        raise StoreTooNewError(
            f"{what} was written by {writer} and has schema version {at}; this one ({tpuctl.__version__}) "
            f"knows versions up to {newest}: upgrade this tpuctl. Nothing was done"
        )
    for migration in known:
        if migration.number > at:
            _carry_out(connection, migration)


def _writer(connection: sqlite3.Connection) -> str:
    try:
        row = connection.execute("SELECT value FROM meta WHERE key = ?", (WRITER,)).fetchone()
    except sqlite3.Error:  # the newer schema may have no such table
        row = None
    return "a newer tpuctl" if row is None else f"tpuctl {row[0]}"


def version_of(connection: sqlite3.Connection) -> int:
    return _pragma(connection, "user_version")


def _carry_out(connection: sqlite3.Connection, migration: Migration) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        if version_of(connection) < migration.number:  # another process may have been quicker
            for statement in statements(migration.sql):
                connection.execute(statement)
            connection.execute(
                "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (WRITER, tpuctl.__version__),
            )
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {migration.number}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def statements(script: str) -> Iterator[str]:
    """The statements of a script. Not executescript: that commits what it finds open."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
