"""How an attempt ended, judged from evidence. Pure: the time and the cloud's words are arguments.

Exit codes alone judge nothing. When a slice goes, the programs on its neighbours lose their peer and exit 1, 134 or 139
seconds before Ray or the cloud says why (A33). So:

* a notice (draining) and the cloud's "taken" mean *preempted*, at once;
* a host that could not be reached excludes *failed*, at once: *lost contact*, after the cloud was asked;
* a non-zero exit with every host healthy is held until `hold_s` after it, then the cloud is asked once more; if it too
  says healthy, the program *failed*;
* a Ray worker that died on a living node is treated like such an exit: out of memory, or a crash.

A loss of contact is not held, because the next attempt starts the same way whichever verdict it is: waiting would only
cost steps. If the cloud says "taken" afterwards, `rebooked` moves the charge to preemptions.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpuctl.base.ids import QrName, SliceName
from tpuctl.base.units import Instant, show_duration
from tpuctl.runs.model import CloudWord, HostLoss, Outcome, RankExit, Rebook
from tpuctl.store.records import Attempt, Verdict


@dataclass(frozen=True, slots=True)
class Hold:
    """No verdict yet. `ask`: the cloud must be asked again before one is possible."""

    until: Instant
    ask: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Judgement:
    verdict: Verdict
    evidence: str
    exit_code: int | None  # of the program: 0, its status, 128 + signal; None when it has none
    keep_off: tuple[SliceName, ...]  # slices that lost contact


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of an ended attempt besides its outcome."""

    slices: tuple[tuple[SliceName, QrName], ...]  # the attempt's, in rank order
    words: tuple[CloudWord, ...]  # the newest word of each incarnation, as far as there is one
    cancel_asked: bool = False
    noticed: tuple[SliceName, ...] = ()  # DRAINING by our records
    over: tuple[SliceName, ...] = ()  # LOST or replaced by our records: the cloud's word of an earlier pass
    broken: tuple[SliceName, ...] = ()  # not whole in Ray's table now, or SUSPECT


# A word older than this says nothing about a moment when something went wrong just now.
ASK_AGAIN_S = 5.0


def judge(outcome: Outcome, evidence: Evidence, now: Instant, hold_s: float) -> Judgement | Hold:
    """The verdict on an ended attempt, or how long to wait for it. Rules: the module's docstring."""
    if outcome.kind == "done":
        return Judgement(Verdict.SUCCEEDED, f"all {len(outcome.exits)} ranks exited 0", 0, ())
    keep_off = _out_of_reach(outcome, evidence)
    if evidence.cancel_asked:
        return Judgement(Verdict.CANCELLED, f"cancelled; {_what_happened(outcome)}", None, keep_off)
    taken = _taken(outcome, evidence)
    if taken:
        return Judgement(Verdict.PREEMPTED, f"{taken}; {_what_happened(outcome)}", None, keep_off)
    if keep_off or outcome.kind in ("not-started", "stopped"):
        return _judge_loss(outcome, evidence, keep_off, now, hold_s)
    return _judge_exits(outcome, evidence, now, hold_s)


def rebooked(attempt: Attempt, words: tuple[CloudWord, ...], now: Instant, window_s: float) -> Rebook | None:
    """A loss of contact that the cloud explains afterwards, within `window_s` of its verdict, was a preemption."""
    if (
        attempt.verdict is not Verdict.LOST_CONTACT
        or attempt.ended_at is None
        or now.since(attempt.ended_at) > window_s
    ):
        return None
    names = {incarnation for _, incarnation in attempt.slices}
    for word in words:
        if word.incarnation in names and word.state == "taken":
            evidence = f"{attempt.evidence}; later the cloud said of {word.incarnation}: {word.text}"
            return Rebook(attempt.run_id, attempt.n, Verdict.PREEMPTED, evidence)
    return None


def first_bad_exit(outcome: Outcome) -> RankExit | None:
    """The earliest non-zero exit that nobody asked for: the likeliest cause. None if there is none."""
    bad = [rank for rank in outcome.exits if rank.before_stop and (rank.code != 0 or rank.signal is not None)]
    return min(bad, key=lambda rank: (rank.at, rank.rank), default=None)


def exit_status(rank: RankExit) -> int:
    """As a shell gives it: the code, or 128 + signal."""
    return 128 + rank.signal if rank.signal is not None else (rank.code or 0)


def _out_of_reach(outcome: Outcome, evidence: Evidence) -> tuple[SliceName, ...]:
    """Slices that lost a host, by the supervisor's facts or by Ray's table since then, or whose chips are not free."""
    lost = {loss.slice for loss in outcome.losses if loss.kind in ("unreachable", "dead", "draining", "left")}
    return tuple(name for name, _ in evidence.slices if name in lost or name in evidence.broken)


