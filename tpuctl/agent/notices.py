"""What people are told of without asking: which conditions hold, and which of them is due to be told. Pure.

A condition has a key. It is told once for each channel that the spec names, remembered while it holds, and told again
only after it has cleared. A telling that fails is repeated a few times, later and later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tpuctl.agent.documents import still_counts
from tpuctl.base.units import Instant, show_duration
from tpuctl.fleet.room import paused_pool
from tpuctl.head.silence import SILENT_AFTER_S
from tpuctl.spec.accelerators import all_accelerators, canonical_name
from tpuctl.spec.cluster import ClusterSpec
from tpuctl.store.records import ENDLESS_S, Incarnation, Run, ZoneHold

DAY_S = 86400.0
GRANT_DAYS = (1, 7)  # before its end, nearest first
ENDED_RUN_S = DAY_S  # who hears of a run's end a day late has looked already
RETRY_S = 30.0  # doubled with each failure
MOST_TRIES = 5


@dataclass(frozen=True, slots=True)
class Notice:
    key: str
    kind: str  # pool-paused, run-ended, grant-ending, grant-ended, no-pass, outside-grant
    subject: str
    text: str  # one line, without the cluster's name


@dataclass(frozen=True, slots=True)
class Situation:
    """All that the conditions depend on."""

    spec: ClusterSpec
    incarnations: tuple[Incarnation, ...]
    holds: tuple[ZoneHold, ...]
    reasons: Mapping[str, str]  # what the last pass held back, and why
    ended_runs: tuple[Run, ...]
    last_pass: Instant  # the end of the last pass; without one, the begin of the wait for it


@dataclass(frozen=True, slots=True)
class Telling:
    """How far one notice has come on one channel."""

    tries: int = 0
    next_at: Instant | None = None  # None: not again


@dataclass(frozen=True, slots=True)
class Memory:
    """`since`: when somebody was named to be told; runs that ended before are old news."""

    since: Instant
    tellings: Mapping[tuple[str, str], Telling] = field(default_factory=dict)  # by (channel, key)


def conditions(now_is: Situation, since: Instant, now: Instant) -> tuple[Notice, ...]:
    """What holds now, in a fixed order."""
    return (
        *_paused(now_is, now),
        *_ended_runs(now_is.ended_runs, since, now),
        *_grant_end(now_is.spec, now),
        *_silence(now_is, now),
        *_outside_grant(now_is),
    )


def due(
    memory: Memory, holding: Iterable[Notice], channels: Iterable[str], now: Instant
) -> tuple[tuple[tuple[str, Notice], ...], Memory]:
    """(channel, notice) pairs to be told now, and the memory without what has cleared."""
    wanted = {(channel, notice.key): notice for channel in channels for notice in holding}
    kept = {key: telling for key, telling in memory.tellings.items() if key in wanted}
    pairs = []
    for key, notice in wanted.items():
        telling = kept.get(key)
        if telling is None or (telling.next_at is not None and telling.next_at <= now):
            pairs.append((key[0], notice))
    return tuple(pairs), replace(memory, tellings=kept)


def told(memory: Memory, channel: str, notice: Notice, now: Instant, *, arrived: bool) -> Memory:
    """After a telling. The last failure counts as told: it is in the log, and nobody would come for it."""
    key = (channel, notice.key)
    tries = memory.tellings.get(key, Telling()).tries + 1
    over = arrived or tries >= MOST_TRIES
    next_at = None if over else now.plus(RETRY_S * 2.0 ** (tries - 1))
    return replace(memory, tellings={**memory.tellings, key: Telling(tries, next_at)})


def is_given_up(memory: Memory, channel: str, notice: Notice) -> bool:
    telling = memory.tellings.get((channel, notice.key))
    return telling is not None and telling.next_at is None and telling.tries >= MOST_TRIES


def _paused(now_is: Situation, now: Instant) -> Iterable[Notice]:
    pools: dict[str, str] = {}
    for subject in sorted(now_is.reasons):
        if (pool := paused_pool(now_is.reasons[subject])) and now_is.spec.pool(pool) is not None:
            pools.setdefault(pool, now_is.reasons[subject])
    for pool, reason in pools.items():
        yield Notice(f"paused:{pool}", "pool-paused", pool, reason)
    for hold in now_is.holds:
        if hold.until.since(now) > ENDLESS_S:
            what = f"{hold.accelerator} in {hold.zone}"
            text = f"{what} is not asked for until the spec changes: {hold.kind}: {hold.text}"
            yield Notice(f"refused:{hold.zone}/{hold.accelerator}/{hold.kind}", "pool-paused", what, text)


def _ended_runs(runs: Iterable[Run], since: Instant, now: Instant) -> Iterable[Notice]:
    for run in runs:
        if run.ended_at is not None and run.ended_at >= since and now.since(run.ended_at) < ENDED_RUN_S:
            why = f": {run.reason}" if run.reason else ""
            tries = f"{run.attempts} attempt{'s' * (run.attempts != 1)}"
            text = f"run {run.name} {run.state.value} after {tries}{why}"
            yield Notice(f"run:{run.id}", "run-ended", run.name, text)


def _grant_end(spec: ClusterSpec, now: Instant) -> Iterable[Notice]:
    until = None if spec.grant is None else spec.grant.until
    if until is None:
        return
    day = until.plus(-1.0).iso()[:10]  # `until` is the end of that day
    if now >= until:
        yield Notice(f"grant:{day}:0", "grant-ended", day, f"the grant ended with {day}: nothing is asked for any more")
        return
    for days in GRANT_DAYS:
        if until.since(now) <= days * DAY_S:
            text = f"the grant ends with {day}, in {show_duration(until.since(now))}"
            yield Notice(f"grant:{day}:{days}", "grant-ending", day, text)
            return


def _silence(now_is: Situation, now: Instant) -> Iterable[Notice]:
    quiet_s = now.since(now_is.last_pass)
    if quiet_s > SILENT_AFTER_S:
        text = f"no pass was completed for {show_duration(quiet_s)}: lost slices are not replaced"
        yield Notice("no-pass", "no-pass", now_is.spec.cluster, text)


def _outside_grant(now_is: Situation) -> Iterable[Notice]:
    grant = now_is.spec.grant
    if grant is None:
        return
    granted: dict[tuple[str, str, str], int] = {
        (entry.zone, entry.generation, entry.tier): entry.chips for entry in grant.entries
    }
    used: dict[tuple[str, str, str], int] = {}
    for row in filter(still_counts, now_is.incarnations):
        known = all_accelerators().get(canonical_name(row.accelerator))
        key: tuple[str, str, str] = (row.zone, "" if known is None else known.generation, row.tier)
        used[key] = used.get(key, 0) + row.chips
        if key not in granted:
            what = f"{row.name}: {row.accelerator} ({row.tier}) in {row.zone} is in no entry of the grant"
            yield Notice(f"outside:{row.name}", "outside-grant", row.name, f"{what}; it may be billed")
    for entry, chips in used.items():
        if entry in granted and chips > granted[entry]:
            place = "/".join(entry)
            text = f"{chips} chips of {place} exist, {granted[entry]} are granted; the rest may be billed"
            yield Notice(f"over:{place}", "outside-grant", place, text)


def memory_document(memory: Memory) -> dict[str, Any]:
    rows = [
        [channel, key, telling.tries, None if telling.next_at is None else telling.next_at.unix_s]
        for (channel, key), telling in sorted(memory.tellings.items())
    ]
    return {"version": 1, "since": memory.since.unix_s, "tellings": rows}


def parse_memory(document: Any) -> Memory:
    """Raises ValueError, KeyError, TypeError for what this version did not write."""
    tellings = {
        (str(channel), str(key)): Telling(int(tries), None if at is None else Instant(float(at)))
        for channel, key, tries, at in document["tellings"]
    }
    return Memory(Instant(float(document["since"])), tellings)
