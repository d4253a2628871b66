"""The planner's actions as transactions: one decision, one transaction, with the event that tells of it.

Each checks inside its transaction that the decision still holds, and does nothing when it does not: the next round
decides anew on what is.
"""

from __future__ import annotations

from dataclasses import replace

from tpuctl.agent.keep_off import keep_off
from tpuctl.base.ids import Epoch, QrName, SliceName
from tpuctl.base.units import Instant, show_duration
from tpuctl.runs.model import CloseAttempt, Rebook, StartAttempt, StopAttempt
from tpuctl.store.database import Store, Transaction
from tpuctl.store.errors import LeaseTakenError
from tpuctl.store.records import Attempt, Event, Run, RunState, Verdict


def order_attempt(store: Store, action: StartAttempt, epoch: Epoch, now: Instant, *, supervisor_lives: bool) -> bool:
    """Leases, attempt and run in one transaction. False when the decision no longer holds or a slice is not free."""
    try:
        with store.transaction() as tx:
            run = tx.run(action.run_id)
            if (
                run is None
                or run.state is not RunState.QUEUED
                or run.attempts != action.attempt - 1
                or run.cancel_asked
            ):
                return False
            slices = tuple((view.slice, view.incarnation) for view in action.slices)
            tx.take_leases(run.id, action.attempt, slices, now)
            # The number is stored before a supervisor is submitted under it, so that it never names two lives.
            activation = run.activation if supervisor_lives else run.activation + 1
            tx.put_attempt(Attempt(run.id, action.attempt, epoch, activation, slices, now))
            tx.put_run(
                replace(
                    run,
                    state=RunState.STARTING,
                    since=now,
                    reason=action.reason,
                    attempts=action.attempt,
                    activation=activation,
                    not_before=None,
                )
            )
            on = ", ".join(name for name, _ in slices)
            tx.add_event(Event(now, "attempt-ordered", run.name, f"attempt {action.attempt} on {on}: {action.reason}"))
    except LeaseTakenError:
        return False
    return True


def note_started(store: Store, attempt: Attempt, at: Instant) -> None:
    """The supervisor's journal says that all ranks run."""
    with store.transaction() as tx:
        run = tx.run(attempt.run_id)
        tx.put_attempt(replace(attempt, started_at=at))
        if run is not None and run.state is RunState.STARTING:
            tx.put_run(replace(run, state=RunState.RUNNING, since=at, reason=""))
            on = ", ".join(name for name, _ in attempt.slices)
            tx.add_event(Event(at, "started", run.name, f"attempt {attempt.n} runs on {on}"))


def order_stop(store: Store, action: StopAttempt, now: Instant) -> Attempt | None:
    """The attempt as it is now; None when it is over or was told before."""
    with store.transaction() as tx:
        run, attempt = tx.run(action.run_id), tx.attempt(action.run_id, action.attempt)
        if run is None or attempt is None or attempt.ended_at is not None or attempt.stopping_at is not None:
            return None
        stopping = replace(attempt, stopping_at=now, stop_reason=action.reason)
        tx.put_attempt(stopping)
        tx.put_run(replace(run, state=RunState.STOPPING, since=now, reason=action.reason))
        text = f"attempt {attempt.n}, grace {show_duration(action.grace_s)}: {action.reason}"
        tx.add_event(Event(now, "stopping", run.name, text))
    return stopping


def close_attempt(store: Store, action: CloseAttempt, rejoin_s: float, now: Instant) -> bool:
    """Verdict, budgets, leases and the run's next state in one transaction."""
    with store.transaction() as tx:
        run, attempt = tx.run(action.run_id), tx.attempt(action.run_id, action.attempt)
        if run is None or run.state.is_over:
            return False
        if attempt is None:
            return _close_unstarted(tx, run, action, now)
        if attempt.ended_at is not None:
            return False
        tx.put_attempt(replace(attempt, ended_at=now, verdict=action.verdict, evidence=action.evidence))
        tx.put_run(closed(run, action, now))
        tx.release_leases(run.id)
        if action.fence is not None:
            keep_off(tx, _incarnations(attempt, action.fenced), action.fence, now)
        keep_off(tx, _incarnations(attempt, action.keep_off), now.plus(rejoin_s), now)
        tx.add_event(Event(now, "verdict", run.name, f"attempt {attempt.n}: {action.verdict.value}: {action.evidence}"))
        if action.next_state.is_over:
            tx.add_event(Event(now, action.next_state.value.lower(), run.name, action.reason))
    return True


def _incarnations(attempt: Attempt, names: tuple[SliceName, ...]) -> list[QrName]:
    return [incarnation for name, incarnation in attempt.slices if name in names]


def closed(run: Run, action: CloseAttempt, now: Instant) -> Run:
    """Only *failed* spends the user's budget; host fault and lost contact share one of their own."""
    verdict = action.verdict
    over = action.next_state.is_over
    return replace(
        run,
        state=action.next_state,
        since=now,
        reason=action.reason,
        failures=run.failures + (verdict is Verdict.FAILED),
        preemptions=run.preemptions + (verdict is Verdict.PREEMPTED),
        losses=run.losses + (verdict in (Verdict.HOST_FAULT, Verdict.LOST_CONTACT)),
        not_before=action.not_before,
        exit_code=action.exit_code,
        ended_at=now if over else None,
    )


def _close_unstarted(tx: Transaction, run: Run, action: CloseAttempt, now: Instant) -> bool:
    """The planner ends a run that has no open attempt (attempt 0: cancelled in the queue)."""
    if action.attempt != 0 or run.state is not RunState.QUEUED:
        return False
    tx.put_run(closed(run, action, now))
    tx.add_event(Event(now, action.next_state.value.lower(), run.name, action.reason))
    return True


def rebook(store: Store, charge: Rebook, now: Instant) -> bool:
    """The cloud explained a loss of contact after its verdict: one charge moves to the free budget."""
    with store.transaction() as tx:
        run, attempt = tx.run(charge.run_id), tx.attempt(charge.run_id, charge.attempt)
        if run is None or attempt is None or attempt.verdict is charge.verdict or run.losses == 0:
            return False
        tx.put_attempt(replace(attempt, verdict=charge.verdict, evidence=charge.evidence))
        tx.put_run(replace(run, losses=run.losses - 1, preemptions=run.preemptions + 1))
        text = f"attempt {attempt.n} was {charge.verdict.value} after all: {charge.evidence}"
        tx.add_event(Event(now, "rebooked", run.name, text))
    return True
