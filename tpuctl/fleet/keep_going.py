"""Pass after pass: how long to wait between two of them, and what of them is worth a line.

The waiting rule is `pause_after`; `KeepGoing` is the loop around it. Whoever runs it ends it by an interrupt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tpuctl.base.chance import Chance
from tpuctl.base.clock import Clock
from tpuctl.base.errors import BusyError, TpuctlError, UserError
from tpuctl.base.units import show_duration

QUICK_S = 3.0
AT_REST_S = 75.0
FAILED_S, FAILED_MOST_S = 5.0, 300.0
SHARE_OF_QUIET = 0.1  # what has not changed for ten minutes is looked at each minute
JITTER = 0.2  # of the pause, either way: two watchers do not stay in step

OK, PARTIAL, BUSY = 0, 3, 4


@dataclass(frozen=True, slots=True)
class Seen:
    """How one pass ended, as far as it differs from others."""

    exit: int
    summary: str

    @property
    def failed(self) -> bool:
        """Partly done is not failed: the rest was done, and the cause is told in the summary."""
        return self.exit not in (OK, PARTIAL, BUSY)


@dataclass(frozen=True, slots=True)
class Course:
    """What the rule needs of all passes so far. Times are monotonic seconds."""

    last: Seen | None = None
    changed_s: float = 0.0  # when the last difference was seen
    failures: int = 0  # in a row

    def then(self, seen: Seen, now_s: float) -> Course:
        """A pass that was busy tells nothing of the fleet, so it is no change, and it ends no row of failures."""
        if seen.exit == BUSY:
            return self
        failures = self.failures + 1 if seen.failed else 0
        if seen == self.last:
            return replace(self, failures=failures)
        return Course(seen, now_s, failures)


def pause_after(course: Course, now_s: float, drawn: float) -> float:
    """Seconds until the next pass. `drawn`: a number from [0, 1).

    After a change a few seconds; then in proportion to how long nothing has changed, up to a minute and a quarter.
    After failures twice as long each time, up to five minutes.
    """
    if course.failures:
        pause_s = min(FAILED_MOST_S, FAILED_S * 2.0 ** min(course.failures - 1, 10))
    else:
        pause_s = min(AT_REST_S, max(QUICK_S, (now_s - course.changed_s) * SHARE_OF_QUIET))
    return pause_s * (1.0 - JITTER + 2.0 * JITTER * drawn)


@dataclass
class KeepGoing:
    """`one_pass` raises TpuctlError when it fails as a whole. `tell` gets a change, `say` what goes wrong."""

    one_pass: Callable[[], Seen]
    clock: Clock
    chance: Chance
    tell: Callable[[Seen], None]
    say: Callable[[str], None]

    def loop(self) -> None:
        """Until something outside our errors comes through, as an interrupt does.

        Raises UserError of the first pass: what is wrong from the start is for the user to mend. Later it may be a
        spec that is being edited.
        """
        course = Course()
        while True:
            seen = self._pass(first=course.last is None)
            now_s = self.clock.monotonic()
            former, course = course, course.then(seen, now_s)
            pause_s = pause_after(course, now_s, self.chance.unit())
            if course.last != former.last:
                self._tell(seen, pause_s)
            self.clock.sleep(pause_s)

    def _tell(self, seen: Seen, pause_s: float) -> None:
        if seen.failed:
            self.say(f"pass failed (exit {seen.exit}): {seen.summary}; the next in {show_duration(round(pause_s))}")
        else:
            self.tell(seen)

    def _pass(self, *, first: bool) -> Seen:
        try:
            return self.one_pass()
        except BusyError as error:
            return Seen(BUSY, str(error))
        except UserError as error:
            if first:
                raise
            return Seen(error.exit_code, str(error))
        except TpuctlError as error:
            return Seen(error.exit_code if error.exit_code != BUSY else 1, str(error))
