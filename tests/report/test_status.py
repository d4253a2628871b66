"""`tpuctl status` as people see it."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tpuctl.base.units import Instant
from tpuctl.report.status import render_status
from tpuctl.report.style import Style, columns_of

NOW = Instant.parse("2026-12-01T12:00:00Z")
UNICODE = Style(colour=False, unicode=True, width=80)


def ago(seconds: float) -> str:
    return NOW.plus(-seconds).iso()


def a_slice(name: str = "v4-0", **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "pool": "v4",
        "zone": "us-central2-b",
        "accelerator": "v4-32",
        "queued_resource": f"lab-{name}-t6m8gb-1",
        "phase": "READY",
        "cloud_state": "ACTIVE",
        "node_state": "READY",
        "hosts": {"expected": 4, "joined": 4},
        "run": None,
        "since": ago(200),
        "unseen_since": None,
        "reason": "",
    } | changes


def a_run(name: str = "digits", **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "id": f"{name}-t6m8gb-x1y2",
        "state": "RUNNING",
        "attempt": 2,
        "failures": 0,
        "preemptions": 1,
        "losses": 0,
        "slices": ["v4-0"],
        "since": ago(61),
        "reason": "",
    } | changes


def a_status(**changes: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "at": NOW.iso(),
        "cluster": "lab",
        "epoch": "t6m8gb",
        "head": {"state": "RUNNING", "address": "10.0.0.2"},
        "last_pass": {"at": ago(12), "exit": 0},
        "grant": [],
        "slices": [a_slice()],
        "runs": [a_run()],
    } | changes


def test_ten_slices_fit_eighty_columns_each_on_its_line() -> None:
    slices = [a_slice(f"v4-{slot}", run="digits" if slot == 0 else None) for slot in range(10)]

    text = render_status(a_status(slices=slices), NOW)

    assert [line.split()[0] for line in text.splitlines() if re.match(r"v4-\d", line)] == [f"v4-{n}" for n in range(10)]
    assert max(map(len, text.splitlines())) <= 80
    assert text.isascii()


def test_joined_hosts_stand_beside_those_expected() -> None:
    text = render_status(a_status(slices=[a_slice(phase="JOINING", hosts={"expected": 4, "joined": 3})]), NOW)

    assert "3/4    JOINING" in text


def test_long_reason_is_wrapped_below_its_slice() -> None:
    reason = "there is no more capacity in the zone us-central2-b; you can try in another zone where it is offered " * 3

    text = render_status(a_status(slices=[a_slice(phase="WAITING", reason=reason), a_slice("v4-1")]), NOW)

    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("v4-0"))
    below = lines[at + 1 : next(number for number, line in enumerate(lines) if line.startswith("v4-1"))]
    assert len(below) >= 3
    assert all(line.startswith("    ") and len(line) <= 80 for line in below)
    assert " ".join(line.strip() for line in below) == reason.strip()


def test_reason_of_a_ready_slice_is_not_shown_unless_it_is_unseen() -> None:
    fine = render_status(a_status(slices=[a_slice(reason="all hosts joined")]), NOW)
    unseen = render_status(a_status(slices=[a_slice(reason="the list failed", unseen_since=ago(90))]), NOW)

    assert "all hosts joined" not in fine
    assert "not seen for 1m30s: the list failed" in unseen


def test_age_of_what_is_shown_is_told_when_the_head_did_not_answer() -> None:
    assert "did not answer; this is what it said 5m00s ago" in render_status(a_status(), NOW, 300.0)
    assert "did not answer" not in render_status(a_status(), NOW)


def test_pass_that_partly_failed_is_named_with_its_summary() -> None:
    text = render_status(
        a_status(last_pass={"at": ago(5), "exit": 3, "summary": "list of us-east5-b failed: 503"}), NOW
    )

    assert "last pass 5s ago: partly failed or unknown" in text
    assert "list of us-east5-b failed: 503" in text


def test_grant_shows_use_and_its_last_day() -> None:
    grant = {"zone": "us-central2-b", "generation": "v4", "tier": "spot", "chips": 64, "used": 32}

    assert "grant us-central2-b/v4/spot: 32 of 64 chips, until 2026-12-30" in render_status(
        a_status(grant=[grant | {"until": "2026-12-31T00:00:00Z"}]), NOW
    )
    assert "ended 2026-11-30" in render_status(a_status(grant=[grant | {"until": "2026-12-01T00:00:00Z"}]), NOW)


def test_empty_cluster_says_what_to_do() -> None:
    text = render_status(a_status(slices=[], runs=[], last_pass=None), NOW)

    assert "no pass yet" in text
    assert "no slices; 'tpuctl up'" in text
    assert "no runs; 'tpuctl submit" in text


def test_cluster_that_goes_down_is_not_told_to_go_up() -> None:
    text = render_status(a_status(slices=[], runs=[], wanted=False), NOW)

    assert "being taken down" in text
    assert "tpuctl up" not in text


def test_run_that_waits_shows_why() -> None:
    waiting = a_run("b", state="QUEUED", attempt=0, slices=[], reason="waits for 1 slice of v4-32")

    text = render_status(a_status(runs=[a_run(reason="goes on"), waiting]), NOW)

    assert "waits for 1 slice of v4-32" in text
    assert "goes on" not in text


def test_losses_have_a_column_only_when_there_are_some() -> None:
    assert "LOST" not in render_status(a_status(), NOW)
    text = render_status(a_status(runs=[a_run(losses=2)]), NOW)
    assert re.search(r"LOST +SLICES", text)
    assert re.search(r"digits .* 2 +v4-0", text)


def test_clock_that_runs_ahead_reads_as_now() -> None:
    assert " 0s " in render_status(a_status(slices=[a_slice(since=ago(-30))]), NOW)


def test_what_a_program_wrote_cannot_move_the_cursor() -> None:
    text = render_status(a_status(runs=[a_run(state="FAILED", reason="\x1b[2Jgone\x07\nand\ta line\u202e")]), NOW)

    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "gone and a line" in text


def test_colour_is_only_paint() -> None:
    document = a_status(slices=[a_slice(), a_slice("v4-1", phase="LOST", reason="preempted")], runs=[a_run()])

    painted = render_status(document, NOW, style=Style(colour=True))

    assert "\x1b[31mLOST" in painted
    assert re.sub(r"\x1b\[\d*m", "", painted) == render_status(document, NOW)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**10) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(a_status(), json_values)),
    st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(a_slice(), json_values)), max_size=3),
)
def test_document_of_another_version_is_still_shown(document: dict[str, Any], slices: list[dict[str, Any]]) -> None:
    assert render_status(document | {"slices": slices}, NOW).startswith("cluster ")


@given(st.text(max_size=200), st.text(min_size=1, max_size=40))
def test_no_line_is_wider_than_the_terminal(reason: str, name: str) -> None:
    document = a_status(slices=[a_slice(phase="WAITING", reason=reason, run=name)], runs=[a_run(name, reason=reason)])

    assert max(columns_of(line) for line in render_status(document, NOW, style=UNICODE).splitlines()) <= 80
