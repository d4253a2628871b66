"""The store: one SQLite file that is always the old or the new whole state, whatever dies when.

WAL with synchronous=FULL: a commit that returned is on the disk. A connection belongs to the thread that opened it;
each thread and process opens its own. A file that cannot be read stops the caller: it is never taken for an empty one,
because "nothing known" would orphan, or double, everything that exists.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tpuctl.base.clock import Clock
from tpuctl.base.files import sync_directory
from tpuctl.base.units import Instant
from tpuctl.store.errors import (
    LeaseTakenError,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreMissingError,
)
from tpuctl.store.events import EventRows
from tpuctl.store.fleet_rows import FleetRows
from tpuctl.store.run_rows import RunRows
from tpuctl.store.schema import migrate, migrations, version_of
from tpuctl.store.spec_rows import SpecRows, StoredSpec

__all__ = ["LeaseTakenError", "Store", "StoredSpec", "Transaction"]

_HEADER = b"SQLite format 3\x00"
_BUSY_TIMEOUT_S = 30.0
_LOG_BYTES = 8 * 2**20


class Transaction(FleetRows, RunRows, EventRows, SpecRows):
    """All that can be read and written, inside one transaction. Of no use after its `with` block."""


class Store:
    def __init__(self, path: Path, connection: sqlite3.Connection, clock: Clock) -> None:
        """Use Store.open."""
        self._path = path
        self._connection = connection
        self._clock = clock
        # Tests plant their crashes here. Called with "before" and "after" around each commit that changes something.
        self.on_commit: Callable[[str], None] | None = None

    @classmethod
    def open(cls, path: Path, *, clock: Clock, create: bool) -> Store:
        """Raises StoreMissingError (only without `create`), StoreDamagedError, StoreTooNewError, StoreBusyError."""
        try:
            if not path.exists():
                if not create:
                    raise StoreMissingError(
                        f"there is no store at {path}: this command runs on the head, or with --store"
                    )
                _create(path)
            _check_header(path)
        except OSError as error:
            raise StoreError(
                f"store {path} cannot be used: {error.strerror or error}. Nothing was done. Its directory must be "
                "there and writable for this user"
            ) from error
        connection: sqlite3.Connection | None = None
        try:
            connection = _connect(path)
            _check_pages(path, connection)
            migrate(connection, f"store {path}", migrations())
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            raise _told(path, error) from error
        except StoreError:
            if connection is not None:
                connection.close()
            raise
        return cls(path, connection, clock)

    @classmethod
    def rebuild(cls, path: Path, *, clock: Clock) -> Store:
        """On explicit demand only: put a damaged store aside, under a name that says when, and begin an empty one.

        The fleet is then adopted from its labels. Nothing is deleted: all files of the damaged store are kept.
        """
        stamp = f"damaged-{int(clock.now().unix_s)}-{secrets.token_hex(2)}"
        for suffix in ("", "-wal", "-shm"):
            part = path.with_name(path.name + suffix)
            if part.exists():
                part.rename(path.with_name(f"{path.name}.{stamp}{suffix}"))
        sync_directory(path.parent)
        return cls.open(path, clock=clock, create=True)

    @property
    def path(self) -> Path:
        return self._path

    def now(self) -> Instant:
        return self._clock.now()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Read and write, alone among writers. Committed at the end of the block; undone whole when the block raises.

        Errors of SQLite come out as StoreFullError, StoreBusyError or StoreDamagedError; of the block as they are.
        """
        connection, before = self._connection, self._connection.total_changes
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield Transaction(connection)
                changed = connection.total_changes != before
                if changed and self.on_commit is not None:
                    self.on_commit("before")
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # a full disk may have ended it already
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.IntegrityError:
            raise  # the caller broke a rule of the schema; nothing is wrong with the store
        except sqlite3.Error as error:
            raise _told(self._path, error) from error
        if changed and self.on_commit is not None:
            self.on_commit("after")

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        """Read one consistent state without keeping any writer waiting. What the block writes is not kept."""
        connection = self._connection
        try:
            connection.execute("BEGIN DEFERRED")
            try:
                yield Transaction(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise _told(self._path, error) from error

    def close(self) -> None:
        self._connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        # After a burst the log shrinks again: it shares the disk with everything else of the head.
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
    except BaseException:
        connection.close()
        raise
    return connection


def _create(path: Path) -> None:
    """A new store is whole or absent: it is made beside, and linked into place. Somebody quicker is as good."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        connection = _connect(beside)
        try:
            migrate(connection, f"store {path}", migrations())
        finally:
            connection.close()  # the last connection moves the log into the file and removes it
        try:
            os.link(beside, path)
        except FileExistsError:
            return
        sync_directory(path.parent)
    except sqlite3.Error as error:
        raise _told(path, error) from error
    finally:
        beside.unlink(missing_ok=True)


def _check_header(path: Path) -> None:
    with path.open("rb") as file:
        header = file.read(len(_HEADER))
    if header != _HEADER:
        what = "is empty" if not header else "does not begin like a store"
        raise StoreDamagedError(_damage(path, f"the file {what} ({path.stat().st_size} bytes)"))


def _check_pages(path: Path, connection: sqlite3.Connection) -> None:
    (finding,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if finding != "ok":
        raise StoreDamagedError(_damage(path, str(finding)))
    if not version_of(connection):
        raise StoreDamagedError(_damage(path, "it has no schema"))


def _damage(path: Path, finding: str) -> str:
    return (
        f"store {path} is damaged: {finding}. Nothing was done, and the file stays as it is. Restore it from a copy, "
        "or put it aside and rebuild it from what the cloud shows: tpuctl reconcile --store DIR --rebuild-store"
    )


def _told(path: Path, error: sqlite3.Error) -> StoreError:
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return StoreFullError(f"store {path} cannot be written: {error}. Make room on its disk; nothing was half saved")
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StoreError(
            f"store {path} cannot be written: {error}. File and directory must be writable for this user; nothing was "
            "half saved"
        )
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusyError(f"store {path} is being written by another process for over {_BUSY_TIMEOUT_S:g} s")
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamagedError(_damage(path, str(error)))
    return StoreError(f"store {path}: {error}")
