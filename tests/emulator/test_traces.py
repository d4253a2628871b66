"""Capacity that follows a measured trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuctl.base.errors import UserError
from tpuctl.emulator.scenario import Settings
from tpuctl.emulator.scenario_yaml import parse_text, read_scenario
from tpuctl.emulator.traces import parse_trace
from tpuctl.testing.core_driver import Driver

TRACE = """zone,start_s,available
here,0,0
here,600,2
here,1200,1
here,1800,-1
there,0,3
"""
ZONE = "us-central2-b"


def settings(options: str = "", text: str = TRACE) -> Settings:
    scenario = f"notice: 0s\ncapacity: {{trace: t.csv, type: v4-8, zones: {{{ZONE}: here}}{options}}}\n"
    return parse_text(scenario, "s.yaml", {"t.csv": text}.__getitem__)


def limits(options: str = "") -> list[tuple[float, int | None]]:
    (rule,) = settings(options).capacity[0].rules
    assert (rule.zone, rule.type) == (ZONE, "v4")
    return [(step.at, step.chips) for step in rule.steps]


def test_counts_of_the_trace_are_slices_of_the_type() -> None:
    assert limits() == [(0, 0), (600, 8), (1200, 4), (1800, 0)]


def test_trace_can_run_faster_begin_later_and_keep_its_last_count() -> None:
    assert limits(", speed: 60") == [(0, 0), (10, 8), (20, 4), (30, 0)]
    assert limits(", start: 15m") == [(0, 8), (300, 4), (900, 0)]
    assert limits(", start: 10m, ends: keep") == [(0, 8), (600, 4)]
    assert limits(", start: 1h, ends: keep") == [(0, 4)]
    assert limits(", slices_each: 0.5") == [(0, 0), (600, 4), (1200, 0), (1800, 0)]


def test_slices_come_and_go_with_the_trace() -> None:
    driver = Driver(settings())
    for name in "abc":
        driver.create(name)
    seen = []
    for seconds in (590, 100, 600, 600):
        driver.pass_time(seconds)
        seen.append([driver.qr_state(name) for name in "abc"])

    waiting, active, suspended = "WAITING_FOR_RESOURCES", "ACTIVE", "SUSPENDED"
    assert seen == [
        [waiting, waiting, waiting],
        [active, active, waiting],
        [active, suspended, waiting],
        [suspended, suspended, waiting],
    ]


def test_trace_lies_beside_its_scenario(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "t.csv").write_text(TRACE)
    path = tmp_path / "s.yaml"
    path.write_text(f"capacity:\n- {{trace: traces/t.csv, type: v4-16, zones: {{{ZONE}: there}}}}\n")

    (rule,) = read_scenario(path).capacity[0].rules

    assert [(step.at, step.chips) for step in rule.steps] == [(0, 24)]


@pytest.mark.parametrize(
    ("options", "text", "told"),
    [
        ("", "zone,start,available\n", "its first line must be zone,start_s,available"),
        ("", "zone,start_s,available\nhere,0\n", "line 2 of the trace: 2 columns"),
        ("", "zone,start_s,available\nhere,soon,1\n", "line 2 of the trace: 'soon' and '1' must be numbers"),
        ("", "zone,start_s,available\nhere,5,1\nhere,5,2\n", "line 3 of the trace: start_s 5"),
        ("", "zone,start_s,available\nhere,5,1\nhere,6,-1\nhere,7,1\n", "line 4 of the trace: zone 'here' goes on"),
        ("", "zone,start_s,available\nhere,5,-2\n", "not below -1"),
        ("", "zone,start_s,available\nthere,0,1\n", "has no zone 'here'; it has there"),
        (", start: 30m", TRACE, "ends before `start`"),
        (", speed: 0", TRACE, "speed: Input should be greater than 0"),
    ],
)
def test_trace_that_cannot_be_followed_is_refused(options: str, text: str, told: str) -> None:
    with pytest.raises(UserError, match=told) as caught:
        settings(options, text)
    assert str(caught.value).splitlines()[1].startswith("s.yaml:2:")


def test_empty_lines_are_passed_over_and_zones_keep_their_order() -> None:
    assert list(parse_trace("zone,start_s,available\n\nb,0,1\n\na,0,1\n")) == ["b", "a"]
