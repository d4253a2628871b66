"""The file is whole or refused (A51), and nothing is half saved."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from tpuctl.store.database import Store
from tpuctl.store.errors import StoreBusyError, StoreDamagedError, StoreFullError, StoreMissingError, StoreTooNewError
from tpuctl.store.records import Event
from tpuctl.store.schema import migrate, migrations
from tpuctl.testing.builders import an_incarnation
from tpuctl.testing.clock import START, FakeClock


def open_store(path: Path, *, create: bool = True) -> Store:
    return Store.open(path, clock=FakeClock(), create=create)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


def test_a_store_that_is_not_there_is_refused_unless_it_may_be_made(path: Path) -> None:
    with pytest.raises(StoreMissingError, match=r"store\.sqlite3"):
        open_store(path, create=False)
    assert list(path.parent.iterdir()) == []


def test_what_was_committed_is_there_after_reopening(path: Path) -> None:
    row = an_incarnation()
    store = open_store(path)
    with store.transaction() as tx:
        tx.put_incarnation(row)
    store.close()

    again = open_store(path, create=False)

    with again.snapshot() as tx:
        assert tx.incarnations() == (row,)


def test_a_new_store_leaves_nothing_beside_itself(path: Path) -> None:
    open_store(path).close()

    assert [entry.name for entry in path.parent.iterdir()] == ["store.sqlite3"]


def test_a_block_that_raises_keeps_nothing(path: Path) -> None:
    store = open_store(path)

    def save_and_raise() -> None:
        with store.transaction() as tx:
            tx.put_incarnation(an_incarnation())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        save_and_raise()

    with store.snapshot() as tx:
        assert tx.incarnations() == ()


@pytest.mark.parametrize("content", [b"", b"not a database at all, but longer than a header"])
def test_a_file_that_is_no_store_stops_and_is_kept(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    with pytest.raises(StoreDamagedError, match="damaged"):
        open_store(path)

    assert path.read_bytes() == content


def test_half_a_store_stops_and_is_kept(path: Path) -> None:
    store = open_store(path)
    with store.transaction() as tx:
        for slot in range(200):
            tx.put_incarnation(an_incarnation(slot))
    store.close()
    whole = path.read_bytes()
    half = whole[: len(whole) // 2]
    path.write_bytes(half)

    with pytest.raises(StoreDamagedError, match="damaged"):
        open_store(path)

    assert path.read_bytes() == half


def test_another_programs_database_is_refused(path: Path) -> None:
    other = sqlite3.connect(path)
    other.executescript("CREATE TABLE theirs (x); PRAGMA user_version = 1;")
    other.close()

    with pytest.raises(StoreDamagedError, match="another program"):
        open_store(path)


def test_a_rebuild_keeps_the_damaged_file_under_another_name(path: Path) -> None:
    path.write_bytes(b"garbage")

    store = Store.rebuild(path, clock=FakeClock())

    with store.snapshot() as tx:
        assert tx.incarnations() == ()
    (kept,) = path.parent.glob("store.sqlite3.damaged-*")
    assert kept.read_bytes() == b"garbage"


def test_a_store_of_a_newer_tpuctl_is_refused_with_both_versions(path: Path) -> None:
    open_store(path).close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 97")
    newer.close()

    with pytest.raises(StoreTooNewError, match=rf"version 97.*up to {migrations()[-1].number}:"):
        open_store(path)


def test_a_migration_that_dies_half_way_leaves_the_former_schema_and_is_done_again(path: Path) -> None:
    open_store(path).close()
    connection = sqlite3.connect(path, isolation_level=None)
    known = migrations()
    last = known[-1].number
    second = replace(known[0], number=last + 1, sql="CREATE TABLE extra (x) STRICT;")
    broken = replace(
        second, sql="CREATE TABLE extra (x INTEGER) STRICT;\nCREATE TABLE incarnations (y INTEGER) STRICT;"
    )

    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, "store", (*known, broken))
    assert connection.execute("PRAGMA user_version").fetchone() == (last,)
    assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'extra'").fetchone() == (0,)

    migrate(connection, "store", (*known, replace(second, sql="CREATE TABLE extra (x INTEGER) STRICT;")))
    assert connection.execute("PRAGMA user_version").fetchone() == (last + 1,)
    connection.close()


def test_a_full_disk_loses_only_the_transaction_that_did_not_fit(path: Path) -> None:
    store = open_store(path)
    with store.transaction() as tx:
        tx.put_incarnation(an_incarnation(0))
    store._connection.execute("PRAGMA max_page_count = 40")

    with pytest.raises(StoreFullError, match="Make room"), store.transaction() as tx:
        tx.put_incarnation(an_incarnation(1, reason="x" * 200_000))

    with store.snapshot() as tx:
        assert [row.slot for row in tx.incarnations()] == [0]
    store.close()
    open_store(path, create=False).close()


def test_a_writer_that_keeps_the_store_too_long_is_named_as_such(path: Path) -> None:
    first, second = open_store(path), open_store(path)
    second._connection.execute("PRAGMA busy_timeout = 10")

    with first.transaction(), pytest.raises(StoreBusyError), second.transaction():
        raise AssertionError("two writers at once")


def test_commit_hook_is_called_around_commits_that_change_something_only(path: Path) -> None:
    store, calls = open_store(path), list[str]()
    store.on_commit = calls.append

    with store.transaction() as tx:
        tx.incarnations()
    with store.transaction() as tx:
        tx.add_event(Event(START, "ready", "v4-0", "all hosts joined"))

    assert calls == ["before", "after"]


class PlantedCrashError(Exception):
    pass


@pytest.mark.parametrize(("point", "kept"), [("before", False), ("after", True)])
def test_a_crash_around_a_commit_keeps_all_or_nothing(path: Path, point: str, kept: bool) -> None:
    store = open_store(path)

    def crash(where: str) -> None:
        if where == point:
            raise PlantedCrashError

    store.on_commit = crash
    with pytest.raises(PlantedCrashError), store.transaction() as tx:
        tx.put_incarnation(an_incarnation())

    with open_store(path).snapshot() as tx:
        assert bool(tx.incarnations()) is kept


_WRITER = """
    import sys
    from pathlib import Path
    from tpuctl.base.clock import SystemClock
    from tpuctl.store.database import Store
    from tpuctl.testing.builders import an_incarnation
    store = Store.open(Path(sys.argv[1]), clock=SystemClock(), create=True)
    n = 1
    while True:
        with store.transaction() as tx:  # pairs: a half-saved state shows as an odd count
            tx.put_incarnation(an_incarnation(0, n))
            tx.put_incarnation(an_incarnation(1, n))
        print(n, flush=True)
        n += 1
"""


@pytest.mark.scenario
def test_kill_during_saves_leaves_the_old_or_the_new_whole_state(path: Path) -> None:
    """A51: 20 kills at whatever point of a save the process is at; what it said is saved, is."""
    for _ in range(20):
        path.unlink(missing_ok=True)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        writer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_WRITER), str(path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        said = [int(writer.stdout.readline()) for _ in range(3)]
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        said += [int(line) for line in writer.stdout.read().split() if line.isdigit()]
        writer.stdout.close()
        with open_store(path, create=False).snapshot() as tx:
            rows = tx.incarnations()
        pairs = [{row.n for row in rows if row.slot == slot} for slot in (0, 1)]
        assert pairs[0] == pairs[1]
        assert pairs[0] >= set(said[:3])
