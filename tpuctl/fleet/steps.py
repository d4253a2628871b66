"""Steps of the wall clock (A53): stored times are wall times, ages must not be.

Each pass stores both clocks as it began, with the last that it writes. When a later one finds that wall time moved by
more or less than the clock that counts suspend, the stored times are moved along, so that no deadline comes early or
late. After a reboot that clock has begun anew: then nothing is known, and stored times stay.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from typing import Any

from tpuctl.base.clock import Clock
from tpuctl.base.units import Instant
from tpuctl.store.database import Transaction
from tpuctl.store.records import Incarnation, ZoneHold

KEY = "pass_clock"
# Slewing by a time daemon stays below this between two passes; an age may be wrong by as much.
TOLERANCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Clocks:
    """Both clocks at one moment."""

    wall: Instant
    monotonic_s: float  # counts suspend

    @classmethod
    def read(cls, clock: Clock) -> Clocks:
        return cls(clock.now(), clock.monotonic())


def step_since(tx: Transaction, clocks: Clocks) -> float:
    """Seconds by which the wall clock stepped since the last clocks that were kept; 0.0 where nothing is known."""
    return _step_s(tx.meta(KEY), clocks)


def move_times(tx: Transaction, step_s: float, clocks: Clocks) -> None:
    """The clocks are kept with it, so that no step is ever followed twice."""
    for row in tx.existing_incarnations():
        tx.put_incarnation(_moved(row, step_s))
    for hold in tx.zone_holds():
        tx.put_zone_hold(_moved_hold(hold, step_s))
    keep_clocks(tx, clocks)


def keep_clocks(tx: Transaction, clocks: Clocks) -> None:
    tx.put_meta(KEY, json.dumps([clocks.wall.unix_s, clocks.monotonic_s]))


def _step_s(stored: str | None, clocks: Clocks) -> float:
    if stored is None:
        return 0.0
    wall_s, before_s = json.loads(stored)
    if clocks.monotonic_s < before_s:
        return 0.0
    step_s = (clocks.wall.unix_s - float(wall_s)) - (clocks.monotonic_s - float(before_s))
    return step_s if abs(step_s) > TOLERANCE_S else 0.0


def _moved(row: Incarnation, step_s: float) -> Incarnation:
    values = {field.name: getattr(row, field.name) for field in fields(row)}
    moved: dict[str, Any] = {name: at.plus(step_s) for name, at in values.items() if isinstance(at, Instant)}
    return replace(row, **moved)


def _moved_hold(hold: ZoneHold, step_s: float) -> ZoneHold:
    return replace(hold, until=hold.until.plus(step_s))
