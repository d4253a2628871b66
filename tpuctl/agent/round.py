"""One round of dispatch over the records and the runs' folders: read, plan, carry out. Synchronous; no network.

Crash-only. The order is always: the store first, in one transaction a decision; then the files that follow from the
store; then, by the loop, Ray. Whatever a killed agent left undone is derived anew: a file that is missing is written,
a supervisor that is missing is submitted. What is remembered between rounds only spares work or adds patience.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from tpuctl.agent.deeds import close_attempt, note_started, order_attempt, order_stop, rebook
from tpuctl.agent.documents import newest_of_slots
from tpuctl.agent.folders import Folders
from tpuctl.agent.intake import carry_on_down
from tpuctl.agent.keep_off import read_kept_off
from tpuctl.agent.views import Jobs, Seen, job_id, slice_views, supervisor_state
from tpuctl.base.errors import UserError
from tpuctl.base.ids import Epoch, QrName, RunId, Zone, slice_name
from tpuctl.base.units import Instant
from tpuctl.cloud.model import Known
from tpuctl.runs.conduct import Limits
from tpuctl.runs.model import (
    AskCloud,
    CloseAttempt,
    CloudWord,
    RunAction,
    RunView,
    RunWant,
    StartAttempt,
    StopAttempt,
    Wait,
)
from tpuctl.runs.plan import PlanSettings, plan_runs
from tpuctl.runs.submit import MAX_LOSSES, resolve
from tpuctl.runs.verdict import rebooked
from tpuctl.spec.cluster import ClusterSpec
from tpuctl.spec.document import read_cluster, read_run
from tpuctl.store.database import Store
from tpuctl.store.records import Attempt, Incarnation, Lease, Phase, Run, RunState, Verdict

# The cloud may explain a loss of contact long after it: SUSPENDED shows minutes later.
REBOOK_WINDOW_S = 1800.0
# A supervisor leaves after idle_s without an order. One that may do so while an order is on its way gets none: the run
# would be charged for an attempt that nobody began.
REUSE_S = Limits().idle_s / 2
# Verdicts that rest on what Ray shows of the hosts: none is given while Ray cannot be seen.
RESTS_ON_RAY = frozenset({Verdict.FAILED, Verdict.HOST_FAULT, Verdict.LOST_CONTACT})

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Supervise:
    """A supervisor that should run and does not: submitting it twice is harmless, its id is its own."""

    job: str
    run_id: RunId
    activation: int


@dataclass(frozen=True, slots=True)
class Question:
    incarnation: QrName
    zone: Zone


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What is left for the loop, and what `why` and the passes want to know."""

    waits: Mapping[RunId, str] = field(default_factory=dict)
    supervise: tuple[Supervise, ...] = ()
    questions: tuple[Question, ...] = ()
    supervised: int = 0  # living runs that may have a supervisor
    changed: bool = False  # something was decided: look again soon
    unsettled_since: Instant | None = None  # the newest change of what is not where it should be
    demand: frozenset[RunId] = frozenset()  # queued runs, where a pool grows with them


@dataclass(frozen=True, slots=True)
class Facts:
    spec: ClusterSpec
    runs: tuple[Run, ...]  # living
    attempts: Mapping[RunId, Attempt]  # the last one of each
    incarnations: tuple[Incarnation, ...]
    leases: tuple[Lease, ...]
    kept_off: Mapping[QrName, Instant]

    def open_attempts(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts.values() if attempt.ended_at is None]


