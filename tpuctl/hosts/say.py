"""Lines of the daemons' logs. They are for people; nothing reads them back."""

from __future__ import annotations

import sys

from tpuctl.base.clock import Clock


class Say:
    """`say("text")` writes `2026-12-01T16:28:11.250Z tpuctl-host: text` to stderr, which goes to the unit's log."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock

    def __call__(self, text: str) -> None:
        print(f"{self._clock.now().iso()} {self._name}: {text}", file=sys.stderr, flush=True)
