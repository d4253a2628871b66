"""Verdicts, as a table of stories."""

from __future__ import annotations

import pytest

from tpuctl.base.ids import Epoch, QrName, RunId, SliceName
from tpuctl.base.units import Instant
from tpuctl.runs.model import CloudWord, HostLoss, Outcome, RankExit
from tpuctl.runs.verdict import Evidence, Hold, Judgement, judge, rebooked
from tpuctl.store.records import Attempt, Verdict

T = Instant(1_796_000_000.0)
S0, S1 = SliceName("v4-0"), SliceName("v4-1")
Q0, Q1 = QrName("lab-v4-0-t-1"), QrName("lab-v4-1-t-1")
HOLD_S = 25.0


def an_exit(
    rank: int, code: int | None, at_s: float = 0, *, by: int | None = None, before_stop: bool = True
) -> RankExit:
    return RankExit(rank, S0 if rank < 2 else S1, rank % 2, code, by, T.plus(at_s), before_stop)


def a_loss(rank: int, kind: str, at_s: float = 0) -> HostLoss:
    return HostLoss(rank, S0 if rank < 2 else S1, Q0 if rank < 2 else Q1, rank % 2, kind, T.plus(at_s))


def an_outcome(kind: str, *facts: RankExit | HostLoss, at_s: float = 1, detail: str = "") -> Outcome:
    exits = tuple(fact for fact in facts if isinstance(fact, RankExit))
    losses = tuple(fact for fact in facts if isinstance(fact, HostLoss))
    return Outcome(1, kind, exits, losses, T.plus(at_s), None, detail)


def says(state: str, at_s: float) -> tuple[CloudWord, ...]:
    return tuple(CloudWord(name, state, state.upper(), T.plus(at_s)) for name in (Q0, Q1))


def verdict(outcome: Outcome, at_s: float, words: tuple[CloudWord, ...] = (), **known: object) -> Judgement | Hold:
    evidence = Evidence(((S0, Q0), (S1, Q1)), words, **known)  # type: ignore[arg-type]  # named by each test
    return judge(outcome, evidence, T.plus(at_s), HOLD_S)


def the_verdict(found: Judgement | Hold) -> Verdict:
    assert isinstance(found, Judgement), found
    return found.verdict


def test_all_ranks_that_exit_0_succeed_at_once() -> None:
    found = verdict(an_outcome("done", an_exit(0, 0), an_exit(1, 0)), 1)

    assert isinstance(found, Judgement)
    assert (found.verdict, found.exit_code) == (Verdict.SUCCEEDED, 0)


def test_own_exit_3_is_held_for_the_detection_window_and_then_failed() -> None:
    outcome = an_outcome("exits", an_exit(1, 3), an_exit(0, None, by=15, before_stop=False))

    early = verdict(outcome, 1)
    still = verdict(outcome, 24, says("healthy", 20))
    unasked = verdict(outcome, 26, says("healthy", 20))
    late = verdict(outcome, 26, says("healthy", 25.5))

    assert isinstance(early, Hold)
    assert early.ask
    assert isinstance(still, Hold)
    assert not still.ask
    assert still.until == T.plus(HOLD_S)
    assert isinstance(unasked, Hold)
    assert unasked.ask, "the cloud must be asked after the window, not only within it"
    assert isinstance(late, Judgement)
    assert (late.verdict, late.exit_code, late.keep_off) == (Verdict.FAILED, 3, ())
    assert "rank 1 (host 1 of v4-0) exited 3" in late.evidence


def test_cloud_that_cannot_be_asked_delays_a_failure_once_more_and_no_longer() -> None:
    outcome = an_outcome("exits", an_exit(0, 1))

    assert isinstance(verdict(outcome, 49, says("unknown", 48)), Hold)
    assert the_verdict(verdict(outcome, 51, says("unknown", 48))) is Verdict.FAILED


