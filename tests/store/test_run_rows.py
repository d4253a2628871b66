from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest

from tpuctl.base.ids import QrName, RunId
from tpuctl.store.database import Store
from tpuctl.store.records import Attempt, Event, Incarnation, Lease, Phase, RunState, Verdict
from tpuctl.store.run_rows import LeaseTakenError
from tpuctl.testing.builders import EPOCH, a_run, an_incarnation
from tpuctl.testing.clock import START

RUN = a_run()


def with_slices(store: Store, *rows: Incarnation) -> None:
    with store.transaction() as tx:
        tx.put_run(RUN)
        for row in rows:
            tx.put_incarnation(row)


def test_runs_and_attempts_come_back_whole(store: Store) -> None:
    run = replace(RUN, state=RunState.FAILED, not_before=START, cancel_asked=True, exit_code=3, ended_at=START.plus(9))
    slices = ((an_incarnation().slice_name, an_incarnation().name),)
    attempt = Attempt(run.id, 2, EPOCH, 1, slices, START, verdict=Verdict.PREEMPTED, evidence="node PREEMPTED")
    with store.transaction() as tx:
        tx.put_run(run)
        tx.put_attempt(replace(attempt, n=1, verdict=None))
        tx.put_attempt(attempt)

    with store.snapshot() as tx:
        assert tx.run(run.id) == run
        assert tx.last_attempt(run.id) == attempt
        assert [each.n for each in tx.attempts(run.id)] == [1, 2]
        assert tx.attempt(run.id, 3) is None


def test_a_name_is_taken_while_its_run_lives_and_free_afterwards(store: Store) -> None:
    second = replace(RUN, id=RunId("digits-2"), submitted_at=START.plus(1))
    with store.transaction() as tx:
        tx.put_run(RUN)
    with pytest.raises(sqlite3.IntegrityError), store.transaction() as tx:
        tx.put_run(second)

    with store.transaction() as tx:
        tx.put_run(replace(RUN, state=RunState.SUCCEEDED, ended_at=START))
        tx.put_run(second)

    with store.snapshot() as tx:
        assert tx.newest_run_named("digits") == second
        assert tx.living_runs() == tx.runs_in([RunState.QUEUED]) == (second,)
        assert [run.id for run in tx.recent_runs(5)] == [RUN.id]


def test_leases_are_taken_and_released_together(store: Store) -> None:
    rows = [an_incarnation(0), an_incarnation(1)]
    with_slices(store, *rows)
    with store.transaction() as tx:
        tx.take_leases(RUN.id, 1, [(row.slice_name, row.name) for row in rows], START)
        assert tx.leases() == tuple(Lease(row.slice_name, row.name, RUN.id, 1, START) for row in rows)
        assert tx.holder_of(rows[0].name) == RUN.id
        tx.release_leases(RUN.id)
        assert tx.leases() == ()


@pytest.mark.parametrize(
    "second",
    [
        an_incarnation(1, phase=Phase.SUSPECT),
        an_incarnation(1, delete_request_id="d"),
        None,
    ],
    ids=["not-ready", "being-deleted", "unknown"],
)
def test_one_slice_that_is_not_to_be_had_takes_none(store: Store, second: Incarnation | None) -> None:
    first = an_incarnation(0)
    with_slices(store, first, *([second] if second else []))
    wanted = [(row.slice_name, row.name) for row in (first, second or an_incarnation(1))]

    with store.transaction() as tx, pytest.raises(LeaseTakenError, match="v4-1"):
        tx.take_leases(RUN.id, 1, wanted, START)

    with store.snapshot() as tx:
        assert tx.leases() == ()


def test_a_leased_slice_is_not_leased_again(store: Store) -> None:
    row = an_incarnation()
    with_slices(store, row)
    with store.transaction() as tx:
        tx.take_leases(RUN.id, 1, [(row.slice_name, row.name)], START)

    with store.transaction() as tx, pytest.raises(LeaseTakenError, match=f"run {RUN.id} holds it"):
        tx.take_leases(RunId("other-1"), 1, [(row.slice_name, row.name)], START)


def test_a_former_incarnation_of_the_slice_is_not_leased(store: Store) -> None:
    former, present = an_incarnation(0, 1, phase=Phase.GONE), an_incarnation(0, 2)
    with_slices(store, former, present)

    with store.transaction() as tx, pytest.raises(LeaseTakenError, match="GONE"):
        tx.take_leases(RUN.id, 1, [(former.slice_name, former.name)], START)


def test_events_are_read_on_from_the_last_one_seen(store: Store) -> None:
    events = [Event(START.plus(number), "ready", QrName("q"), str(number)) for number in range(3)]
    with store.transaction() as tx:
        for event in events:
            tx.add_event(event)

    with store.snapshot() as tx:
        first = tx.events_since(0, 2)
        rest = tx.events_since(first[-1][0], 2)

    assert [event for _, event in first + rest] == events


def test_the_spec_and_single_facts_are_replaced_whole(store: Store) -> None:
    with store.transaction() as tx:
        assert tx.spec() is None
        tx.put_spec("{}", "d1", START)
        tx.put_spec('{"a": 1}', "d2", START.plus(1))
        tx.put_meta("wanted", "up")
        tx.put_meta("wanted", "down")

    with store.snapshot() as tx:
        stored = tx.spec()
        assert stored is not None
        assert (stored.document, stored.digest, stored.at) == ('{"a": 1}', "d2", START.plus(1))
        assert (tx.meta("wanted"), tx.meta("epoch")) == ("down", None)
