"""What to do with a run whose attempt is open: wait, stop it, ask the cloud, or close it with a verdict. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tpuctl.base.ids import QrName, SliceName
from tpuctl.base.units import Instant, show_duration
from tpuctl.runs.model import (
    AskCloud,
    CloseAttempt,
    CloudWord,
    Outcome,
    RunAction,
    RunView,
    SliceView,
    StopAttempt,
    Wait,
)
from tpuctl.runs.verdict import Evidence, Hold, Judgement, judge
from tpuctl.store.records import Attempt, Phase, Run, RunState, Verdict


@dataclass(frozen=True, slots=True)
class PlanSettings:
    hold_s: float = 25.0  # detection.hold: how long a non-zero exit waits for evidence
    ray_dead_s: float = 3.0  # Ray must have missed a supervisor for so long before it counts as gone
    pause_s: float = 1.0  # before any next attempt; doubles with each charged end
    max_pause_s: float = 60.0
    lease_s: float = 10.0  # a host without renewals ends its program after this long
    fence_margin_s: float = 2.0
    start_limit_s: float = 300.0  # from the order to "all ranks started"
    stop_patience_s: float = 30.0  # beyond the grace; then a supervisor that never came up is given up
    short_grace_s: float = 2.0  # for the rest of a gang whose slice is gone: nothing will come of it
    notice_grace_s: float = 25.0  # a notice gives about 30 s


def is_open(view: RunView) -> bool:
    return view.attempt is not None and view.attempt.ended_at is None


def plan_attempt(
    view: RunView,
    slices: tuple[SliceView, ...],
    words: tuple[CloudWord, ...],
    now: Instant,
    settings: PlanSettings,
) -> RunAction:
    """The one action that an open attempt calls for."""
    attempt = view.attempt
    if attempt is None:
        raise ValueError(f"run {view.run.id} has no attempt")
    if view.outcome is not None and view.outcome.attempt == attempt.n:
        return _end(view, attempt, view.outcome, _evidence(view.run, attempt, slices, words), now, settings)
    if _supervisor_gone(view, now, settings):
        return _abandon(view, attempt, now, settings)
    if attempt.stopping_at is not None:
        return _await_stop(view, attempt, now, settings)
    return _watch(view, attempt, slices, now, settings)


def close_without_attempt(view: RunView) -> CloseAttempt:
    """A queued run that its user cancelled. Attempt 0: none was open."""
    reason = "cancelled while it was queued"
    return CloseAttempt(view.run.id, 0, Verdict.CANCELLED, reason, RunState.CANCELLED, None, None, (), reason)


def _evidence(run: Run, attempt: Attempt, slices: tuple[SliceView, ...], words: tuple[CloudWord, ...]) -> Evidence:
    names = {incarnation for _, incarnation in attempt.slices}
    views = _views(attempt, slices)
    return Evidence(
        attempt.slices,
        tuple(word for word in words if word.incarnation in names),
        cancel_asked=run.cancel_asked,
        noticed=tuple(name for name, view in views if view.phase is Phase.DRAINING),
        over=tuple(name for name, view in views if _is_over(attempt, view)),
        broken=tuple(name for name, view in views if view.phase is Phase.SUSPECT or not view.whole),
    )


def _views(attempt: Attempt, slices: tuple[SliceView, ...]) -> list[tuple[SliceName, SliceView]]:
    """The attempt's slices as they are now. One that is not listed says nothing: unknown is not absent."""
    by_name = {view.slice: view for view in slices}
    return [(name, by_name[name]) for name, _ in attempt.slices if name in by_name]


def _is_over(attempt: Attempt, view: SliceView) -> bool:
    """The incarnation that the attempt runs on is gone: by its phase, or because its slot has a successor."""
    return view.phase.is_over or (view.slice, view.incarnation) not in attempt.slices


def _supervisor_gone(view: RunView, now: Instant, settings: PlanSettings) -> bool:
    """Ray answered and has no such job, for long enough that an outcome written last would have been read."""
    if view.supervisor.state not in ("absent", "ended"):
        return False
    return view.supervisor.since is None or now.since(view.supervisor.since) >= settings.ray_dead_s


def _watch(
    view: RunView, attempt: Attempt, slices: tuple[SliceView, ...], now: Instant, settings: PlanSettings
) -> RunAction:
    def stop(grace_s: float, reason: str) -> StopAttempt:
        return StopAttempt(view.run.id, attempt.n, grace_s, reason)

    grace_s = view.want.grace_s
    if view.run.cancel_asked:
        return stop(grace_s, "cancelled")
    for name, seen in _views(attempt, slices):
        # Programs may never notice that a peer is gone, or never exit (A38): whole gangs are ended from here.
        if _is_over(attempt, seen):
            return stop(min(grace_s, settings.short_grace_s), f"{name} is gone")
        if seen.phase is Phase.DRAINING:
            return stop(min(grace_s, settings.notice_grace_s), f"{name} was told that it goes")
        if seen.phase is Phase.SUSPECT:
            return stop(min(grace_s, settings.short_grace_s), f"{name} lost contact")
    waited_s = now.since(attempt.ordered_at)
    if attempt.started_at is None:
        if waited_s > settings.start_limit_s:
            return stop(0.0, f"not started after {show_duration(waited_s)}")
        return Wait(view.run.id, f"attempt {attempt.n} is starting on {_places(attempt)}; {_say(view)}")
    return Wait(view.run.id, f"attempt {attempt.n} runs on {_places(attempt)}; {_say(view)}")


