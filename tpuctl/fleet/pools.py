"""What of a pool decides whether an existing slice still is one of it. Pure."""

from __future__ import annotations

import hashlib
import json

from tpuctl.cloud.model import QueuedResource
from tpuctl.fleet.scene import Scene
from tpuctl.spec.accelerators import accelerator, all_accelerators, canonical_name
from tpuctl.spec.cluster import ClusterSpec
from tpuctl.spec.pool import PoolSpec
from tpuctl.store.records import Incarnation


def digest_of(pool: PoolSpec, name: str = "") -> str:
    """Of what a queued resource of that accelerator type is made with and cannot change. Where it is and of which type
    is not in it: the spec may list more places without an existing slice being another. Nor are numbers and deadlines.
    """
    made = accelerator(name or pool.accelerators[0])
    made_of = [
        pool.tier,
        pool.reservation,
        pool.runtime_of(made),
        sorted(pool.labels),
        sorted(pool.metadata),
        sorted((disk.disk, disk.mode) for disk in pool.data_disks),
    ]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]


def slot_exists(spec: ClusterSpec, pool_name: str, slot: int) -> bool:
    pool = spec.pool(pool_name)
    return pool is not None and 0 <= slot < spec.most_slices(pool)


def what_differs(found: QueuedResource, pool: PoolSpec) -> str:
    """The first thing in which a queued resource differs from what the pool asks for; "" if it does not.

    A runtime that the service does not name differs in nothing: unknown is not other.
    """
    if found.zone not in pool.zones:
        return f"zone {found.zone} instead of {' or '.join(pool.zones)}"
    if canonical_name(found.accelerator_type) not in pool.accelerators:
        return f"accelerator {found.accelerator_type} instead of {' or '.join(pool.accelerators)}"
    runtime = pool.runtime_of(accelerator(found.accelerator_type))
    if found.runtime_version and found.runtime_version != runtime:
        return f"runtime {found.runtime_version} instead of {runtime}"
    if found.tier != pool.tier:
        return f"{found.tier} instead of {pool.tier}"
    return ""


def why_unwanted(row: Incarnation, scene: Scene) -> str:
    """Why an incarnation is not wanted any more; "" if it is, or if no spec says anything."""
    if not scene.wanted:
        return "down: nothing is wanted"
    spec = scene.spec
    if spec is None:
        return ""
    if reason := scene.drain_reason:
        return reason
    pool = spec.pool(row.pool)
    if pool is None:
        return f"the spec has no pool {row.pool} any more"
    most = spec.most_slices(pool)
    if row.slot >= most:
        return f"scale-down: pool {row.pool} wants {most} slices"
    if row.zone not in pool.zones:
        return f"the spec of pool {row.pool} changed: {row.zone} is not one of its zones any more"
    if row.accelerator not in pool.accelerators or row.accelerator not in all_accelerators():
        return f"the spec of pool {row.pool} changed: {row.accelerator} is not one of its types any more"
    if row.spec_digest != digest_of(pool, row.accelerator):
        return f"the spec of pool {row.pool} changed: tier, runtime, labels, metadata or disks"
    return ""