class Round:
    """One for the agent's life."""

    def __init__(self, folders: Folders, epoch: Epoch, settings: PlanSettings) -> None:
        self._folders = folders
        self._epoch = epoch
        self._settings = settings
        self._missed: dict[str, Instant] = {}  # job -> since when Ray has answered without it
        self._living: frozenset[RunId] | None = None

    def carry_out(self, store: Store, seen: Seen, now: Instant) -> RoundResult:
        carry_on_down(store, now)
        facts = read_facts(store, now)
        if facts is None:
            return RoundResult()  # no spec yet: nothing is wanted
        if self._note_progress(store, facts):
            facts = read_facts(store, now) or facts
        slices = slice_views(facts.incarnations, facts.leases, seen.ray, facts.kept_off)
        views = self._run_views(facts, seen.jobs, now)
        actions = plan_runs(views, slices, seen.words, now, self._settings)
        changed = [self._apply(store, action, views, facts, seen, now) for action in actions]
        after = (read_facts(store, now) or facts) if any(changed) else facts
        self._write_files(store, after, now)
        return RoundResult(
            waits=waits_of(actions, facts),
            supervise=tuple(self._missing_supervisors(after, seen.jobs)),
            questions=questions_of(actions, after.incarnations),
            supervised=len(after.attempts),
            changed=any(changed),
            unsettled_since=unsettled_since(after.spec, after.incarnations),
            demand=demand_in(after),
        )

    def _note_progress(self, store: Store, facts: Facts) -> bool:
        noted = False
        for attempt in facts.open_attempts():
            if attempt.started_at is None and (at := self._folders.started_at(attempt)) is not None:
                note_started(store, attempt, at)
                noted = True
        return noted

    def _run_views(self, facts: Facts, jobs: Jobs, now: Instant) -> tuple[RunView, ...]:
        return tuple(self._run_view(run, facts, jobs, now) for run in facts.runs)

    def _run_view(self, run: Run, facts: Facts, jobs: Jobs, now: Instant) -> RunView:
        attempt = facts.attempts.get(run.id)
        want, _ = want_of(run, facts.spec)
        if attempt is None:
            return RunView(run, want, None, None, supervisor_state(None, jobs, self._epoch, False, None))
        name = job_id(attempt.run_id, attempt.epoch, attempt.activation)
        if jobs is not None and name not in jobs:
            self._missed.setdefault(name, now)
        elif jobs is not None:
            self._missed.pop(name, None)
        began = self._folders.began(attempt)
        state = supervisor_state(attempt, jobs, self._epoch, began, self._missed.get(name))
        # Read after the jobs were: an outcome written last is there when its supervisor is seen to be gone.
        outcome = self._folders.outcome(attempt) if attempt.ended_at is None else None
        return RunView(run, want, attempt, outcome, state)

    def _apply(
        self,
        store: Store,
        action: RunAction,
        views: Iterable[RunView],
        facts: Facts,
        seen: Seen,
        now: Instant,
    ) -> bool:
        match action:
            case StartAttempt():
                view = next(view for view in views if view.run.id == action.run_id)
                return order_attempt(store, action, self._epoch, now, supervisor_lives=self._lives(view, now))
            case StopAttempt():
                attempt = order_stop(store, action, now)
                if attempt is not None:
                    self._folders.write_stop(attempt, action.grace_s)
                return attempt is not None
            case CloseAttempt():
                if action.verdict in RESTS_ON_RAY and not isinstance(seen.ray, Known):
                    return False
                return close_attempt(store, action, facts.spec.detection.rejoin_s, now)
            case AskCloud() | Wait():
                return self._rebook(store, action.run_id, facts, seen.words, now)
            case _:
                assert_never(action)

    def _rebook(self, store: Store, run_id: RunId, facts: Facts, words: tuple[CloudWord, ...], now: Instant) -> bool:
        """A loss of contact that the cloud has explained since is charged to it."""
        run = next(run for run in facts.runs if run.id == run_id)
        if not run.losses:
            return False
        told = words + words_of_records(facts.incarnations)
        with store.snapshot() as tx:
            attempts = tx.attempts(run_id)
        found = [charge for attempt in attempts if (charge := rebooked(attempt, told, now, REBOOK_WINDOW_S))]
        done = [rebook(store, charge, now) for charge in found]
        return any(done)

    def _lives(self, view: RunView, now: Instant) -> bool:
        """The supervisor of the last attempt can take another order: it runs, in this epoch, and is not about to leave
        for want of orders."""
        attempt = view.attempt
        if attempt is None or attempt.epoch != self._epoch or view.supervisor.state != "running":
            return False
        return attempt.ended_at is None or now.since(attempt.ended_at) < REUSE_S

    def _write_files(self, store: Store, facts: Facts, now: Instant) -> None:
        """Files follow the store. Each call writes only what is missing."""
        runs = {run.id: run for run in facts.runs}
        rows = {row.name: row for row in facts.incarnations}
        for attempt in facts.open_attempts():
            run = runs[attempt.run_id]
            self._folders.write_order(run, attempt, rows, facts.spec, now)
            self._folders.write_stop(attempt, read_run(run.spec_json).checkpoint.grace_s)
        self._end_supervisors(store, frozenset(runs), now)

    def _end_supervisors(self, store: Store, living: frozenset[RunId], now: Instant) -> None:
        """Tell the supervisors of runs that are over to leave; in the first round of a life, those of all such runs."""
        if self._living == living:
            return
        with store.snapshot() as tx:
            before = frozenset(run.id for run in tx.runs()) if self._living is None else self._living
            over = [run for run in (tx.run(run_id) for run_id in before - living) if run is not None]
        for run in over:
            self._folders.end_activation(run.id, run.activation, now)
        self._living = living

    def _missing_supervisors(self, facts: Facts, jobs: Jobs) -> Iterable[Supervise]:
        for attempt in facts.open_attempts():
            name = job_id(attempt.run_id, attempt.epoch, attempt.activation)
            # One of an older epoch is not brought back: its head is gone, and hosts refuse what it ordered.
            wanted = attempt.epoch == self._epoch and not self._folders.began(attempt)
            if wanted and jobs is not None and name not in jobs:
                yield Supervise(name, attempt.run_id, attempt.activation)