def test_survivors_exit_codes_before_a_suspension_spend_nothing() -> None:
    """A33: host 2 vanishes; 0 exits 1, 1 exits 134, 3 exits 139; the service says SUSPENDING only later."""
    facts = (an_exit(0, 1, 5), an_exit(1, 134, 8), an_exit(3, 139, 20), a_loss(2, "unreachable", 12))

    at_once = verdict(an_outcome("hosts-lost", *facts, at_s=21), 22, says("healthy", 22))
    in_time = verdict(an_outcome("hosts-lost", *facts, at_s=21), 41, says("taken", 41))

    assert isinstance(at_once, Judgement)
    assert (at_once.verdict, at_once.keep_off) == (Verdict.LOST_CONTACT, (S1,))
    assert the_verdict(in_time) is Verdict.PREEMPTED
    attempt = Attempt(
        RunId("r"), 1, Epoch("t"), 1, ((S0, Q0), (S1, Q1)), T, ended_at=T.plus(22), verdict=Verdict.LOST_CONTACT
    )
    later = rebooked(attempt, says("taken", 41), T.plus(41), window_s=90)
    assert later is not None
    assert later.verdict is Verdict.PREEMPTED
    assert rebooked(attempt, says("healthy", 41), T.plus(41), window_s=90) is None
    assert rebooked(attempt, says("taken", 200), T.plus(200), window_s=90) is None


def test_exit_is_not_the_programs_if_ray_loses_a_host_within_the_window() -> None:
    found = verdict(an_outcome("exits", an_exit(0, 1)), 18, says("healthy", 17), broken=(S1,))

    assert isinstance(found, Judgement)
    assert (found.verdict, found.keep_off) == (Verdict.LOST_CONTACT, (S1,))


def test_exit_is_not_the_programs_if_the_cloud_takes_a_slice_within_the_window() -> None:
    assert the_verdict(verdict(an_outcome("exits", an_exit(0, 1)), 18, says("taken", 17))) is Verdict.PREEMPTED


@pytest.mark.parametrize("known", [{"noticed": (S0,)}, {"over": (S1,)}])
def test_our_own_records_of_a_notice_or_a_loss_are_the_clouds_word(known: dict[str, tuple[SliceName, ...]]) -> None:
    assert the_verdict(verdict(an_outcome("exits", an_exit(0, 1)), 2, (), **known)) is Verdict.PREEMPTED


def test_draining_host_means_preempted_at_once() -> None:
    outcome = an_outcome("hosts-lost", a_loss(1, "draining"), an_exit(0, 143, before_stop=False))

    assert the_verdict(verdict(outcome, 1)) is Verdict.PREEMPTED


@pytest.mark.parametrize("kind", ["unreachable", "dead"])
def test_lost_host_waits_only_until_the_cloud_was_asked(kind: str) -> None:
    outcome = an_outcome("hosts-lost", a_loss(1, kind))

    before, after = verdict(outcome, 1, says("healthy", 0)), verdict(outcome, 2, says("healthy", 1.5))

    assert isinstance(before, Hold)
    assert isinstance(after, Judgement)
    assert (after.verdict, after.keep_off) == (Verdict.LOST_CONTACT, (S0,))
    silent = verdict(outcome, 27)
    assert the_verdict(silent) is Verdict.LOST_CONTACT, "a cloud that does not answer cannot hold a run for ever"


def test_worker_that_died_on_a_living_node_is_the_programs_failure_after_the_hold() -> None:
    outcome = an_outcome("hosts-lost", a_loss(0, "worker-died"))

    assert isinstance(verdict(outcome, 2), Hold)
    found = verdict(outcome, 27, says("healthy", 26.5))
    assert the_verdict(found) is Verdict.FAILED


def test_refusal_to_start_is_a_host_fault_that_keeps_its_slice_off() -> None:
    outcome = an_outcome("not-started", a_loss(3, "refused"), detail="its chips are in use")

    found = verdict(outcome, 2, says("healthy", 1.5))

    assert isinstance(found, Judgement)
    assert (found.verdict, found.keep_off) == (Verdict.HOST_FAULT, (S1,))
    assert "its chips are in use" in found.evidence


def test_cancelled_run_is_cancelled_whatever_else_happened() -> None:
    outcome = an_outcome("hosts-lost", a_loss(1, "dead"), an_exit(0, 1))

    assert the_verdict(verdict(outcome, 1, says("taken", 1), cancel_asked=True)) is Verdict.CANCELLED


def test_run_that_was_done_before_its_cancel_succeeded() -> None:
    assert the_verdict(verdict(an_outcome("done", an_exit(0, 0)), 1, cancel_asked=True)) is Verdict.SUCCEEDED


def test_signal_is_shown_as_a_shell_does() -> None:
    found = verdict(an_outcome("exits", an_exit(0, None, by=9)), 27, says("healthy", 26))

    assert isinstance(found, Judgement)
    assert found.exit_code == 137
