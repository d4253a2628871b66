"""What of a pool decides whether an existing slice still is one of it. Pure."""

from __future__ import annotations

import hashlib
import json

from tpuctl.cloud.model import QueuedResource
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


def what_differs(found: QueuedResource, pool: PoolSpec) -> str:
    """The first thing in which a queued resource differs from what the pool asks for; "" if it does not.

    A runtime that the service does not name differs in nothing: unknown is not other.
    """
    if found.zone not in pool.zones:
        return f"zone {found.zone} instead of {pool.zone}"
    if canonical_name(found.accelerator_type) != canonical_name(pool.accelerator):
        return f"accelerator {found.accelerator_type} instead of {pool.accelerator}"
    if found.runtime_version and found.runtime_version != pool.runtime:
        return f"runtime {found.runtime_version} instead of {pool.runtime}"
    if found.spot != (pool.tier == "spot"):
        return f"{'spot' if found.spot else 'not spot'} instead of {pool.tier}"
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
