"""Availability traces: CSV text to step functions. Columns zone, start_s, available; -1 ends a zone's trace."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass

COLUMNS = ("zone", "start_s", "available")


@dataclass(frozen=True, slots=True)
class ZoneTrace:
    """(second since the trace began, count from then on), in order of time."""

    steps: tuple[tuple[float, int], ...]
    end_s: float

    def from_second(self, start_s: float, *, keep: bool) -> tuple[tuple[float, int], ...]:
        """The steps from `start_s` on, the first of them at `start_s`. The end is a step to 0, unless `keep`."""
        before = [count for at_s, count in self.steps if at_s <= start_s]
        steps = [(start_s, before[-1] if before else 0)]
        steps += [step for step in self.steps if step[0] > start_s]
        if not keep and self.end_s < math.inf:
            steps = [step for step in steps if step[0] < self.end_s]
            steps.append((max(start_s, self.end_s), 0))
        return tuple(steps)


Trace = dict[str, ZoneTrace]


def parse_trace(text: str) -> Trace:
    """By zone, in the file's order. Raises ValueError with the line."""
    reader = csv.reader(io.StringIO(text))
    if tuple(next(reader, ())) != COLUMNS:
        raise ValueError(f"not a trace: its first line must be {','.join(COLUMNS)}")
    steps: dict[str, list[tuple[float, int]]] = {}
    ends: dict[str, float] = {}
    for row in reader:
        if not row:
            continue
        where = f"line {reader.line_num} of the trace"
        zone, at_s, count = _row(row, where)
        if zone in ends:
            raise ValueError(f"{where}: zone {zone!r} goes on after its end (-1)")
        earlier = steps.setdefault(zone, [])
        if earlier and at_s <= earlier[-1][0]:
            raise ValueError(f"{where}: start_s {at_s:g} of zone {zone!r} does not follow {earlier[-1][0]:g}")
        if count == -1:
            ends[zone] = at_s
        else:
            earlier.append((at_s, count))
    # A zone without an end has no known length: its last count holds on.
    return {zone: ZoneTrace(tuple(found), ends.get(zone, math.inf)) for zone, found in steps.items() if found}


def _row(row: list[str], where: str) -> tuple[str, float, int]:
    if len(row) != len(COLUMNS):
        raise ValueError(f"{where}: {len(row)} columns, expected {','.join(COLUMNS)}")
    try:
        at_s, count = float(row[1]), int(row[2])
    except ValueError as error:
        raise ValueError(f"{where}: {row[1]!r} and {row[2]!r} must be numbers") from error
    if not 0 <= at_s < math.inf or count < -1:
        raise ValueError(f"{where}: start_s must not be negative, available not below -1")
    return row[0], at_s, count