def _await_stop(view: RunView, attempt: Attempt, now: Instant, settings: PlanSettings) -> RunAction:
    stopping_s = now.since(attempt.stopping_at or now)
    overdue = stopping_s > view.want.grace_s + settings.stop_patience_s
    if overdue and view.supervisor.state == "starting":
        # It finds the stop order before anything else if it ever comes up, so nothing can start any more.
        return _abandon(view, attempt, now, settings)
    told = f"stopping for {show_duration(max(0.0, stopping_s))}: {attempt.stop_reason}"
    return Wait(view.run.id, f"{told}; longer than its grace, {_say(view)}" if overdue else told)


def _end(
    view: RunView, attempt: Attempt, outcome: Outcome, evidence: Evidence, now: Instant, settings: PlanSettings
) -> RunAction:
    found = judge(outcome, evidence, now, settings.hold_s)
    if isinstance(found, Hold):
        if found.ask:
            names: tuple[QrName, ...] = tuple(incarnation for _, incarnation in attempt.slices)
            return AskCloud(view.run.id, attempt.n, names, found.reason)
        return Wait(view.run.id, found.reason)
    fence = None if _all_gone(outcome, evidence) else outcome.fence_until
    lost = tuple(dict.fromkeys(loss.slice for loss in outcome.losses))
    # A gang that was up has said of each rank how it ended; else any of them may have been started.
    fenced = lost if outcome.kind == "hosts-lost" else _names(attempt)
    return _close(view, attempt, found, fenced, fence, now, settings)


def _all_gone(outcome: Outcome, evidence: Evidence) -> bool:
    """Each host that was lost belongs to a node that exists no more: there is nobody left to fence.

    Only a gang that was up accounts for all its ranks. One that did not come up may have started programs on hosts that
    are in no loss: those keep their fence.
    """
    gone = {word.incarnation for word in evidence.words if word.node_gone}
    return outcome.kind == "hosts-lost" and all(loss.incarnation in gone for loss in outcome.losses)


def _abandon(view: RunView, attempt: Attempt, now: Instant, settings: PlanSettings) -> CloseAttempt:
    """No outcome will come. Programs end by their watchdogs, at the latest when their lease runs out."""
    verdict = Verdict.CANCELLED if view.run.cancel_asked else Verdict.LOST_CONTACT
    evidence = f"the supervisor of attempt {attempt.n} is gone without an outcome (the head or its Ray restarted)"
    fence = now.plus(settings.lease_s + settings.fence_margin_s)
    return _close(view, attempt, Judgement(verdict, evidence, None, ()), _names(attempt), fence, now, settings)


def _close(
    view: RunView,
    attempt: Attempt,
    found: Judgement,
    fenced: tuple[SliceName, ...],
    fence: Instant | None,
    now: Instant,
    settings: PlanSettings,
) -> CloseAttempt:
    state, reason, charged = _next_state(view, found)
    not_before: Instant | None = None
    if state is RunState.QUEUED:
        pause_s = min(settings.max_pause_s, settings.pause_s * 2.0 ** max(0, min(charged - 1, 16)))
        not_before = max(now.plus(pause_s), fence or now)
    return CloseAttempt(
        view.run.id,
        attempt.n,
        found.verdict,
        found.evidence,
        state,
        not_before,
        found.exit_code,
        found.keep_off,
        reason,
        () if fence is None else fenced,
        fence,
    )


def _next_state(view: RunView, found: Judgement) -> tuple[RunState, str, int]:
    """Where the run goes, why, and how often this kind of end was charged (0 for what is free)."""
    run, want = view.run, view.want
    match found.verdict:
        case Verdict.SUCCEEDED:
            return RunState.SUCCEEDED, found.evidence, 0
        case Verdict.CANCELLED:
            return RunState.CANCELLED, found.evidence, 0
        case Verdict.PREEMPTED:
            return RunState.QUEUED, f"preempted: {found.evidence}", 0
        case Verdict.FAILED:
            spent = f"failure {run.failures + 1}, max_failures {want.max_failures}"
            over = run.failures + 1 > want.max_failures
            return _bounded(over), f"failed ({spent}): {found.evidence}", run.failures + 1
        case Verdict.HOST_FAULT | Verdict.LOST_CONTACT:
            spent = f"loss {run.losses + 1} of at most {want.max_losses}"
            over = run.losses + 1 > want.max_losses
            return _bounded(over), f"{found.verdict.value} ({spent}): {found.evidence}", run.losses + 1


def _bounded(over: bool) -> RunState:
    return RunState.FAILED if over else RunState.QUEUED


def _names(attempt: Attempt) -> tuple[SliceName, ...]:
    return tuple(name for name, _ in attempt.slices)


def _places(attempt: Attempt) -> str:
    return ", ".join(_names(attempt))


def _say(view: RunView) -> str:
    return f"its supervisor is {view.supervisor.state}"
