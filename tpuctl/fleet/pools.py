"""What of a pool decides whether an existing slice still is one of it. Pure."""

from __future__ import annotations

import hashlib
import json

from tpuctl.base.ids import Zone
from tpuctl.spec.accelerators import canonical_name
from tpuctl.spec.cluster import ClusterSpec, PoolSpec
from tpuctl.store.records import Incarnation


def digest_of(pool: PoolSpec) -> str:
    """Of what a queued resource is made with and cannot change: not of the number of slices or the deadlines."""
    made_of = [list(pool.zones), canonical_name(pool.accelerator), pool.tier, pool.runtime]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]


def slot_exists(spec: ClusterSpec, pool_name: str, slot: int) -> bool:
    pool = spec.pool(pool_name)
    return pool is not None and 0 <= slot < pool.slices


def what_differs(pool: PoolSpec, zone: Zone, accelerator: str, runtime: str, *, spot: bool) -> str:
    """The first thing in which a queued resource differs from what the pool asks for; "" if it does not."""
    if zone not in pool.zones:
        return f"zone {zone} instead of {pool.zone}"
    if canonical_name(accelerator) != canonical_name(pool.accelerator):
        return f"accelerator {accelerator} instead of {pool.accelerator}"
    if runtime != pool.runtime:
        return f"runtime {runtime} instead of {pool.runtime}"
    if spot != (pool.tier == "spot"):
        return f"{'spot' if spot else 'not spot'} instead of {pool.tier}"
    return ""


def why_unwanted(row: Incarnation, spec: ClusterSpec | None, *, wanted: bool) -> str:
    """Why an incarnation is not wanted any more; "" if it is, or if no spec says anything."""
    if not wanted:
        return "down: nothing is wanted"
    if spec is None:
        return ""
    pool = spec.pool(row.pool)
    if pool is None:
        return f"the spec has no pool {row.pool} any more"
    if row.slot >= pool.slices:
        return f"scale-down: pool {row.pool} wants {pool.slices} slices"
    if row.spec_digest != digest_of(pool):
        return f"the spec of pool {row.pool} changed: zone, accelerator, tier or runtime"
    return ""
