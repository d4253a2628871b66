"""How fast creates leave: the service takes so many a minute from a project, whoever asks."""

from __future__ import annotations

from tpuctl.base.clock import Clock

# Operators saw 91 a minute as one project's limit; 60 kept clear of errors.
CREATES_PER_MINUTE = 60
BURST = 8


class Pace:
    """A bucket of BURST calls that fills at CREATES_PER_MINUTE."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gap_s = 60.0 / CREATES_PER_MINUTE
        self._free_s = clock.monotonic() - BURST * self._gap_s

    def wait_s(self) -> float:
        """Until the next call may leave."""
        return max(0.0, self._free_s + self._gap_s - self._clock.monotonic())

    def take(self) -> None:
        """Sleeps until it may, and counts the call."""
        self._clock.sleep(self.wait_s())
        self._free_s = max(self._free_s, self._clock.monotonic() - BURST * self._gap_s) + self._gap_s
