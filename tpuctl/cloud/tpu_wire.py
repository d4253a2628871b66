"""Cloud TPU's messages to and from our types. Raw protobuf is read, since proto-plus warns at each unknown number."""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeVar

from google.cloud import tpu_v2
from google.protobuf import json_format, timestamp_pb2
from google.rpc import error_details_pb2
from google.type import interval_pb2

from tpuctl.base.ids import QrName, Zone
from tpuctl.base.units import Instant
from tpuctl.cloud.classify import failure_of
from tpuctl.cloud.model import (
    Initiator,
    Node,
    NodeHealth,
    NodeState,
    QrRequest,
    QrState,
    QueuedResource,
    UnrecognisedState,
)

E = TypeVar("E", bound=Enum)


def recognised(enum: type[E], number: int) -> E | UnrecognisedState:
    """0 is what an unknown enum *string* becomes on its way through the client: unrecognised, never a default."""
    try:
        return enum(number)
    except ValueError:
        return UnrecognisedState(str(number) if number else "STATE_UNSPECIFIED")


def last_segment(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def zone_in(name: str) -> Zone:
    """`…/locations/us-east5-b/nodes/n` → `us-east5-b`; "" when the name has none."""
    parts = name.split("/")
    return Zone(parts[parts.index("locations") + 1]) if "locations" in parts[:-1] else Zone("")


def queued_resource_of(message: Any) -> QueuedResource:
    """From a raw QueuedResource message."""
    specs = list(message.tpu.node_spec)
    first = specs[0].node if specs else None
    initiator = recognised(Initiator, message.state.state_initiator)
    name = QrName(last_segment(message.name))
    error = _status_of(message.state.failed_data.error) if message.state.HasField("failed_data") else None
    return QueuedResource(
        name=name,
        zone=zone_in(message.name),
        state=recognised(QrState, message.state.state),
        initiator=initiator if isinstance(initiator, Initiator) else None,
        node_ids=tuple(spec.node_id for spec in specs if spec.node_id),
        accelerator_type=first.accelerator_type if first is not None else "",
        runtime_version=first.runtime_version if first is not None else "",
        spot=message.HasField("spot"),
        labels=dict(first.labels) if first is not None else {},
        created=_instant(message, "create_time"),
        error=None if error is None else str(error["message"]),
        failure=None if error is None else failure_of(error, f"queued resource {name!r}"),
        reserved=bool(message.reservation_name),
    )


def _status_of(status: Any) -> dict[str, Any]:
    """A google.rpc.Status with those of its details whose types are known here."""
    details = []
    for packed in status.details:
        kind = _DETAILS.get(packed.TypeName())
        if kind is not None and packed.Unpack(detail := kind()):
            details.append(json_format.MessageToDict(detail, preserving_proto_field_name=True))
    return {"code": status.code, "message": status.message, "details": details}


_DETAILS: dict[str, Any] = {
    kind.DESCRIPTOR.full_name: kind for kind in (error_details_pb2.QuotaFailure, error_details_pb2.ErrorInfo)
}


def node_of(message: Any) -> Node:
    """From a raw Node message."""
    return Node(
        node_id=last_segment(message.name),
        zone=zone_in(message.name),
        state=recognised(NodeState, message.state),
        health=recognised(NodeHealth, message.health) if message.health else None,
        health_description=message.health_description,
        queued_resource=QrName(last_segment(message.queued_resource)) if message.queued_resource else None,
        accelerator_type=message.accelerator_type,
        labels=dict(message.labels),
        # With several network configs each worker has as many entries in a row; the first is its own.
        addresses=tuple(end.ip_address for end in message.network_endpoints)[:: len(message.network_configs) or 1],
        created=_instant(message, "create_time"),
    )


def _instant(message: Any, field: str) -> Instant | None:
    return Instant(getattr(message, field).ToNanoseconds() / 1e9) if message.HasField(field) else None


def create_request(project: str, request: QrRequest, request_id: str) -> tpu_v2.CreateQueuedResourceRequest:
    """One slice. Tier: spot, a reservation, or neither, which means on-demand. External addresses are always said:
    unset means none."""
    parent = f"projects/{project}/locations/{request.zone}"
    node = tpu_v2.Node(
        accelerator_type=request.accelerator_type,
        runtime_version=request.runtime_version,
        network_config=tpu_v2.NetworkConfig(
            network=request.network, subnetwork=request.subnetwork, enable_external_ips=request.external_ips
        ),
        labels=dict(request.labels),
        metadata=dict(request.metadata),
        tags=list(request.tags),
        data_disks=[
            tpu_v2.AttachedDisk(
                source_disk=_disk(project, request.zone, name),
                mode=_DISK_MODES.READ_ONLY if is_read_only else _DISK_MODES.READ_WRITE,
            )
            for name, is_read_only in request.data_disks
        ],
        service_account=tpu_v2.ServiceAccount(email=request.service_account) if request.service_account else None,
    )
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=parent, node_id=request.name, node=node)
    queued = tpu_v2.QueuedResource(
        tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]),
        spot=tpu_v2.QueuedResource.Spot() if request.tier == "spot" else None,
        reservation_name=_reservation(parent, request.reservation) if request.tier == "reserved" else None,
        queueing_policy=_window(request),
    )
    return tpu_v2.CreateQueuedResourceRequest(
        parent=parent, queued_resource_id=request.name, queued_resource=queued, request_id=request_id
    )


_DISK_MODES = tpu_v2.AttachedDisk.DiskMode


def _disk(project: str, zone: Zone, name: str) -> str:
    return name if "/" in name else f"projects/{project}/zones/{zone}/disks/{name}"


def _reservation(parent: str, name: str) -> str:
    """`-` means any reservation of the project."""
    return name if "/" in name else f"{parent}/reservations/{name or '-'}"


def _window(request: QrRequest) -> tpu_v2.QueuedResource.QueueingPolicy | None:
    """The service takes one constraint: a start, an end, or an interval of both."""
    after = None if request.valid_after is None else _stamp(request.valid_after)
    until = None if request.valid_until is None else _stamp(request.valid_until)
    policy = tpu_v2.QueuedResource.QueueingPolicy
    if after is not None and until is not None:
        return policy(valid_interval=interval_pb2.Interval(start_time=after, end_time=until))
    if until is not None:
        return policy(valid_until_time=until)
    if after is not None:
        return policy(valid_after_time=after)
    return None


def _stamp(at: Instant) -> timestamp_pb2.Timestamp:
    return timestamp_pb2.Timestamp(seconds=int(at.unix_s), nanos=int(at.unix_s % 1 * 1e9))