def _taken(outcome: Outcome, evidence: Evidence) -> str:
    """Why the service, and not the program, ended it; "" when nothing says so."""
    for word in evidence.words:
        if word.state == "taken":
            return f"the cloud took {word.incarnation}: {word.text}"
    if evidence.over:
        return f"the cloud took {evidence.over[0]}"
    draining = [loss for loss in outcome.losses if loss.kind == "draining"]
    if draining:
        # A notice is the cloud's word too: the host read it from the metadata server.
        return f"host {draining[0].worker} of {draining[0].slice} was told that it goes"
    return f"{evidence.noticed[0]} was told that it goes" if evidence.noticed else ""


def _judge_loss(
    outcome: Outcome, evidence: Evidence, keep_off: tuple[SliceName, ...], now: Instant, hold_s: float
) -> Judgement | Hold:
    asked = _all_asked_since(evidence, outcome.at)
    held = outcome.at.plus(hold_s)
    if not asked and now < held:
        return Hold(held, _may_ask(evidence, now), f"{_what_happened(outcome)}; asking the cloud about it")
    said = _cloud_said(evidence)
    if not keep_off and outcome.kind == "not-started":
        return Judgement(Verdict.HOST_FAULT, f"{_what_happened(outcome)}; {said}", None, _at_fault(outcome))
    return Judgement(Verdict.LOST_CONTACT, f"{_what_happened(outcome)}; {said}", None, keep_off)


def _judge_exits(outcome: Outcome, evidence: Evidence, now: Instant, hold_s: float) -> Judgement | Hold:
    bad = first_bad_exit(outcome)
    held = (bad.at if bad else outcome.at).plus(hold_s)
    if now < held:
        reason = f"{_what_happened(outcome)}; held until {held.iso()} in case a slice turns out to be gone"
        return Hold(held, _may_ask(evidence, now), reason)
    unheard = not _all_asked_since(evidence, held)
    if unheard and now < held.plus(hold_s):
        return Hold(held.plus(hold_s), _may_ask(evidence, now), f"{_what_happened(outcome)}; asking the cloud about it")
    healthy = f"all hosts stayed in Ray for {show_duration(hold_s)}"
    evidence_text = f"{_what_happened(outcome)}; {healthy}; {_cloud_said(evidence)}"
    return Judgement(Verdict.FAILED, evidence_text, None if bad is None else exit_status(bad), ())


def _all_asked_since(evidence: Evidence, moment: Instant) -> bool:
    """Each slice has an answer, asked for after that moment. A call that failed is no answer."""
    heard = {word.incarnation for word in evidence.words if word.asked_at >= moment and word.state != "unknown"}
    return all(incarnation in heard for _, incarnation in evidence.slices)


def _may_ask(evidence: Evidence, now: Instant) -> bool:
    newest = {word.incarnation: word.asked_at for word in evidence.words}
    times = [newest.get(incarnation) for _, incarnation in evidence.slices]
    return any(at is None or now.since(at) >= ASK_AGAIN_S for at in times)


def _cloud_said(evidence: Evidence) -> str:
    if not evidence.words:
        return "the cloud could not be asked"
    return "the cloud says " + ", ".join(f"{word.incarnation}: {word.text or word.state}" for word in evidence.words)


def _at_fault(outcome: Outcome) -> tuple[SliceName, ...]:
    return tuple(dict.fromkeys(loss.slice for loss in outcome.losses))


def _what_happened(outcome: Outcome) -> str:
    parts = [_show_loss(loss) for loss in outcome.losses]
    bad = first_bad_exit(outcome)
    if bad is not None:
        ended = f"was ended by signal {bad.signal}" if bad.signal is not None else f"exited {bad.code}"
        parts.append(f"rank {bad.rank} (host {bad.worker} of {bad.slice}) {ended}")
    if outcome.detail:
        parts.append(outcome.detail)
    return "; ".join(parts) or f"attempt {outcome.attempt}: {outcome.kind}"


def _show_loss(loss: HostLoss) -> str:
    words = {
        "unreachable": "could not be reached",
        "dead": "is dead by Ray's word",
        "draining": "is draining",
        "worker-died": "lost its Ray worker while the node lives (out of memory, or a crash)",
        "refused": "refused to start the program",
        "left": "has processes of the attempt that could not be ended",
    }
    return f"host {loss.worker} of {loss.slice} {words.get(loss.kind, loss.kind)}"
