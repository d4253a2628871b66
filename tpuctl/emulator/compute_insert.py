"""What instances.insert and disks.insert ask for: read, checked, turned into records."""

from __future__ import annotations

import re

from tpuctl.base.units import Instant
from tpuctl.emulator.addresses import AddressesUsedUpError
from tpuctl.emulator.compute_life import ComputeLife, already_exists, in_use, invalid, not_found
from tpuctl.emulator.compute_records import Attached, DiskRecord, InstanceRecord
from tpuctl.emulator.wire import Json, ServiceError

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def check_name(field: str, name: str) -> None:
    """Raises ServiceError."""
    if not _NAME.fullmatch(name):
        pattern = "(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)"
        raise invalid(f"Invalid value for field '{field}': '{name}'. Must be a match of regex '{pattern}'")


def read_disk(life: ComputeLife, now: Instant, project: str, zone: str, body: Json) -> DiskRecord:
    """Raises ServiceError when the name is bad or taken."""
    name = str(body.get("name", ""))
    check_name("resource.name", name)
    if (project, zone, name) in life.disks:
        raise already_exists(f"projects/{project}/zones/{zone}/disks/{name}")
    kind = str(body.get("type") or "pd-balanced").rsplit("/", 1)[-1]
    labels = dict(body.get("labels") or {})
    return DiskRecord(name, project, zone, life.world.number(), now, str(body.get("sizeGb") or 10), kind, labels)


def read_instance(
    life: ComputeLife, now: Instant, project: str, zone: str, body: Json
) -> tuple[InstanceRecord, list[DiskRecord]]:
    """The instance and the disks that are made with it. Raises ServiceError."""
    name = str(body.get("name", ""))
    check_name("resource.name", name)
    if (project, zone, name) in life.instances:
        raise already_exists(f"projects/{project}/zones/{zone}/instances/{name}")
    if not body.get("machineType"):
        raise ServiceError("INVALID_ARGUMENT", "Required field 'resource.machineType' not specified", reason="required")
    attached: list[Attached] = []
    fresh: list[DiskRecord] = []
    for index, disk in enumerate(body.get("disks") or []):
        record = _disk(life, now, project, zone, name, index, disk)
        if disk.get("initializeParams") is not None:
            fresh.append(record)
        device = disk.get("deviceName") or (record.name if index else "persistent-disk-0")
        attached.append(Attached(record.name, device, bool(disk.get("boot")), bool(disk.get("autoDelete"))))
    if not any(disk.boot for disk in attached):
        raise invalid("Invalid value for field 'resource.disks': ''. No boot disk specified.")
    items = (body.get("metadata") or {}).get("items") or []
    instance = InstanceRecord(
        name=name,
        project=project,
        zone=zone,
        number=life.world.number(),
        created=now,
        body=body,
        address=_address(life, body),
        disks=tuple(attached),
        labels=dict(body.get("labels") or {}),
        metadata={str(item["key"]): str(item.get("value", "")) for item in items},
    )
    return instance, fresh


def _disk(
    life: ComputeLife, now: Instant, project: str, zone: str, instance: str, index: int, body: Json
) -> DiskRecord:
    if body.get("initializeParams") is not None:
        params = body["initializeParams"]
        name = params.get("diskName") or (instance if index == 0 else f"{instance}-{index}")
        wanted = {"name": name, "sizeGb": params.get("diskSizeGb"), "type": params.get("diskType")}
        return read_disk(life, now, project, zone, wanted | {"labels": params.get("labels")})
    source = str(body.get("source", ""))
    name = source.rsplit("/", 1)[-1]
    disk = life.disks.get((project, zone, name))
    if disk is None:
        raise not_found(f"projects/{project}/zones/{zone}/disks/{name}")
    if disk.user or disk.nodes:
        raise in_use(disk)
    return disk


def _address(life: ComputeLife, body: Json) -> str:
    """A reserved address when the body names one of ours, else a new one."""
    wanted = (body.get("networkInterfaces") or [{}])[0].get("networkIP")
    if wanted:
        if wanted not in {record.address for record in life.addresses.values()}:
            raise invalid(
                f"Invalid value for field 'resource.networkInterfaces[0].networkIP': '{wanted}'. Not reserved."
            )
        if wanted in {instance.address for instance in life.instances.values()}:
            raise ServiceError(
                "INVALID_ARGUMENT",
                f"IP '{wanted}' is already being used by another resource.",
                reason="resourceInUseByAnotherResource",
            )
        return str(wanted)
    try:
        return life.world.addresses.take()
    except AddressesUsedUpError as error:
        raise ServiceError(
            "PERMISSION_DENIED", "Quota 'IN_USE_ADDRESSES' exceeded. Limit: 253.0 globally.", reason="quotaExceeded"
        ) from error
