"""Runs, why, events, the timeline and the plan."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.base.units import Instant
from tpuctl.report.events import render_events, render_timeline
from tpuctl.report.plan import render_plan
from tpuctl.report.runs import render_run, render_runs
from tpuctl.report.style import PLAIN, Style, columns_of, cut_to, style_for, wrap
from tpuctl.report.table import Row, render_table
from tpuctl.report.why import render_why

NOW = Instant.parse("2026-12-01T12:00:00Z")


def at(seconds: float) -> str:
    return NOW.plus(seconds).iso()


def an_attempt(n: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "n": n,
        "slices": [{"slice": "v4-0", "queued_resource": "lab-v4-0-t6m8gb-1"}],
        "ordered_at": at(-100),
        "started_at": at(-95.5),
        "stopping_at": None,
        "stop_reason": "",
        "ended_at": None,
        "verdict": None,
        "evidence": "",
    } | changes


def a_run(**changes: Any) -> dict[str, Any]:
    return {
        "name": "digits",
        "id": "digits-t6m8gb-x1y2",
        "state": "RUNNING",
        "attempt": 2,
        "failures": 0,
        "preemptions": 1,
        "losses": 0,
        "slices": ["v4-0"],
        "since": at(-95),
        "reason": "",
        "submitted_at": at(-900),
        "user": "ada",
        "priority": 0,
        "exit_code": None,
        "attempts": [
            an_attempt(
                1,
                ordered_at=at(-800),
                started_at=at(-796),
                ended_at=at(-200),
                verdict="preempted",
                evidence="queued resource lab-v4-0-t6m8gb-1 is SUSPENDED by the service",
            ),
            an_attempt(2),
        ],
    } | changes


def test_attempts_are_shown_with_verdict_and_evidence() -> None:
    text = render_run(a_run(), NOW)

    assert "digits (digits-t6m8gb-x1y2): RUNNING since 1m35s" in text
    assert "submitted 2026-12-01 11:45:00 UTC by ada" in text
    assert "preempted" in text
    assert "is SUSPENDED by the service" in text
    assert "9m56s" in text  # how long the first one ran
    assert "4.5s" in text  # from the order to the start of the second
    assert max(map(len, text.splitlines())) <= 80


def test_attempt_that_never_started_says_so() -> None:
    assert "never" in render_run(a_run(attempts=[an_attempt(started_at=None, ended_at=at(-1), verdict="failed")]), NOW)


def test_run_without_attempt_and_empty_list_are_told() -> None:
    assert "no attempt yet" in render_run(a_run(attempts=[]), NOW)
    assert "no runs" in render_runs({"runs": []}, NOW)


def test_exit_status_and_reason_of_a_failed_run_are_told() -> None:
    text = render_run(a_run(state="FAILED", exit_code=3, reason="exit 3 with everything healthy"), NOW)

    assert "FAILED since 1m35s, exit status 3" in text
    assert "exit 3 with everything healthy" in text


def test_all_runs_are_listed() -> None:
    text = render_runs({"runs": [a_run(name=f"run-{number}") for number in range(3)]}, NOW)

    assert [line.split()[0] for line in text.splitlines()[1:]] == ["run-0", "run-1", "run-2"]


def test_why_hangs_reasons_below_what_it_is() -> None:
    text = render_why({"subject": "b", "lines": ["b is QUEUED since 5s", "waits for v4-0: " + "held by run a " * 9]})

    assert text.splitlines()[0] == "b is QUEUED since 5s"
    assert text.splitlines()[1].startswith("  - waits for v4-0")
    assert text.splitlines()[2].startswith("    ")


def test_why_without_lines_says_that_nothing_is_known() -> None:
    assert render_why({"subject": "x", "lines": []}) == "nothing is known about x"


EVENTS = {
    "events": [
        {"id": 1, "at": at(0), "kind": "requested", "subject": "lab-v4-0-t6m8gb-1", "text": "slot 0 is empty"},
        {"id": 2, "at": at(12.3), "kind": "host-joined", "subject": "lab-v4-0-t6m8gb-1", "text": "worker 0"},
        {"id": 3, "at": at(75), "kind": "ready", "subject": "lab-v4-0-t6m8gb-1", "text": "all hosts " + "joined " * 20},
    ]
}


def test_events_show_the_time_of_day_and_wrap_below_their_text() -> None:
    lines = render_events(EVENTS).splitlines()

    assert lines[0] == "2026-12-01 12:00:00  requested        lab-v4-0-t6m8gb-1: slot 0 is empty"
    assert lines[3].startswith(" " * 38)
    assert max(map(len, lines)) <= 80


def test_timeline_counts_from_its_first_event_and_leaves_out_the_small_ones() -> None:
    lines = render_timeline(EVENTS).splitlines()

    assert lines[0].strip().startswith("+0s  requested")
    assert lines[1].startswith("+1m15s  ready")
    assert "host-joined" not in render_timeline(EVENTS)


def test_no_events_are_told() -> None:
    assert render_events({"events": []}) == "no events"
    assert render_timeline({"events": [{"kind": "host-joined", "at": at(0)}]}) == "no events"


def test_plan_lists_actions_and_says_when_there_are_none() -> None:
    assert "nothing to do" in render_plan(())
    text = render_plan(("create lab-v4-0-t6m8gb-1: slot 0 of pool v4 is empty", "hold: list failed"))
    assert text == "  create lab-v4-0-t6m8gb-1: slot 0 of pool v4 is empty\n  hold: list failed"
    assert "\x1b[32mcreate\x1b[0m" in render_plan(("create x: y",), style=Style(colour=True))


@pytest.mark.parametrize(
    ("terminal", "environment", "colour"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colour_needs_a_terminal_that_wants_it(terminal: bool, environment: dict[str, str], colour: bool) -> None:
    style = style_for(terminal=terminal, columns=120, encoding="UTF-8", environment=environment)

    assert (style.colour, style.unicode, style.width) == (colour, colour, 80)


def test_narrow_terminal_is_kept_to_and_pipes_get_eighty_columns() -> None:
    assert style_for(terminal=True, columns=50, encoding="utf-8", environment={}).width == 50
    assert style_for(terminal=False, columns=50, encoding="utf-8", environment={}).width == 80
    assert not style_for(terminal=True, columns=80, encoding="latin-1", environment={}).unicode


def test_cut_text_is_marked_in_ascii_unless_more_is_ours_to_use() -> None:
    assert cut_to("abcdefgh", 5, PLAIN) == "abcd~"
    assert cut_to("abcdefgh", 5, Style(unicode=True)) == "abcd…"
    assert cut_to("abcde", 5, PLAIN) == "abcde"


def test_columns_that_may_shrink_do_so_in_order_and_others_never() -> None:
    row = Row(("a" * 30, "b" * 30, "c" * 30))

    lines = render_table(("A", "B", "C"), [row], shrink=(2, 0)).splitlines()

    assert lines[1] == "a" * 30 + "  " + "b" * 30 + "  " + "c" * 15 + "~"


def test_column_without_content_is_left_out() -> None:
    assert render_table(("A", "B"), [Row(("x", "")), Row(("y", ""))]) == "A\nx\ny"


@given(st.text(max_size=300), st.integers(40, 80))
def test_wrapping_keeps_every_letter_and_the_width(text: str, width: int) -> None:
    lines = wrap(text, Style(width=width), indent="    ")

    assert all(columns_of(line) <= width for line in lines)
    # Only blanks may differ: what was there is there, in its order.
    kept = [letter for letter in text if letter.isprintable() and not letter.isspace()]
    shown = [letter for line in lines for letter in line if not letter.isspace()]
    assert shown == kept
