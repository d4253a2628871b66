"""Objects with every field filled; a test states only what it is about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tpuctl.base.ids import ClusterName, Epoch, IncarnationId, PoolName, QrName, RunId, RunName, SliceName, Zone
from tpuctl.base.units import Instant
from tpuctl.cloud.model import Known, Listing, Node, NodeState, QrState, QueuedResource, Unknown, UnrecognisedState
from tpuctl.fleet.model import FleetView, RayHost, RayTable, RayView, ZoneView
from tpuctl.spec.cluster import ClusterSpec, GrantEntry, GrantSpec, HeadSpec
from tpuctl.spec.pool import PoolSpec
from tpuctl.store.records import Incarnation, Intent, Phase, Run, RunState
from tpuctl.testing.clock import START

CLUSTER = ClusterName("lab")
EPOCH = Epoch("t6m8gb")
POOL = PoolName("v4")
ZONE = Zone("us-central2-b")
LONG_AGO = START.plus(-86400)


def an_id(slot: int = 0, n: int = 1, *, pool: str = POOL, epoch: Epoch = EPOCH) -> IncarnationId:
    return IncarnationId(CLUSTER, PoolName(pool), slot, epoch, n)


def an_incarnation(slot: int = 0, n: int = 1, *, pool: str = POOL, epoch: Epoch = EPOCH, **changes: Any) -> Incarnation:
    """READY, on two hosts, for an hour."""
    since = changes.pop("since", START.plus(-3600))
    values: dict[str, Any] = {
        "zone": ZONE,
        "accelerator": "v4-16",
        "chips": 8,
        "hosts": 2,
        "request_id": f"request-{slot}-{n}",
        "intent": Intent.SEEN,
        "phase": Phase.READY,
        "since": since,
        "created_at": since,
        "node_seen": True,
        "active_at": since,
        "ready_at": since,
    }
    values.update(changes)
    return Incarnation(an_id(slot, n, pool=pool, epoch=epoch).qr_name, PoolName(pool), slot, epoch, n, **values)


def a_queued_resource(
    slot: int = 0,
    n: int = 1,
    *,
    state: QrState | UnrecognisedState = QrState.ACTIVE,
    pool: str = POOL,
    epoch: Epoch = EPOCH,
    **changes: Any,
) -> QueuedResource:
    """Of incarnation n of the slot, spot, with our labels."""
    made = an_id(slot, n, pool=pool, epoch=epoch)
    values: dict[str, Any] = {
        "zone": ZONE,
        "node_ids": (made.qr_name,),
        "accelerator_type": "v4-16",
        "runtime_version": "tpu-ubuntu2204-base",
        "spot": True,
        "labels": made.labels,
    }
    values.update(changes)
    return QueuedResource(values.pop("name", made.qr_name), state=state, **values)


def a_node(
    slot: int = 0,
    n: int = 1,
    *,
    state: NodeState | UnrecognisedState = NodeState.READY,
    pool: str = POOL,
    epoch: Epoch = EPOCH,
    **changes: Any,
) -> Node:
    made = an_id(slot, n, pool=pool, epoch=epoch)
    values: dict[str, Any] = {
        "zone": ZONE,
        "queued_resource": made.qr_name,
        "accelerator_type": "v4-16",
        "labels": made.labels,
    }
    values.update(changes)
    return Node(values.pop("node_id", made.qr_name), state=state, **values)


def ray_hosts(incarnation: QrName, workers: Iterable[int]) -> tuple[RayHost, ...]:
    slice_name = incarnation.rsplit("-", 2)[0].removeprefix(f"{CLUSTER}-")  # lab-v4-0-t6m8gb-1 -> v4-0
    return tuple(
        RayHost(f"{incarnation}/{worker}", SliceName(slice_name), incarnation, worker, "boot", "10.0.0.1", 4)
        for worker in workers
    )


def a_ray_view(
    *hosts: RayHost, head_since: Instant | None = LONG_AGO, at: Instant = START, monotonic_s: float = 1000.0
) -> RayView:
    return Known(RayTable(hosts, head_since), at, monotonic_s)


def a_zone_view(
    queued: Iterable[QueuedResource] | Unknown = (),
    nodes: Iterable[Node] | Unknown = (),
    *,
    zone: Zone = ZONE,
    complete: bool = True,
    at: Instant = START,
    monotonic_s: float = 1000.0,
) -> ZoneView:
    return ZoneView(
        zone,
        queued if isinstance(queued, Unknown) else Known(Listing(tuple(queued), complete), at, monotonic_s),
        nodes if isinstance(nodes, Unknown) else Known(Listing(tuple(nodes), complete), at, monotonic_s),
    )


def a_fleet_view(*zones: ZoneView, ray: RayView | None = None) -> FleetView:
    return FleetView(zones or (a_zone_view(),), ray if ray is not None else a_ray_view())


def a_pool(name: str = POOL, **changes: Any) -> PoolSpec:
    """One slice of v4-16: two hosts of four chips."""
    if "accelerator" in changes:
        changes["accelerators"] = (changes.pop("accelerator"),)
    values: dict[str, Any] = {
        "accelerators": ("v4-16",),
        "zones": (ZONE,),
        "runtime": "tpu-ubuntu2204-base",
        "slices": 1,
    }
    values.update(changes)
    return PoolSpec(name=PoolName(name), **values)


def a_cluster_spec(*pools: PoolSpec, grant_chips: int | None = None, **changes: Any) -> ClusterSpec:
    """`grant_chips`: of spot v4 in ZONE; None is no grant."""
    grant = None
    if grant_chips is not None:
        entry = GrantEntry(zone=ZONE, generation="v4", tier="spot", chips=grant_chips)
        grant = GrantSpec(until=None, entries=(entry,))
    values: dict[str, Any] = {
        "cluster": CLUSTER,
        "project": "test-project",
        "backend": "emulator",
        "head": HeadSpec(zone=Zone("us-central1-a")),
        "grant": grant,
        "pools": pools or (a_pool(),),
    }
    values.update(changes)
    return ClusterSpec(**values)


def a_run(name: str = "digits", **changes: Any) -> Run:
    values: dict[str, Any] = {
        "id": RunId(f"{name}-1"),
        "spec_json": "{}",
        "user": "tester",
        "priority": 0,
        "state": RunState.QUEUED,
        "since": START,
        "submitted_at": START,
    }
    values.update(changes)
    return Run(name=RunName(name), **values)
