"""What grows without end costs no more as it grows: read by index, bounded, or forgotten."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

import tpuctl
from tpuctl.store.database import Store
from tpuctl.store.errors import StoreTooNewError
from tpuctl.store.records import Event, Incarnation, Phase, RunState
from tpuctl.store.schema import migrations
from tpuctl.testing.builders import a_run, an_incarnation
from tpuctl.testing.clock import START, FakeClock

FIXTURES = Path(__file__).parent / "fixtures"
DAY_S = 86400.0


def test_a_stored_database_of_an_earlier_schema_opens_and_reads_alike(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    shutil.copy(FIXTURES / "schema2.sqlite3", path)

    store = Store.open(path, clock=FakeClock(), create=False)

    with store.snapshot() as tx:
        assert [(row.n, row.phase) for row in tx.incarnations()] == [(1, Phase.GONE), (2, Phase.GONE), (3, Phase.READY)]
        assert [row.n for row in tx.recent_incarnations(1)] == [2, 3]
        assert [run.name for run in tx.living_runs()] == ["train"]
        assert [event.kind for _, event in tx.events_since(0, 10)] == ["requested", "submitted"]
        assert [hold.kind for hold in tx.zone_holds()] == ["quota-full"]
        assert (tx.meta("cluster"), tx.meta("schema_by")) == ("lab", tpuctl.__version__)
    store.close()
    raw = sqlite3.connect(path)
    assert raw.execute("PRAGMA user_version").fetchone() == (migrations()[-1].number,)
    raw.close()


def test_a_store_of_a_newer_tpuctl_names_it_and_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    Store.open(path, clock=FakeClock(), create=True).close()
    newer = sqlite3.connect(path)
    newer.execute("UPDATE meta SET value = '9.1.0' WHERE key = 'schema_by'")
    newer.execute("PRAGMA user_version = 97")
    newer.commit()
    newer.close()
    before = path.read_bytes()

    with pytest.raises(StoreTooNewError, match=r"written by tpuctl 9\.1\.0 .*upgrade this tpuctl") as caught:
        Store.open(path, clock=FakeClock(), create=False)

    assert caught.value.exit_code == 2
    assert path.read_bytes() == before


def plan_of(store: Store, sql: str) -> str:
    return "; ".join(str(row[3]) for row in store._connection.execute(f"EXPLAIN QUERY PLAN {sql}"))


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        ("SELECT * FROM events WHERE subject = 'a' AND id > 7 ORDER BY id LIMIT 9", "events_by_subject"),
        ("SELECT * FROM events WHERE kind = 'lost' AND id > 7 ORDER BY id LIMIT 9", "events_by_kind"),
        ("SELECT * FROM events WHERE at >= 7.0", "events_by_time"),
        ("SELECT * FROM events WHERE id > 7 ORDER BY id LIMIT 9", "INTEGER PRIMARY KEY"),
        ("SELECT * FROM incarnations WHERE phase <> 'GONE'", "incarnations_existing"),
        ("SELECT * FROM incarnations WHERE pool = 'v4' AND slot = 3", "pool=? AND slot=?"),
    ],
)
def test_what_status_and_why_read_is_found_by_index(store: Store, sql: str, index: str) -> None:
    assert index in plan_of(store, sql)


def test_recent_incarnations_are_the_existing_and_the_newest_of_each_slots_past(store: Store) -> None:
    rows: list[Incarnation] = []
    for slot in range(3):
        for n in range(1, 14):
            phase = Phase.READY if n == 13 else Phase.LOST if n == 12 else Phase.GONE
            row = an_incarnation(slot, n, phase=phase, created_at=START.plus(100 * slot + n))
            rows.append(row)
    with store.transaction() as tx:
        for row in rows:
            tx.put_incarnation(row)

    with store.snapshot() as tx:
        recent = tx.recent_incarnations(2)

    assert list(recent) == [row for row in rows if row.n >= 10]


def steps_of_recent(store: Store) -> int:
    """Instructions of SQLite's machine that the reading takes."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    store._connection.set_progress_handler(step, 1)
    with store.snapshot() as tx:
        assert len(tx.recent_incarnations(1)) == 3
    store._connection.set_progress_handler(None, 1)
    return steps


def test_a_hundred_times_longer_past_of_the_slots_is_read_in_hardly_more_steps(store: Store) -> None:
    def bury(numbers: range) -> None:
        with store.transaction() as tx:
            for n in numbers:
                for slot in range(3):
                    tx.put_incarnation(an_incarnation(slot, n, phase=Phase.GONE, created_at=START.plus(n)))

    bury(range(1, 11))
    before = steps_of_recent(store)
    bury(range(11, 1001))

    assert steps_of_recent(store) <= 1.2 * before


def test_request_ids_are_forgotten_a_while_after_their_runs_were_submitted(store: Store) -> None:
    old = a_run("old", state=RunState.SUCCEEDED, submitted_at=START.plus(-9 * DAY_S))
    new = a_run("new", submitted_at=START.plus(-2 * DAY_S))
    with store.transaction() as tx:
        for run in (old, new):
            tx.put_run(run)
            tx.put_meta(f"request:{run.name}", run.id)
        tx.put_meta("request:of-no-run", "vanished-1")
        tx.put_meta("requested", "no request id")
        tx.forget_requests(START.plus(-7 * DAY_S))

    with store.snapshot() as tx:
        kept = [tx.meta(key) for key in ("request:old", "request:new", "request:of-no-run", "requested")]

    assert kept == [None, new.id, None, "no request id"]


def test_the_log_beside_the_store_shrinks_again_after_a_burst(store: Store) -> None:
    reader = Store.open(store.path, clock=FakeClock(), create=False)
    log = store.path.with_name(store.path.name + "-wal")
    with reader.snapshot() as tx:
        tx.meta("cluster")  # from here on no checkpoint can begin the log anew
        for _ in range(14):
            with store.transaction() as other:
                other.add_event(Event(START, "note", "v4-0", "x" * 1_000_000))
        assert log.stat().st_size > 8 * 2**20

    for _ in range(4):
        with store.transaction() as tx:
            tx.add_event(Event(START, "note", "v4-0", "small"))

    assert log.stat().st_size <= 8 * 2**20
    reader.close()
