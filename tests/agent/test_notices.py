"""Which notices hold, which are due: each once a condition, again after it cleared, bounded repetition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.agent.stage import a_cluster_spec, a_ready_slice
from tpuctl.agent.notices import (
    MOST_TRIES,
    Memory,
    Notice,
    Situation,
    conditions,
    due,
    is_given_up,
    memory_document,
    parse_memory,
    told,
)
from tpuctl.base.ids import RunId, RunName, Zone
from tpuctl.base.units import Instant
from tpuctl.spec.cluster import GrantEntry, GrantSpec
from tpuctl.store.records import ENDLESS_S, Intent, Phase, Run, RunState, ZoneHold
from tpuctl.testing.clock import START as NOW

DAY_S = 86400.0
GRANT = GrantSpec(
    until=NOW.plus(30 * DAY_S),
    entries=(GrantEntry(zone=Zone("us-central2-b"), generation="v4", tier="spot", chips=16),),
)
PAUSED = "pool v4 is paused: 3 slices in a row never came up, the last one: x. Change the pool in the spec to try again"


def a_situation(until: Instant | None = GRANT.until, **fields: Any) -> Situation:
    grant = replace_until(until)
    default: Mapping[str, Any] = {
        "incarnations": (), "holds": (), "reasons": {}, "ended_runs": (), "last_pass": NOW,
    }  # fmt: skip
    spec = a_cluster_spec().model_copy(update={"grant": grant})
    return Situation(**{"spec": spec, **default, **fields})


def replace_until(until: Instant | None) -> GrantSpec:
    return GRANT.model_copy(update={"until": until})


def an_ended_run(name: str, ended_at: Instant, state: RunState = RunState.FAILED) -> Run:
    run_id = RunId(f"{name}-1")
    return Run(
        run_id, RunName(name), "{}", "ada", 0, state, ended_at, NOW, attempts=3, ended_at=ended_at, reason="exit 1"
    )


def kinds(situation: Situation, since: Instant = NOW) -> list[str]:
    return [notice.kind for notice in conditions(situation, since, NOW)]


def test_nothing_is_told_while_all_is_well() -> None:
    slices = tuple(a_ready_slice(slot, NOW) for slot in range(2))

    assert kinds(a_situation(incarnations=slices, reasons={"v4-2": "no capacity"})) == []


def test_paused_pool_is_one_notice_however_many_slots_wait() -> None:
    situation = a_situation(reasons={"v4-0": PAUSED, "v4-1": PAUSED, "x": "pool other is paused: not ours"})

    (notice,) = conditions(situation, NOW, NOW)

    assert (notice.kind, notice.subject, notice.text) == ("pool-paused", "v4", PAUSED)


def test_type_that_is_refused_until_the_spec_changes_is_told_and_a_short_pause_is_not() -> None:
    endless = ZoneHold(Zone("us-central2-b"), "v4-16", "no-such-type", NOW.plus(1.5 * ENDLESS_S), "no v4 here")
    short = replace(endless, kind="quota-full", until=NOW.plus(600))

    (notice,) = conditions(a_situation(holds=(endless, short)), NOW, NOW)

    assert (notice.kind, "no v4 here" in notice.text) == ("pool-paused", True)


def test_run_that_ended_is_told_and_old_news_is_not() -> None:
    runs = (
        an_ended_run("fresh", NOW.plus(-5), RunState.SUCCEEDED),
        an_ended_run("before-anybody-was-named", NOW.plus(-20)),
    )

    (notice,) = conditions(a_situation(ended_runs=runs), NOW.plus(-10), NOW)

    assert (notice.kind, notice.subject) == ("run-ended", "fresh")
    assert notice.text == "run fresh SUCCEEDED after 3 attempts: exit 1"
    assert conditions(a_situation(ended_runs=(an_ended_run("old", NOW.plus(-DAY_S)),)), NOW.plus(-2 * DAY_S), NOW) == ()


@pytest.mark.parametrize(
    ("left_s", "key"),
    [(8 * DAY_S, None), (7 * DAY_S, "7"), (DAY_S + 1, "7"), (DAY_S, "1"), (1, "1"), (0, "0"), (-9 * DAY_S, "0")],
)
def test_grant_is_told_of_at_seven_days_at_one_and_at_its_end(left_s: float, key: str | None) -> None:
    found = conditions(a_situation(until=NOW.plus(left_s)), NOW, NOW)

    assert [notice.key.rpartition(":")[2] for notice in found] == ([] if key is None else [key])


@pytest.mark.parametrize(("quiet_s", "told_of"), [(600.0, []), (601.0, ["no-pass"])])
def test_ten_minutes_without_a_pass_are_told(quiet_s: float, told_of: list[str]) -> None:
    assert kinds(a_situation(last_pass=NOW.plus(-quiet_s))) == told_of


def test_slices_outside_the_grant_are_told_by_name_and_too_many_inside_by_number() -> None:
    inside = tuple(a_ready_slice(slot, NOW) for slot in range(3))  # 24 chips of 16
    elsewhere = replace(a_ready_slice(3, NOW), zone=Zone("us-east1-d"))
    paid = replace(a_ready_slice(4, NOW), tier="on-demand")
    gone = replace(a_ready_slice(5, NOW), zone=Zone("us-east1-d"), phase=Phase.GONE)
    refused = replace(a_ready_slice(6, NOW), zone=Zone("us-east1-d"), intent=Intent.REFUSED)

    found = conditions(a_situation(incarnations=(*inside, elsewhere, paid, gone, refused)), NOW, NOW)

    assert [notice.subject for notice in found] == [elsewhere.name, paid.name, "us-central2-b/v4/spot"]
    assert "24 chips" in found[-1].text


A, B = Notice("a", "no-pass", "lab", "x"), Notice("b", "run-ended", "digits", "y")
BOTH = ("command", "webhook")


def test_each_is_due_once_on_each_channel_and_again_after_it_cleared() -> None:
    pairs, memory = due(Memory(NOW), (A, B), BOTH, NOW)
    assert pairs == (("command", A), ("command", B), ("webhook", A), ("webhook", B))
    for channel, notice in pairs:
        memory = told(memory, channel, notice, NOW, arrived=True)

    assert due(memory, (A, B), BOTH, NOW.plus(1e6)) == ((), memory)
    pairs, memory = due(memory, (A,), BOTH, NOW)
    assert (pairs, due(memory, (A, B), BOTH, NOW)[0]) == ((), (("command", B), ("webhook", B)))


def test_failure_is_repeated_later_and_later_and_not_for_ever() -> None:
    memory, now, waits = Memory(NOW), NOW, list[float]()
    for _ in range(MOST_TRIES):
        pairs, memory = due(memory, (A,), ("webhook",), now)
        assert pairs == (("webhook", A),)
        memory = told(memory, "webhook", A, now, arrived=False)
        next_at = memory.tellings["webhook", "a"].next_at
        if next_at is not None:
            assert due(memory, (A,), ("webhook",), next_at.plus(-0.1))[0] == ()
            waits.append(next_at.since(now))
            now = next_at

    assert waits == [30.0, 60.0, 120.0, 240.0]
    assert (is_given_up(memory, "webhook", A), due(memory, (A,), ("webhook",), now.plus(1e6))[0]) == (True, ())


def test_success_after_failures_is_not_given_up() -> None:
    memory = told(Memory(NOW), "webhook", A, NOW, arrived=False)

    memory = told(memory, "webhook", A, NOW, arrived=True)

    assert (is_given_up(memory, "webhook", A), due(memory, (A,), ("webhook",), NOW.plus(1e6))[0]) == (False, ())


def test_memory_is_the_same_after_it_was_stored() -> None:
    memory = told(told(Memory(NOW), "webhook", A, NOW, arrived=False), "command", B, NOW, arrived=True)

    assert parse_memory(memory_document(memory)) == memory
