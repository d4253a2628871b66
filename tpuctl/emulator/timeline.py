"""What will happen when: the emulator's only notion of time. No clock is read here; the caller says what time it is."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from tpuctl.base.units import Instant

Action = Callable[[Instant], None]


class Timeline:
    """Actions in order of their time; those of the same time in the order in which they were planned."""

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, int, Action]] = []
        self._planned = 0
        self.now: Instant | None = None  # how far time has come; None: nobody said yet

    def at(self, when: Instant, action: Action) -> None:
        """`action(when)` will be called once. Nothing is ever cancelled: it must look whether it still applies."""
        heapq.heappush(self._heap, (when, self._planned, action))
        self._planned += 1

    def next_deadline(self) -> Instant | None:
        return self._heap[0][0] if self._heap else None

    def run_until(self, now: Instant) -> None:
        """Everything due by `now`, each at its own time, with what it plans itself."""
        while self._heap and self._heap[0][0] <= now:
            when, _, action = heapq.heappop(self._heap)
            self.now = when if self.now is None else max(self.now, when)
            action(when)
        self.now = now if self.now is None else max(self.now, now)
