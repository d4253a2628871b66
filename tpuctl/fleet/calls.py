"""One effect on the cloud, and what became of it. Runs on worker threads; touches no store."""

from __future__ import annotations

from dataclasses import dataclass

from tpuctl.base.ids import ClusterName, IncarnationId
from tpuctl.cloud.errors import AlreadyExistsError, CloudError, NotFoundError
from tpuctl.cloud.model import QrRequest, TpuApi
from tpuctl.fleet.metadata import NodeMetadata
from tpuctl.fleet.pools import what_differs
from tpuctl.spec.accelerators import accelerator
from tpuctl.spec.cluster import NetworkSpec
from tpuctl.spec.pool import PoolSpec
from tpuctl.store.records import Incarnation


@dataclass(frozen=True, slots=True)
class Accepted:
    """The service took it."""


@dataclass(frozen=True, slots=True)
class Ours:
    """The name was taken by our own earlier request, of the same shape."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The name is somebody else's, or of another shape."""

    text: str


@dataclass(frozen=True, slots=True)
class Refused:
    error: CloudError


Outcome = Accepted | Ours | Taken | Refused


def create(tpu: TpuApi, request: QrRequest, request_id: str, pool: PoolSpec) -> Outcome:
    try:
        tpu.create_queued_resource(request, request_id)
    except AlreadyExistsError:
        return _whose(tpu, request, pool)
    except CloudError as error:
        return Refused(error)
    return Accepted()


def delete(tpu: TpuApi, row: Incarnation) -> CloudError | None:
    """None when it is being deleted or not there any more."""
    try:
        tpu.delete_queued_resource(row.zone, row.name, row.delete_request_id)
    except NotFoundError:
        return None
    except CloudError as error:
        return error
    return None


def request_for(
    row: Incarnation, pool: PoolSpec, cluster: ClusterName, network: NetworkSpec, metadata: NodeMetadata
) -> QrRequest:
    made = IncarnationId(cluster, row.pool, row.slot, row.epoch, row.n)
    return QrRequest(
        name=row.name,
        zone=row.zone,
        accelerator_type=row.accelerator,
        runtime_version=pool.runtime_of(accelerator(row.accelerator)),
        labels={**dict(pool.labels), **made.labels},
        metadata={**dict(pool.metadata), **metadata(row)},
        tier=row.tier,
        reservation=pool.reservation,
        valid_after=row.not_before,
        valid_until=row.expires_at,
        data_disks=tuple((disk.disk, disk.mode == "read-only") for disk in pool.data_disks),
        network=network.network,
        subnetwork=network.subnetwork,
        external_ips=network.external_ips,
        tags=network.tags,
    )


def _whose(tpu: TpuApi, request: QrRequest, pool: PoolSpec) -> Outcome:
    try:
        found = tpu.get_queued_resource(request.zone, request.name)
    except CloudError as error:
        return Refused(error)
    if dict(found.labels) != dict(request.labels):
        return Taken(f"{found.zone} has a queued resource {found.name} ({found.accelerator_type}) without our labels")
    if text := what_differs(found, pool):
        return Taken(f"{found.zone} has a queued resource {found.name} with our labels, but {text}")
    return Ours()
