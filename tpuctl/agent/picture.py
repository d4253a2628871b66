"""Reading the records for the documents: what handlers need, in one read transaction each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuctl.agent.answers import MissingError
from tpuctl.agent.documents import Picture, attempt_row, run_row
from tpuctl.agent.home import Scene
from tpuctl.agent.logs import ranks_of
from tpuctl.agent.places import Identity, Places
from tpuctl.base.ids import RunId
from tpuctl.fleet.pass_ import REASONS
from tpuctl.spec.document import read_cluster
from tpuctl.store.database import Store, Transaction
from tpuctl.store.events import EventFilter
from tpuctl.store.records import Attempt, Event, Run

RECENT_RUNS = 20  # that are over, beside those that live
LISTED_RUNS = 500


def find_run(tx: Transaction, name: str) -> Run:
    """By id, else the newest of that name. Raises MissingError."""
    run = tx.run(RunId(name)) or tx.newest_run_named(name)
    if run is None:
        raise MissingError(f"no run {name!r}: 'tpuctl runs' lists them")
    return run


def last_attempts(tx: Transaction, runs: tuple[Run, ...]) -> dict[RunId, Attempt]:
    found = {run.id: tx.last_attempt(run.id) for run in runs if run.attempts}
    return {run: attempt for run, attempt in found.items() if attempt is not None}


def read_picture(store: Store, me: Identity, scene: Scene, *, named: str = "") -> Picture:
    """`named`: a run that is to be in it even if it is over for long."""
    with store.snapshot() as tx:
        runs = tx.living_runs() + tx.recent_runs(RECENT_RUNS)
        extra = (tx.run(RunId(named)) or tx.newest_run_named(named)) if named else None
        if extra is not None and all(run.id != extra.id for run in runs):
            runs += (extra,)
        stored = tx.spec()
        return Picture(
            cluster=me.cluster,
            epoch=me.epoch,
            address=me.address,
            spec=None if stored is None else read_cluster(stored.document),
            wanted=tx.meta("wanted") != "down",  # never said: nothing is known, which is not "nothing is wanted"
            incarnations=tx.recent_incarnations(1),
            holds=tx.zone_holds(),
            leases=tx.leases(),
            runs=runs,
            attempts=last_attempts(tx, runs),
            last_pass=tx.last_pass(),
            ray=scene.ray,
            waits=scene.waits,
            reasons=json.loads(tx.meta(REASONS) or "{}"),
        )


def runs_document(store: Store, scene: Scene) -> dict[str, Any]:
    with store.snapshot() as tx:
        runs = tx.living_runs() + tx.recent_runs(LISTED_RUNS)
        attempts = last_attempts(tx, runs)
    return {"runs": [run_row(run, attempts.get(run.id), scene.waits) for run in runs]}


def run_document(store: Store, places: Places, scene: Scene, name: str) -> dict[str, Any]:
    with store.snapshot() as tx:
        run = find_run(tx, name)
        attempts = tx.attempts(run.id)
    row = run_row(run, attempts[-1] if attempts else None, scene.waits)
    rows = [attempt_row(attempt, ranks_of(log_directory(places, run, attempt.n))) for attempt in attempts]
    return {**row, "attempts": rows}


def log_directory(places: Places, run: Run, attempt: int) -> Path:
    return places.runs / run.id / "attempts" / str(attempt) / "logs"


@dataclass(frozen=True, slots=True)
class LogPlace:
    path: Path
    attempt: int
    finished: bool


def log_place(store: Store, places: Places, name: str, number: int, rank: int) -> LogPlace:
    """Where that output is; attempt 0 = the last one. Raises MissingError."""
    with store.snapshot() as tx:
        run = find_run(tx, name)
        attempt = tx.attempt(run.id, number or run.attempts) if run.attempts else None
    if attempt is None:
        have = f"it has {run.attempts}" if run.attempts else f"it is {run.state.value} and has none yet"
        raise MissingError(f"run {run.name!r} has no attempt {number or 'at all'}: {have}", kind="no-attempt")
    path = log_directory(places, run, attempt.n) / f"{rank}.log"
    return LogPlace(path, attempt.n, attempt.ended_at is not None)


def events_since(store: Store, since: int, limit: int, wanted: EventFilter) -> tuple[tuple[int, Event], ...]:
    with store.snapshot() as tx:
        return tx.events_since(since, limit, wanted)
