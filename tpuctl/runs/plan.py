"""Which run gets which slices, and what to do with attempts that run or ended. Pure.

Rules of the queue:

* Order: higher priority first, then the older submission.
* A run takes whole free slices of one accelerator type in one zone: at least its minimum, at most its maximum, once.
* A free slice is kept for the highest run in the order that waits and could use it. A run further down takes only
  what no waiting run above it could use (another type, zone or pool, or a place that can never hold the gang above).
  No run states how long it will take, so any other backfill could delay the gang above by days.
* A slice that is leased, or named by any open attempt, is never given (A39).

What happens to an attempt is in runs/attempts.py, the verdict on it in runs/verdict.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tpuctl.base.ids import SliceName, Zone
from tpuctl.base.units import Instant, show_duration
from tpuctl.runs.attempts import PlanSettings, close_without_attempt, is_open, plan_attempt
from tpuctl.runs.model import CloudWord, RunAction, RunView, SliceView, StartAttempt, Wait
from tpuctl.spec.accelerators import accelerator

__all__ = ["PlanSettings", "plan_runs"]


@dataclass(frozen=True, slots=True)
class _Group:
    """Slices that one gang may combine: one accelerator type, one zone; in the run's order of preference."""

    accelerator: str
    zone: Zone
    slices: tuple[SliceView, ...]


def plan_runs(
    runs: tuple[RunView, ...],
    slices: tuple[SliceView, ...],
    cloud_words: tuple[CloudWord, ...],
    now: Instant,
    settings: PlanSettings,
) -> tuple[RunAction, ...]:
    """One action for each living run, none for the rest. Runs whose attempt is open come first, then the queue's order.

    A pause or a cancelled run in the queue shows as an action too: `Wait`, or `CloseAttempt` with attempt 0.
    """
    living = [view for view in runs if not view.run.state.is_over]
    opened = [view for view in living if is_open(view)]
    queue = sorted((view for view in living if not is_open(view)), key=_rank)
    actions: list[RunAction] = [plan_attempt(view, slices, cloud_words, now, settings) for view in opened]
    held = _held(opened, slices)
    names: dict[str, str] = {view.run.id: view.run.name for view in runs}
    holders = {name: names.get(run_id, run_id) for name, run_id in held.items()}
    kept: dict[SliceName, str] = {}  # slice -> who takes it in this plan, or for whom it is kept
    for view in queue:
        if view.run.cancel_asked:
            actions.append(close_without_attempt(view))
            continue
        actions.append(_place(view, slices, holders, kept, now))
    return tuple(actions)


def _rank(view: RunView) -> tuple[int, Instant, str]:
    return (-view.run.priority, view.run.submitted_at, view.run.id)


def _held(opened: Sequence[RunView], slices: tuple[SliceView, ...]) -> dict[SliceName, str]:
    held: dict[SliceName, str] = {view.slice: view.lease for view in slices if view.lease is not None}
    for run in opened:
        if run.attempt is not None:
            held.update({name: run.run.id for name, _ in run.attempt.slices})
    return held


def _place(
    view: RunView,
    slices: tuple[SliceView, ...],
    holders: dict[SliceName, str],
    kept: dict[SliceName, str],
    now: Instant,
) -> RunAction:
    """Start the run or let it wait; either way marks in `kept` what the runs after it may not take."""
    want, run = view.want, view.run
    groups = [group for group in _groups(view, slices) if len(group.slices) >= want.min_slices]
    free = [
        _Group(
            group.accelerator, group.zone, tuple(each for each in group.slices if _is_free(each, holders, kept, now))
        )
        for group in groups
    ]
    ready = [group for group in free if len(group.slices) >= want.min_slices]
    if not ready:
        reason = _why_waiting(view, slices, groups, holders, kept, now)
        kept.update({each.slice: str(run.name) for group in free for each in group.slices})
        return Wait(run.id, reason)
    # The preferred type decides; among its zones the one that gives the larger gang.
    best = min(
        ready, key=lambda group: (_preference(view, group), -min(len(group.slices), _most(view, group)), group.zone)
    )
    gang = _in_rank_order(best.slices[: _most(view, best)])
    kept.update({each.slice: str(run.name) for each in gang})
    if run.not_before is not None and now < run.not_before:
        pause = show_duration(max(0.1, run.not_before.since(now)))
        return Wait(
            run.id, f"pauses for {pause} before attempt {run.attempts + 1}: {run.reason or 'the last one ended'}"
        )
    where = ", ".join(each.slice for each in gang)
    return StartAttempt(run.id, run.attempts + 1, gang, f"{where} {'is' if len(gang) == 1 else 'are'} ready and free")


