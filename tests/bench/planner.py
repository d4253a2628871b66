"""The fleet's planner alone: 1,000 and 10,000 slots of which a third changes, and how its time grows.

Pools of a hundred slots over eight zones, in one grant. In each pool a third changes in three ways: suspended by the
service, gone from the lists, newly seen ACTIVE.
"""

from __future__ import annotations

import gc
import time
from itertools import islice
from statistics import median

from tpuctl.base.ids import PoolName, Zone
from tpuctl.cloud.model import Node, QrState, QueuedResource
from tpuctl.fleet.model import FleetRecords, FleetView, Plan, RayHost
from tpuctl.fleet.plan import plan_fleet
from tpuctl.fleet.pools import digest_of
from tpuctl.spec.cluster import ClusterSpec, GrantEntry, GrantSpec
from tpuctl.store.records import Incarnation, Phase
from tpuctl.testing.builders import (
    CLUSTER,
    EPOCH,
    a_cluster_spec,
    a_fleet_view,
    a_node,
    a_pool,
    a_queued_resource,
    a_ray_view,
    a_zone_view,
    an_incarnation,
    ray_hosts,
)
from tpuctl.testing.clock import START

SIZES = (1_000, 10_000)
POOL_SLOTS, ZONES = 100, 8
SALT = "9d1c3e8a-5b0f-4c55-9a73-0d0c54a1f6b2"
World = tuple[ClusterSpec, FleetRecords, FleetView]


def a_world(slots: int) -> World:
    """Records that say READY of each slot, or WAITING of a ninth, and what the cloud has of them."""
    zones = [Zone(f"us-test{number}-b") for number in range(ZONES)]
    rows: list[Incarnation] = []
    queued: dict[Zone, list[QueuedResource]] = {zone: [] for zone in zones}
    nodes: dict[Zone, list[Node]] = {zone: [] for zone in zones}
    hosts: list[RayHost] = []
    pools = []
    for index in range(slots // POOL_SLOTS):
        name, zone = f"p{index}", zones[index % ZONES]
        pool = a_pool(name, slices=POOL_SLOTS, zones=(zone,))
        digest = digest_of(pool)
        pools.append(pool)
        for slot in range(POOL_SLOTS):
            change = ("suspended", "gone", "new")[slot // 3 % 3] if slot % 3 == 0 else ""
            phase = Phase.WAITING if change == "new" else Phase.READY
            row = an_incarnation(
                slot, pool=name, zone=zone, phase=phase, node_seen=phase is Phase.READY, spec_digest=digest
            )
            rows.append(row)
            if change == "gone":
                continue
            state = QrState.SUSPENDED if change == "suspended" else QrState.ACTIVE
            queued[zone].append(a_queued_resource(slot, pool=name, zone=zone, state=state))
            if change != "suspended":
                nodes[zone].append(a_node(slot, pool=name, zone=zone))
                hosts += ray_hosts(row.name, (0, 1))
    chips = 2 * 8 * slots  # room for the dead and for their successors
    entries = tuple(GrantEntry(zone=zone, generation="v4", tier="spot", chips=chips) for zone in zones)
    spec = a_cluster_spec(*pools, grant=GrantSpec(until=None, entries=entries))
    numbers = {(PoolName(row.pool), row.slot): row.n for row in rows}
    view = a_fleet_view(*(a_zone_view(queued[zone], nodes[zone], zone=zone) for zone in zones), ray=a_ray_view(*hosts))
    return spec, FleetRecords(tuple(rows), numbers, surveyed=frozenset(zones)), view


def planned(world: World) -> tuple[float, Plan]:
    """Seconds, and the plan."""
    spec, records, view = world
    gc.collect()
    began = time.perf_counter()
    plan = plan_fleet(spec, True, records, view, (), START, 1000.0, EPOCH, cluster=CLUSTER, salt=SALT)
    return time.perf_counter() - began, plan


def bench(rounds: int) -> None:
    worlds = {slots: a_world(slots) for slots in SIZES}
    seen: dict[int, list[float]] = {slots: [] for slots in SIZES}
    done: dict[int, Plan] = {}
    for turn in range(rounds + 1):
        for slots, world in worlds.items():
            seconds, done[slots] = planned(world)
            if turn:
                seen[slots].append(seconds)
    for slots, times in seen.items():
        plan = done[slots]
        print(
            f"  {slots:>6} slots {median(times):7.3f} s   {len(plan.changes)} changes, "
            f"{len(plan.deletes)} deletes, {len(plan.creates)} creates"
        )
    few, many = SIZES
    growth = median(seen[many]) / median(seen[few])
    print(f"  {many // few} x the slots: {growth:.1f} x the time")
    for hold in islice(done[few].holds, 2):
        print(f"  held back, e.g. {hold}")
