"""The one place that reads the machine's clocks. Everything else is handed a Clock."""

from __future__ import annotations

import time
from typing import Protocol

from tpuctl.base.units import Instant


class Clock(Protocol):
    def now(self) -> Instant:
        """Wall time, UTC. It may step; never measure durations with it."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow and that count while the machine is suspended (CLOCK_BOOTTIME)."""
        ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> Instant:
        return Instant(time.time())

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))