def _groups(view: RunView, slices: tuple[SliceView, ...]) -> list[_Group]:
    """All slots that the run may use, whatever their state, in gangs that may be combined."""
    want = view.want
    found: dict[tuple[str, Zone], list[SliceView]] = {}
    for each in slices:
        if each.pool in want.pools and each.accelerator in want.accelerators:
            found.setdefault((each.accelerator, each.zone), []).append(each)
    return [
        _Group(accelerator, zone, tuple(sorted(members, key=lambda each: (want.pools.index(each.pool), _order(each)))))
        for (accelerator, zone), members in sorted(found.items())
    ]


def _preference(view: RunView, group: _Group) -> tuple[int, int]:
    pools = view.want.pools
    return view.want.accelerators.index(group.accelerator), min(pools.index(each.pool) for each in group.slices)


def _most(view: RunView, group: _Group) -> int:
    """Several slices of a type that has no multislice cannot be one gang (A19)."""
    return view.want.max_slices if accelerator(group.accelerator).joins_gangs else 1


def _is_free(view: SliceView, holders: dict[SliceName, str], kept: dict[SliceName, str], now: Instant) -> bool:
    return view.is_usable(now) and view.slice not in holders and view.slice not in kept


def _order(view: SliceView) -> tuple[str, int]:
    """Slot 10 comes after slot 9."""
    number = re.search(r"(\d+)$", view.slice)
    return view.pool, int(number[1]) if number else 0


def _in_rank_order(gang: tuple[SliceView, ...]) -> tuple[SliceView, ...]:
    return tuple(sorted(gang, key=_order))


def _why_waiting(
    view: RunView,
    slices: tuple[SliceView, ...],
    groups: list[_Group],
    holders: dict[SliceName, str],
    kept: dict[SliceName, str],
    now: Instant,
) -> str:
    """In words: how many slices are missing, and what is the matter with each that it could use."""
    want = view.want
    if not groups:
        fitting = [each for group in _groups(view, slices) for each in group.slices]
        if not fitting:
            return f"no slice of pool {' or '.join(want.pools) or '(none allowed)'} is asked for yet"
        listed = ", ".join(each.slice for each in fitting)
        wanted = f"wants {want.min_slices} slices of one type in one zone"
        return f"{wanted}; only {listed} could be used: raise the pool's slices"
    told = []
    for group in sorted(groups, key=lambda group: _preference(view, group)):
        free = [each for each in group.slices if _is_free(each, holders, kept, now)]
        missing = want.min_slices - len(free)
        matters = ", ".join(_matter(each, holders, kept, now) for each in group.slices if each not in free)
        noun = "slice" if missing == 1 else "slices"
        told.append(f"{missing} {noun} of {group.accelerator} in {group.zone}: {matters}")
    return "waits for " + "; or for ".join(told)


def _matter(view: SliceView, holders: dict[SliceName, str], kept: dict[SliceName, str], now: Instant) -> str:
    if view.slice in holders:
        return f"{view.slice} is held by run {holders[view.slice]}"
    if view.slice in kept:
        return f"{view.slice} is kept for run {kept[view.slice]}, which comes first"
    if view.is_usable(now):
        return f"{view.slice} is free"
    if view.suspect_until is not None and now < view.suspect_until:
        return f"{view.slice} lost contact, kept off until {view.suspect_until.iso()}"
    if view.phase.value == "READY":
        return f"{view.slice} has not all its {view.hosts} hosts in Ray"
    return f"{view.slice} is {view.phase.value}"
