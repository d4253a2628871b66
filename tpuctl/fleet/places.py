"""Which of a pool's places is asked next: preference, what was tried there lately, and places that go wrong. Pure.

The order of the spec counts, except that where a request of the slot was given up or refused within the last hour
comes after the places where none was: so a pool walks on, and comes back.
"""

from __future__ import annotations

from collections.abc import Iterable

from tpuctl.base.units import Instant, show_duration
from tpuctl.fleet.deadlines import BOOT, JOIN, PROVISION, QUEUE
from tpuctl.spec.pool import Place, PoolSpec
from tpuctl.store.records import Incarnation

# Refusals that say nothing of other places.
PLACE_KINDS = frozenset({"no-capacity", "quota-full", "quota-zero", "type-not-in-zone", "location-policy"})
TRIED_S = 3600.0
# Young deaths. All guesses: three within two hours are no accident; doubling keeps a bad night's calls few.
WINDOW_S = 7200.0
FREE = 3
FIRST_PAUSE_S = 300.0
LONGEST_PAUSE_S = 3600.0


def at(row: Incarnation, place: Place) -> bool:
    return row.zone == place.zone and row.accelerator == place.accelerator.name


def in_order(pool: PoolSpec, history: Iterable[Incarnation], now: Instant) -> tuple[Place, ...]:
    """The pool's places, the one to ask first. `history`: the slot's incarnations that are over."""
    tried: dict[Place, Instant] = {}
    for row in history:
        ended = row.ended_at or row.since
        if _did_not_come(row) and now.since(ended) < TRIED_S:
            for place in pool.places:
                if at(row, place):
                    tried[place] = max(ended, tried.get(place, ended))
    return tuple(sorted(pool.places, key=lambda place: tried[place].unix_s if place in tried else 0.0))


def _did_not_come(row: Incarnation) -> bool:
    """It was never READY, and a deadline or a refusal that concerns its place ended it."""
    given_up = row.delete_reason.startswith((QUEUE, PROVISION, BOOT, JOIN))
    return row.ready_at is None and (given_up or row.error_kind in PLACE_KINDS)


def slowed_down(place: Place, rows: Iterable[Incarnation], now: Instant, young_s: float | None) -> str:
    """Why a place where slices die young or never come up is left alone for a while; "" if it is not."""
    if young_s is None:
        return ""
    ends = sorted(
        (row.ended_at for row in rows if row.ended_at is not None and at(row, place) and _went_wrong(row, young_s)),
        key=lambda ended: ended.unix_s,
    )
    recent = [ended for ended in ends if now.since(ended) <= WINDOW_S]
    if len(recent) < FREE:
        return ""
    pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (len(recent) - FREE))
    left_s = pause_s - now.since(recent[-1])
    if left_s <= 0:
        return ""
    return (
        f"{len(recent)} slices there died within {show_duration(young_s)} of READY or never came up in the last "
        f"{show_duration(WINDOW_S)}; next try in {show_duration(left_s)}"
    )


def _went_wrong(row: Incarnation, young_s: float) -> bool:
    if row.ready_at is None:
        return row.delete_reason.startswith((PROVISION, BOOT, JOIN))
    return row.was_lost and row.ended_at is not None and row.ended_at.since(row.ready_at) < young_s
