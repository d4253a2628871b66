"""A clock that moves only when it is told to, or when somebody sleeps on it."""

from __future__ import annotations

from tpuctl.base.units import Instant

START = Instant(1_796_000_000.0)


class FakeClock:
    """Wall time and monotonic time move together unless `step_wall` is used."""

    def __init__(self, start: Instant = START) -> None:
        self._wall = start
        self._monotonic_s = 1000.0

    def now(self) -> Instant:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic_s

    def sleep(self, seconds: float) -> None:
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        self._wall = self._wall.plus(seconds)
        self._monotonic_s += seconds

    def step_wall(self, seconds: float) -> None:
        """The machine's wall clock is set; durations do not notice."""
        self._wall = self._wall.plus(seconds)
