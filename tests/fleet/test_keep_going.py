"""Pass after pass: quick while something changes, slow at rest, later and later after failures; a line a change."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tpuctl.base.chance import SeededChance
from tpuctl.base.errors import BusyError, RetryLaterError, TpuctlError, UserError
from tpuctl.fleet.keep_going import AT_REST_S, BUSY, FAILED_MOST_S, QUICK_S, Course, KeepGoing, Seen, pause_after
from tpuctl.testing.clock import FakeClock

MIDDLE = 0.5  # draws no jitter
REST = Seen(0, "at rest")


@pytest.mark.parametrize(("quiet_s", "pause_s"), [(0.0, QUICK_S), (30.0, 3.0), (300.0, 30.0), (86400.0, AT_REST_S)])
def test_pause_grows_with_the_time_that_nothing_changed(quiet_s: float, pause_s: float) -> None:
    course = Course(REST, 1000.0)

    assert pause_after(course, 1000.0 + quiet_s, MIDDLE) == pytest.approx(pause_s)


@pytest.mark.parametrize(("failures", "pause_s"), [(1, 5.0), (2, 10.0), (4, 40.0), (100, FAILED_MOST_S)])
def test_pause_doubles_with_each_failure_up_to_a_bound(failures: int, pause_s: float) -> None:
    assert pause_after(Course(Seen(1, "no"), 0.0, failures), 1e6, MIDDLE) == pytest.approx(pause_s)


def test_jitter_spreads_the_pause_both_ways_and_no_further() -> None:
    course, chance = Course(REST, 0.0), SeededChance(3)

    pauses = [pause_after(course, 1e6, chance.unit()) for _ in range(200)]

    assert AT_REST_S * 0.8 <= min(pauses) < AT_REST_S * 0.85
    assert AT_REST_S * 1.15 < max(pauses) <= AT_REST_S * 1.2


def test_busy_pass_is_no_change_and_ends_no_row_of_failures() -> None:
    failing = Course().then(Seen(1, "no"), 5.0).then(Seen(1, "no"), 6.0)

    assert failing.then(Seen(BUSY, "another pass"), 7.0) == failing
    assert (failing.failures, failing.changed_s) == (2, 5.0)


class Script:
    """Passes that end as written, then an interrupt."""

    def __init__(self, *ends: Seen | TpuctlError) -> None:
        self.ends: Iterator[Seen | TpuctlError] = iter(ends)

    def __call__(self) -> Seen:
        end = next(self.ends, None)
        if end is None:
            raise KeyboardInterrupt
        if isinstance(end, TpuctlError):
            raise end
        return end


def watched(one_pass: Callable[[], Seen]) -> tuple[list[Seen], list[str], float]:
    told, said, clock = list[Seen](), list[str](), FakeClock()
    start_s = clock.monotonic()
    with pytest.raises(KeyboardInterrupt):
        KeepGoing(one_pass, clock, SeededChance(1), told.append, said.append).loop()
    return told, said, clock.monotonic() - start_s


def test_one_line_a_change_and_not_one_a_round() -> None:
    first, second = Seen(0, "1 asked for"), Seen(3, "1 ready; zone b unknown")

    told, said, _ = watched(Script(first, first, first, second, second, REST))

    assert (told, said) == ([first, second, REST], [])


def test_at_rest_an_hour_has_few_passes() -> None:
    _, _, lasted_s = watched(Script(*[REST] * 100))

    assert 3600 < lasted_s < 100 * AT_REST_S * 1.2


def test_failed_passes_are_survived_told_once_with_their_exit_and_tried_again_later() -> None:
    lost = RetryLaterError("the head does not answer", 1.0)

    told, said, lasted_s = watched(Script(REST, lost, lost, lost, UserError("spec broken"), REST))

    assert told == [REST, REST]
    assert [line.partition(":")[0] for line in said] == ["pass failed (exit 1)", "pass failed (exit 2)"]
    assert lasted_s > (5 + 10 + 20 + 40) * 0.8


def test_busy_is_survived_silently() -> None:
    told, said, _ = watched(Script(BusyError("another pass holds the lock"), REST, BusyError("again")))

    assert (told, said) == ([REST], [])


def test_what_is_wrong_from_the_start_is_raised() -> None:
    clock = FakeClock()
    with pytest.raises(UserError, match="no such file"):
        KeepGoing(Script(UserError("no such file")), clock, SeededChance(1), print, print).loop()