def read_facts(store: Store, now: Instant) -> Facts | None:
    with store.snapshot() as tx:
        stored = tx.spec()
        if stored is None:
            return None
        runs = tx.living_runs()
        lasts = {run.id: tx.last_attempt(run.id) for run in runs if run.attempts}
        return Facts(
            read_cluster(stored.document),
            runs,
            {run: attempt for run, attempt in lasts.items() if attempt is not None},
            tx.recent_incarnations(1),
            tx.leases(),
            read_kept_off(tx, now),
        )


def want_of(run: Run, spec: ClusterSpec) -> tuple[RunWant, str]:
    """What it wants, and why the cluster has no place for it: the spec may have changed since it was submitted.

    Such a run waits, and `why` says so; the spec that would help may come back.
    """
    run_spec = read_run(run.spec_json)
    try:
        return resolve(run_spec, spec), ""
    except UserError as error:
        return RunWant((), (), run_spec.min_slices, run_spec.max_slices, run_spec.max_failures, MAX_LOSSES), str(error)


def waits_of(actions: Iterable[RunAction], facts: Facts) -> dict[RunId, str]:
    waits = {action.run_id: action.reason for action in actions if not isinstance(action, StartAttempt)}
    for run in facts.runs:
        if run.state is RunState.QUEUED and (obstacle := want_of(run, facts.spec)[1]):
            waits[run.id] = obstacle
    return waits


def demand_in(facts: Facts) -> frozenset[RunId]:
    if all(pool.slices.is_fixed for pool in facts.spec.pools):
        return frozenset()
    return frozenset(run.id for run in facts.runs if run.state is RunState.QUEUED)


def words_of_records(rows: Iterable[Incarnation]) -> tuple[CloudWord, ...]:
    """What passes have learned from the cloud says as much as an answer of our own."""
    return tuple(
        CloudWord(row.name, "taken", row.reason or f"{row.name} is {row.phase.value}", row.since)
        for row in rows
        if row.phase is Phase.LOST
    )


def questions_of(actions: Iterable[RunAction], rows: Iterable[Incarnation]) -> tuple[Question, ...]:
    zones = {row.name: row.zone for row in rows}
    asked = (name for action in actions if isinstance(action, AskCloud) for name in action.incarnations)
    return tuple(Question(name, zones[name]) for name in dict.fromkeys(asked) if name in zones)


def unsettled_since(spec: ClusterSpec, rows: Iterable[Incarnation]) -> Instant | None:
    """The newest change of what is not where it should be; None: a pass a minute is enough."""
    wanted = {slice_name(pool.name, slot) for pool in spec.pools for slot in range(pool.slices.min)}
    newest = newest_of_slots(rows)
    changes = [row.since for row in rows if row.phase not in (Phase.READY, Phase.GONE)]
    changes += [row.since for name, row in newest.items() if row.phase is Phase.GONE and name in wanted]
    return max(changes, default=None)
