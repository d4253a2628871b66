"""The queue and the life of attempts, as decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpuctl.base.ids import Epoch, PoolName, QrName, RunId, RunName, SliceName, Zone
from tpuctl.base.units import Instant
from tpuctl.runs.model import (
    AskCloud,
    CloseAttempt,
    CloudWord,
    HostLoss,
    Outcome,
    RankExit,
    RunAction,
    RunView,
    RunWant,
    SliceView,
    StartAttempt,
    StopAttempt,
    SupervisorState,
    Wait,
)
from tpuctl.runs.plan import PlanSettings, plan_runs
from tpuctl.store.records import Attempt, Phase, Run, RunState, Verdict

NOW = Instant(1_796_000_000.0)
SETTINGS = PlanSettings()


def a_slice(name: str = "v4-0", *, zone: str = "b", accelerator: str = "v4-16", **fields: Any) -> SliceView:
    pool = name.rsplit("-", 1)[0]
    view = SliceView(
        SliceName(name),
        QrName(f"lab-{name}-t-1"),
        PoolName(pool),
        Zone(zone),
        accelerator,
        2,
        4,
        Phase.READY,
        True,
        None,
    )
    return replace(view, **fields)


def a_run(
    name: str = "a",
    *,
    slices: int | tuple[int, int] = 1,
    pools: tuple[str, ...] = ("v4",),
    age_s: float = 0,
    **run: Any,
) -> RunView:
    least, most = slices if isinstance(slices, tuple) else (slices, slices)
    row = Run(RunId(f"{name}-id"), RunName(name), "{}", "me", 0, RunState.QUEUED, NOW, NOW.plus(-age_s))
    want = RunWant(tuple(map(PoolName, pools)), ("v4-16", "v5litepod-16"), least, most, 3, 10, 30.0)
    return RunView(replace(row, **run), want, None, None, SupervisorState("absent"))


def running(view: RunView, *slices: SliceView, supervisor: str = "running", **attempt: Any) -> RunView:
    places = tuple((each.slice, each.incarnation) for each in slices)
    row = Attempt(view.run.id, 1, Epoch("t"), 1, places, NOW.plus(-100), started_at=NOW.plus(-90))
    run = replace(view.run, state=RunState.RUNNING, attempts=1)
    return replace(view, run=run, attempt=replace(row, **attempt), supervisor=SupervisorState(supervisor))


def plan(runs: list[RunView], slices: list[SliceView], *words: CloudWord, now: Instant = NOW) -> list[RunAction]:
    return list(plan_runs(tuple(runs), tuple(slices), words, now, SETTINGS))


def started(actions: list[RunAction]) -> dict[str, list[str]]:
    return {each.run_id: [view.slice for view in each.slices] for each in actions if isinstance(each, StartAttempt)}


def the_wait(actions: list[RunAction], run_id: str) -> str:
    return next(each.reason for each in actions if isinstance(each, Wait) and each.run_id == run_id)


# The queue.


def test_higher_priority_and_then_the_older_run_goes_first() -> None:
    runs = [a_run("young", age_s=1), a_run("old", age_s=9), a_run("urgent", priority=5)]

    actions = plan(runs, [a_slice("v4-0"), a_slice("v4-1")])

    assert started(actions) == {"urgent-id": ["v4-0"], "old-id": ["v4-1"]}
    assert the_wait(actions, "young-id") == (
        "waits for 1 slice of v4-16 in b: v4-0 is kept for run urgent, which comes first, "
        "v4-1 is kept for run old, which comes first"
    )


def test_wait_says_what_is_missing_and_who_has_it() -> None:
    holder = a_run("first")
    slices = [a_slice("v4-0", lease=holder.run.id), a_slice("v4-1", phase=Phase.PROVISIONING, whole=False)]

    actions = plan([running(holder, slices[0]), a_run("second")], slices)

    expected = "waits for 1 slice of v4-16 in b: v4-0 is held by run first, v4-1 is PROVISIONING"
    assert the_wait(actions, "second-id") == expected


def test_gang_starts_with_its_minimum_and_takes_up_to_its_maximum() -> None:
    slices = [a_slice(f"v4-{n}") for n in (10, 2, 9, 1)]

    assert started(plan([a_run(slices=(1, 3))], slices)) == {"a-id": ["v4-1", "v4-2", "v4-9"]}
    assert started(plan([a_run(slices=(2, 3))], slices[:2])) == {"a-id": ["v4-2", "v4-10"]}
    assert started(plan([a_run(slices=(2, 3))], slices[:1])) == {}


def test_slices_of_a_type_without_multislice_are_taken_one_at_a_time() -> None:  # A19
    run = a_run(slices=(1, 2))
    run = replace(run, want=replace(run.want, accelerators=("v2-8",)))
    slices = [a_slice(f"v4-{n}", accelerator="v2-8") for n in range(2)]

    assert started(plan([run], slices)) == {"a-id": ["v4-0"]}


def test_gang_never_mixes_zones_or_types() -> None:
    slices = [a_slice("v4-0", zone="b"), a_slice("v4-1", zone="c"), a_slice("v5-0", accelerator="v5litepod-16")]

    actions = plan([a_run(slices=2, pools=("v4", "v5"))], slices)

    assert started(actions) == {}
    assert "one type in one zone" in the_wait(actions, "a-id")


def test_preferred_type_is_taken_even_if_another_gives_a_larger_gang() -> None:
    slices = [a_slice("v4-0"), *(a_slice(f"v5-{n}", accelerator="v5litepod-16") for n in range(3))]

    assert started(plan([a_run(slices=(1, 3), pools=("v4", "v5"))], slices)) == {"a-id": ["v4-0"]}


def test_small_run_does_not_take_what_the_gang_above_waits_for() -> None:
    slices = [a_slice("v4-0"), a_slice("v4-1", phase=Phase.WAITING, whole=False)]

    actions = plan([a_run("gang", slices=2, age_s=9), a_run("small")], slices)

    assert started(actions) == {}
    assert "v4-0 is kept for run gang" in the_wait(actions, "small-id")


def test_small_run_fills_what_the_gang_above_cannot_use() -> None:
    other_pool = [a_slice("v4-0"), a_slice("v4-1", phase=Phase.WAITING), a_slice("x-0", zone="b")]
    too_small = [a_slice("v4-0", zone="b"), a_slice("v4-1", zone="c"), a_slice("v4-2", zone="c", phase=Phase.WAITING)]

    in_pool = plan([a_run("gang", slices=2, age_s=9), a_run("small", pools=("v4", "x"))], other_pool)
    in_zone = plan([a_run("gang", slices=2, age_s=9), a_run("small")], too_small)

    assert started(in_pool) == {"small-id": ["x-0"]}
    assert started(in_zone) == {"small-id": ["v4-0"]}, "zone b has one slot: it can never hold the gang"


def test_pausing_run_keeps_its_place() -> None:
    paused = a_run("paused", age_s=9, not_before=NOW.plus(5), reason="failed (failure 1, max_failures 3): exit 1")

    actions = plan([paused, a_run("next")], [a_slice("v4-0"), a_slice("v4-1")])

    assert started(actions) == {"next-id": ["v4-1"]}
    assert the_wait(actions, "paused-id").startswith("pauses for 5s before attempt 1: failed")
    assert started(plan([paused], [a_slice("v4-0")], now=NOW.plus(5))) == {"paused-id": ["v4-0"]}


@pytest.mark.parametrize(
    "unfit",
    [{"whole": False}, {"phase": Phase.SUSPECT}, {"phase": Phase.JOINING}, {"suspect_until": NOW.plus(1)}],
)
def test_slice_that_is_not_whole_and_ready_is_not_given(unfit: dict[str, Any]) -> None:
    assert started(plan([a_run()], [a_slice(**unfit)])) == {}
    assert started(plan([a_run()], [a_slice(suspect_until=NOW)])) == {"a-id": ["v4-0"]}


def test_slice_of_an_open_attempt_is_not_given_although_its_lease_is_missing() -> None:
    place = a_slice("v4-0")

    assert started(plan([running(a_run("a"), place), a_run("b")], [place])) == {}


def test_queued_run_that_was_cancelled_is_closed_without_an_attempt() -> None:
    (action,) = plan([a_run(cancel_asked=True)], [a_slice()])

    assert isinstance(action, CloseAttempt)
    assert (action.attempt, action.verdict, action.next_state) == (0, Verdict.CANCELLED, RunState.CANCELLED)


# Attempts.


def stopped_by(run: RunView, *slices: SliceView) -> StopAttempt:
    (action,) = plan([run], list(slices))
    assert isinstance(action, StopAttempt), action
    return action


def test_gang_whose_program_never_exits_is_stopped_when_a_slice_is_gone() -> None:
    """A38."""
    alive, lost = a_slice("v4-0"), a_slice("v4-1")
    run = running(a_run(slices=2), alive, lost)

    by_phase = stopped_by(run, alive, replace(lost, phase=Phase.LOST, whole=False))
    by_successor = stopped_by(run, alive, replace(lost, incarnation=QrName("lab-v4-1-t-2"), phase=Phase.WAITING))

    assert (by_phase.grace_s, by_phase.reason) == (2.0, "v4-1 is gone")
    assert by_successor.reason == "v4-1 is gone"


def test_notice_gives_the_grace_of_the_run() -> None:
    place = a_slice(phase=Phase.DRAINING)

    assert stopped_by(running(a_run(), place), place).grace_s == 25.0


def test_cancel_stops_the_attempt_once_with_its_grace_and_then_waits() -> None:
    place = a_slice()
    asked = running(a_run(cancel_asked=True), place)

    assert stopped_by(asked, place).reason == "cancelled"
    (second,) = plan(
        [running(a_run(cancel_asked=True), place, stopping_at=NOW.plus(-3), stop_reason="cancelled")], [place]
    )
    assert second == Wait(asked.run.id, "stopping for 3s: cancelled")


def test_slice_that_no_list_shows_says_nothing() -> None:
    (action,) = plan([running(a_run(), a_slice())], [])

    assert isinstance(action, Wait)


@pytest.mark.parametrize(
    ("state", "closes"), [("absent", True), ("ended", True), ("unknown", False), ("running", False)]
)
def test_only_a_supervisor_that_ray_does_not_have_ends_the_attempt(state: str, closes: bool) -> None:
    place = a_slice()
    (action,) = plan([running(a_run(), place, supervisor=state)], [place])

    assert isinstance(action, CloseAttempt) == closes
    if isinstance(action, CloseAttempt):
        assert (action.verdict, action.next_state) == (Verdict.LOST_CONTACT, RunState.QUEUED)
        assert action.not_before == NOW.plus(SETTINGS.lease_s + SETTINGS.fence_margin_s)


def test_supervisor_that_vanished_just_now_may_still_have_written_its_outcome() -> None:
    place = a_slice()
    run = replace(running(a_run(), place), supervisor=SupervisorState("ended", NOW.plus(-1)))

    assert isinstance(plan([run], [place])[0], Wait)
    assert isinstance(plan([run], [place], now=NOW.plus(5))[0], CloseAttempt)


def test_attempt_that_does_not_start_is_stopped_and_then_given_up() -> None:
    place = a_slice()
    late = running(a_run(), place, supervisor="starting", started_at=None, ordered_at=NOW.plus(-301))
    given_up = running(a_run(), place, supervisor="starting", started_at=None, stopping_at=NOW.plus(-61))

    assert stopped_by(late, place).grace_s == 0
    assert isinstance(plan([given_up], [place])[0], CloseAttempt)


def test_slices_of_a_supervisor_that_vanished_are_fenced_for_all_runs() -> None:
    """Nobody said that the programs are over: for as long as a lease may last, another run would meet them."""
    place = a_slice()
    (closed,) = plan([running(a_run(), place, supervisor="absent")], [place])

    fence = NOW.plus(SETTINGS.lease_s + SETTINGS.fence_margin_s)
    assert isinstance(closed, CloseAttempt)
    assert (closed.fenced, closed.fence, closed.not_before) == ((place.slice,), fence, fence)


def ended(
    run: RunView, kind: str, *facts: RankExit | HostLoss, at: Instant = NOW, fence: Instant | None = None
) -> RunView:
    exits = tuple(fact for fact in facts if isinstance(fact, RankExit))
    losses = tuple(fact for fact in facts if isinstance(fact, HostLoss))
    return replace(run, outcome=Outcome(1, kind, exits, losses, at, fence))


def failing(place: SliceView, **run: Any) -> RunView:
    bad = RankExit(0, place.slice, 0, 3, None, NOW, True)
    return ended(running(a_run(**run), place), "exits", bad)


def healthy(place: SliceView, at: Instant) -> CloudWord:
    return CloudWord(place.incarnation, "healthy", "ACTIVE", at)


def test_failure_is_asked_about_then_held_then_charged() -> None:
    place, run = a_slice(), failing(a_slice())
    after = NOW.plus(26)

    (first,) = plan([run], [place], now=NOW.plus(1))
    (held,) = plan([run], [place], healthy(place, NOW.plus(1)), now=NOW.plus(2))
    (closed,) = plan([run], [place], healthy(place, after), now=after)

    assert isinstance(first, AskCloud)
    assert first.incarnations == (place.incarnation,)
    assert isinstance(held, Wait)
    assert isinstance(closed, CloseAttempt)
    assert (closed.verdict, closed.next_state, closed.exit_code) == (Verdict.FAILED, RunState.QUEUED, 3)
    assert closed.not_before is not None
    assert closed.not_before > after, "never a retry without a pause"


def test_failure_beyond_the_budget_ends_the_run_with_its_status() -> None:
    """A34."""
    after = NOW.plus(26)
    (closed,) = plan([failing(a_slice(), failures=3)], [a_slice()], healthy(a_slice(), after), now=after)

    assert isinstance(closed, CloseAttempt)
    assert (closed.next_state, closed.exit_code, closed.not_before) == (RunState.FAILED, 3, None)


def lost_host(place: SliceView, **run: Any) -> RunView:
    loss = HostLoss(1, place.slice, place.incarnation, 1, "dead", NOW)
    return ended(running(a_run(**run), place), "hosts-lost", loss, fence=NOW.plus(12))


def test_loss_waits_for_the_fence_unless_the_node_is_gone() -> None:
    place, later = a_slice(whole=False), NOW.plus(1)
    word = CloudWord(place.incarnation, "taken", "SUSPENDED", later, node_gone=True)

    (fenced,) = plan([lost_host(place)], [place], healthy(place, later), now=later)
    (gone,) = plan([lost_host(place)], [place], word, now=later)

    assert isinstance(fenced, CloseAttempt)
    assert (fenced.verdict, fenced.not_before, fenced.keep_off) == (
        Verdict.LOST_CONTACT,
        NOW.plus(12),
        (place.slice,),
    )
    assert isinstance(gone, CloseAttempt)
    assert (gone.verdict, gone.not_before) == (Verdict.PREEMPTED, later.plus(SETTINGS.pause_s))


def test_gang_that_did_not_come_up_keeps_the_fence_of_the_hosts_that_were_not_lost() -> None:
    """One host of a node that is gone says nothing of the others, which may have been told to start."""
    first, second = a_slice("v4-0"), a_slice("v4-1", whole=False)
    loss = HostLoss(2, second.slice, second.incarnation, 0, "dead", NOW)
    gone = CloudWord(second.incarnation, "taken", "SUSPENDED", NOW.plus(1), node_gone=True)
    run = running(a_run(slices=2), first, second)

    for facts in ((loss,), ()):
        (closed,) = plan([ended(run, "not-started", *facts, fence=NOW.plus(12))], [first, second], gone, now=NOW)

        assert isinstance(closed, CloseAttempt)
        assert (closed.not_before, closed.fenced) == (NOW.plus(12), (first.slice, second.slice))


def test_losses_have_a_bounded_budget_and_preemptions_none() -> None:
    place, later = a_slice(whole=False), NOW.plus(1)
    worn = lost_host(place, losses=10, preemptions=1000)

    (lost,) = plan([worn], [place], healthy(place, later), now=later)
    (taken,) = plan([worn], [place], CloudWord(place.incarnation, "taken", "SUSPENDED", later), now=later)

    assert isinstance(lost, CloseAttempt)
    assert lost.next_state is RunState.FAILED
    assert isinstance(taken, CloseAttempt)
    assert taken.next_state is RunState.QUEUED


# Properties.

views = st.builds(
    lambda pool, slot, zone, phase, whole, lease: a_slice(
        f"{pool}-{slot}",
        zone=zone,
        accelerator="v4-16" if pool == "v4" else "v5litepod-16",
        phase=phase,
        whole=whole,
        lease=RunId("someone") if lease else None,
    ),
    st.sampled_from(["v4", "v5"]),
    st.integers(0, 5),
    st.sampled_from(["b", "c"]),
    st.sampled_from([Phase.READY, Phase.READY, Phase.READY, Phase.WAITING, Phase.LOST]),
    st.booleans() | st.just(True),
    st.sampled_from([False, False, False, True]),
)
fleets = st.lists(views, max_size=9, unique_by=lambda view: view.slice)
wants = st.tuples(st.integers(1, 3), st.integers(0, 2), st.sampled_from([("v4",), ("v5",), ("v4", "v5")]))
queues = st.lists(st.tuples(wants, st.integers(-1, 1)), max_size=6).map(
    lambda rows: [
        a_run(f"r{n}", slices=(least, least + more), pools=pools, priority=priority, age_s=n)
        for n, ((least, more, pools), priority) in enumerate(rows)
    ]
)


@given(queues, fleets)
@settings(max_examples=300, deadline=None)
def test_no_slice_is_given_twice_and_every_gang_is_whole(runs: list[RunView], fleet: list[SliceView]) -> None:
    actions = plan(runs, fleet)
    wants_of = {view.run.id: view.want for view in runs}
    given_out = [view for each in actions if isinstance(each, StartAttempt) for view in each.slices]

    assert len(given_out) == len({view.slice for view in given_out})
    assert all(view.is_usable(NOW) and view.lease is None for view in given_out)
    for each in actions:
        if isinstance(each, StartAttempt):
            want = wants_of[each.run_id]
            assert want.min_slices <= len(each.slices) <= want.max_slices
            assert len({(view.accelerator, view.zone) for view in each.slices}) == 1
            assert all(view.pool in want.pools for view in each.slices)
    assert len(actions) == len(runs), "every living run gets its action or its reason"


@given(queues, fleets)
@settings(max_examples=300, deadline=None)
def test_the_highest_run_is_never_delayed_by_those_below(runs: list[RunView], fleet: list[SliceView]) -> None:
    """Whatever else is queued, the first in the order gets what it would get alone."""
    if not runs:
        return
    top = min(runs, key=lambda view: (-view.run.priority, view.run.submitted_at))

    assert started(plan(runs, fleet)).get(top.run.id) == started(plan([top], fleet)).get(top.run.id)


@given(queues, fleets)
@settings(max_examples=200, deadline=None)
def test_every_run_that_fits_starts_in_the_end(runs: list[RunView], fleet: list[SliceView]) -> None:
    """All slices come up, each run that starts ends: after at most as many rounds as runs, those that fit have run."""
    fleet = [replace(view, phase=Phase.READY, whole=True, lease=None) for view in fleet]
    waiting = list(runs)
    for _ in runs:
        now_started = started(plan(waiting, fleet))
        waiting = [view for view in waiting if view.run.id not in now_started]
    for view in waiting:
        groups: dict[tuple[str, str], int] = {}
        for each in fleet:
            if each.pool in view.want.pools:
                groups[each.accelerator, each.zone] = groups.get((each.accelerator, each.zone), 0) + 1
        assert max(groups.values(), default=0) < view.want.min_slices
