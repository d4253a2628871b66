"""Instants and durations. An Instant is always UTC; durations are float seconds in names that end in `_s`.

This module must stay free of clocks: the planners import it, and they may not reach `time` by any chain.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>ms|s|m|h|d)")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, order=True, slots=True)
class Instant:
    """A point in time, as seconds since 1970-01-01 UTC. Only base/clock.py makes one from the machine's clock."""

    unix_s: float

    def plus(self, seconds: float) -> Instant:
        return Instant(self.unix_s + seconds)

    def since(self, earlier: Instant) -> float:
        """Seconds from `earlier` to this instant; negative if `earlier` is later."""
        return self.unix_s - earlier.unix_s

    def iso(self) -> str:
        """RFC 3339 in UTC with milliseconds, e.g. 2026-12-01T16:28:11.250Z."""
        stamp = dt.datetime.fromtimestamp(self.unix_s, dt.UTC)
        return f"{stamp:%Y-%m-%dT%H:%M:%S}.{stamp.microsecond // 1000:03d}Z"

    @classmethod
    def parse(cls, text: str) -> Instant:
        """From RFC 3339 text, with any offset, and with up to nine fractional digits. Raises ValueError."""
        # datetime reads at most six fractional digits, Google's services send nine.
        trimmed = re.sub(r"(\.\d{6})\d+", r"\1", text)
        stamp = dt.datetime.fromisoformat(trimmed)
        if stamp.tzinfo is None:
            raise ValueError(f"instant without an offset: {text!r}")
        return cls(stamp.timestamp())


def parse_duration(text: str) -> float:
    """Seconds from `90s`, `2h`, `1h30m`, `250ms`, `7d`. Raises ValueError: a bare number has no unit and is refused."""
    compact = text.strip()
    position, total_s = 0, 0.0
    for match in _DURATION.finditer(compact):
        if match.start() != position:
            break
        total_s += float(match["number"]) * _UNIT_S[match["unit"]]
        position = match.end()
    if not compact or position != len(compact):
        raise ValueError(f"not a duration: {text!r}; write it like 90s, 20m, 2h or 1h30m")
    return total_s


def show_duration(seconds: float) -> str:
    """For people: `0.4s`, `12s`, `3m20s`, `2h05m`, `3d04h`."""
    if seconds < 0:
        return "-" + show_duration(-seconds)
    if seconds < 10:
        return f"{seconds:.1f}s" if seconds != int(seconds) else f"{int(seconds)}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest_s = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{rest_s:02d}s"
    hours, rest_min = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{rest_min:02d}m"
    days, rest_h = divmod(hours, 24)
    return f"{days}d{rest_h:02d}h"
