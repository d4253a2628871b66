"""How many slices a pool wants now, and which of its surplus may be given back. Pure.

A pool always wants `min`. Beyond that it wants what runs hold and what queued runs would fill, up to `max`. Nothing is
given back for want of demand alone: only what has been idle for `idle`, and never under a lease.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tpuctl.base.ids import PoolName
from tpuctl.base.units import show_duration
from tpuctl.fleet.draft import Draft
from tpuctl.spec.accelerators import accelerator
from tpuctl.spec.cluster import ClusterSpec
from tpuctl.spec.pool import PoolSpec
from tpuctl.store.records import Incarnation, Phase

Demand = Mapping[PoolName, int]  # chips that queued runs would fill, by pool


@dataclass(frozen=True, slots=True)
class PoolWant:
    """`target` slices are asked for now; `most` is the number of the pool's slots."""

    target: int
    most: int
    held: int  # slices that runs hold
    queued: int  # slices that queued runs would fill

    @property
    def reason(self) -> str:
        if self.held or self.queued:
            return f"{self.held} held by runs, {self.queued} wanted by queued runs"
        return "no run wants it"


def pool_want(spec: ClusterSpec, pool: PoolSpec, rows: Iterable[Incarnation], held: int, demand: Demand) -> PoolWant:
    """`held`: slices of the pool under a lease. `rows` are the pool's living ones."""
    most = spec.most_slices(pool)
    sizes = [row.chips for row in rows if row.chips] or [min(accelerator(name).chips for name in pool.accelerators)]
    queued = math.ceil(demand.get(pool.name, 0) / min(sizes))
    least = min(pool.slices.min, most)
    return PoolWant(min(max(least, held + queued), most), most, held, queued)


def wants_of(draft: Draft, spec: ClusterSpec, demand: Demand) -> dict[PoolName, PoolWant]:
    leased = {lease.incarnation for lease in draft.scene.leases}
    living: dict[PoolName, list[Incarnation]] = {}
    for row in draft.rows:
        if not row.phase.is_over:
            living.setdefault(row.pool, []).append(row)
    return {
        pool.name: pool_want(
            spec,
            pool,
            living.get(pool.name, ()),
            sum(row.name in leased for row in living.get(pool.name, ())),
            demand,
        )
        for pool in spec.pools
    }


def note_idle(draft: Draft) -> None:
    """Since when each living slice of a pool that gives back has had no run. A lease ends the count."""
    scene = draft.scene
    for row in draft.rows:
        pool = scene.pool(row.pool)
        if row.phase.is_over or pool is None or pool.idle_s is None:
            continue
        if scene.holder_of(row.name) is not None:
            draft.put(replace(row, idle_since=None))
        elif row.idle_since is None:
            draft.put(replace(row, idle_since=scene.now))


def give_back(draft: Draft, wants: Mapping[PoolName, PoolWant]) -> None:
    """Doom what is idle for long enough and above what the pool wants: what is furthest from READY first, then what
    has been idle for longest."""
    scene = draft.scene
    for name, want in wants.items():
        pool = scene.pool(name)
        if pool is None or pool.idle_s is None:
            continue
        living = [row for row in draft.rows if row.pool == name and not row.phase.is_over]
        surplus = len(living) - want.target
        idle = [
            row
            for row in living
            if row.idle_since is not None
            and scene.now.since(row.idle_since) >= pool.idle_s
            and scene.holder_of(row.name) is None
        ]
        idle.sort(key=lambda row: (row.phase is Phase.READY, row.idle_since or scene.now, -row.slot))
        for row in idle[: max(0, surplus)]:
            since_s = scene.now.since(row.idle_since or scene.now)
            draft.doom(row.name, f"idle for {show_duration(since_s)}; pool {name} wants {want.target}: {want.reason}")
