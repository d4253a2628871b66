"""Waiting for a fact with a deadline, and telling people what is waited for once it takes longer than a moment."""

from __future__ import annotations

from collections.abc import Callable

from tpuctl.base.clock import Clock
from tpuctl.base.units import show_duration

QUIET_S = 2.0
AGAIN_S = 30.0

Say = Callable[[str], None]


class Waiting:
    """One wait. `pause` tells and sleeps; `is_over` says that the limit has passed."""

    def __init__(self, clock: Clock, say: Say, limit_s: float | None) -> None:
        self._clock, self._say, self._limit_s = clock, say, limit_s
        self._began_s = clock.monotonic()
        self._told, self._told_s = "", 0.0

    @property
    def lasted_s(self) -> float:
        return self._clock.monotonic() - self._began_s

    def is_over(self) -> bool:
        return self._limit_s is not None and self.lasted_s >= self._limit_s

    def pause(self, reason: str, seconds: float) -> None:
        """Something new is told after QUIET_S, the same again each AGAIN_S."""
        lasted_s = self.lasted_s
        if lasted_s >= QUIET_S and (reason != self._told or lasted_s - self._told_s >= AGAIN_S):
            self._say(f"{reason} ({show_duration(round(lasted_s))})")
            self._told, self._told_s = reason, lasted_s
        self._clock.sleep(seconds)
