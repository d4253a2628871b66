"""The life of Compute instances and their disks: what is made, stopped, started, reset and deleted, and when."""

from __future__ import annotations

import math
from collections.abc import Callable

from tpuctl.base.units import Instant
from tpuctl.emulator.compute_records import AddressRecord, Attached, ComputeOperation, DiskRecord, InstanceRecord
from tpuctl.emulator.events import VmDescription, VmReset, VmStart, VmStop
from tpuctl.emulator.wire import Json, ServiceError
from tpuctl.emulator.world import World

Key = tuple[str, str, str]  # project, zone (or region), name


class ComputeLife:
    def __init__(self, world: World) -> None:
        self.world = world
        self.instances: dict[Key, InstanceRecord] = {}
        self.disks = world.disks  # TPU nodes have data disks too
        self.addresses: dict[Key, AddressRecord] = {}
        self.operations: dict[str, ComputeOperation] = {}
        self._by_request: dict[tuple[str, str], str] = {}

    # Operations

    def repeated(self, target: str, request_id: str) -> ComputeOperation | None:
        """The operation of the same call under the same request id."""
        name = self._by_request.get((target, request_id)) if request_id else None
        return self.operations.get(name) if name else None

    def begin(
        self,
        now: Instant,
        kind: str,
        scope: str,
        target: str,
        *,
        seconds: float,
        then: Callable[[Instant], None],
        request_id: str = "",
        error: Json | None = None,
        labels: dict[str, str] | None = None,
    ) -> ComputeOperation:
        """An operation that ends after `seconds` and then does `then`, or ends with `error` and does nothing."""
        number = self.world.number()
        operation = ComputeOperation(
            name=f"operation-{int(now.unix_s * 1000)}-{self.world.chance.getrandbits(48):012x}",
            project=target.split("/")[1],
            scope=scope,
            kind=kind,
            target=target,
            number=number,
            created=now,
            due=now.plus(seconds),
            labels=labels or {},
        )
        self.operations[operation.name] = operation
        if request_id:
            self._by_request[target, request_id] = operation.name

        def end(at: Instant) -> None:
            operation.ended, operation.error = at, error
            if error is None:
                then(at)

        self.world.timeline.at(operation.due, end)
        return operation

    def disturb(self, name: str, kind: str, seconds: float) -> None:
        """The operation that a call answered with goes wrong; the work that it stands for goes on."""
        operation = self.operations.get(name)
        if operation is not None:
            operation.lost = kind == "operation-lost"
            operation.shown_after_s = {"operation-slow": seconds, "operation-never": math.inf}.get(kind, 0.0)

    # Instances

    def place(self, now: Instant, instance: InstanceRecord, fresh: list[DiskRecord]) -> None:
        """The instance and its new disks exist from now on; it does not run yet."""
        self.instances[instance.project, instance.zone, instance.name] = instance
        for disk in fresh:
            self.disks[disk.project, disk.zone, disk.name] = disk
        for attached in instance.disks:
            self.disks[instance.project, instance.zone, attached.disk].user = instance.name
        for record in self.addresses.values():
            if record.address == instance.address:
                record.user = instance.path
        self._note(now, instance, "PROVISIONING", "created")

    def unplace(self, now: Instant, instance: InstanceRecord) -> None:
        """An insert that failed leaves nothing behind."""
        self._forget(now, instance, "insert failed")

    def run(self, now: Instant, instance: InstanceRecord) -> None:
        if instance.status not in ("PROVISIONING", "TERMINATED"):
            return
        instance.vm = self.world.vm_name(instance.name, instance.zone)
        data = [attached for attached in instance.disks if not attached.boot]
        vm = VmDescription(
            name=instance.vm,
            address=instance.address,
            project=instance.project,
            zone=instance.zone,
            numeric_id=instance.number,
            attributes=dict(instance.metadata),
            disks=tuple(attached.device for attached in data),
            disk_of_device={attached.device: self._identity(instance, attached) for attached in data},
        )
        self.world.events.append(VmStart(vm))
        self._note(now, instance, "RUNNING", "started")

    def halt(self, now: Instant, instance: InstanceRecord, status: str, why: str) -> None:
        if instance.vm:
            self.world.events.append(VmStop(instance.vm))
            self.world.vm_names.discard(instance.vm)
            instance.vm = ""
        self._note(now, instance, status, why)

    def reset(self, instance: InstanceRecord) -> None:
        if instance.vm:
            self.world.events.append(VmReset(instance.vm))

    def delete(self, now: Instant, instance: InstanceRecord) -> None:
        """The end of a deletion: the instance, its address and its auto-delete disks are gone, the others are free."""
        self._forget(now, instance, "deleted")

    def _forget(self, now: Instant, instance: InstanceRecord, why: str) -> None:
        key = (instance.project, instance.zone, instance.name)
        if self.instances.get(key) is not instance:
            return
        del self.instances[key]
        reserved = [record for record in self.addresses.values() if record.address == instance.address]
        for record in reserved:
            record.user = ""
        if not reserved:
            self.world.addresses.give_back(instance.address)
        for attached in instance.disks:
            disk = self.disks.get((instance.project, instance.zone, attached.disk))
            if disk is not None and attached.auto_delete:
                self.drop_disk(now, disk)
            elif disk is not None:
                disk.user = ""
        self.world.note(now, instance.path, "GONE", why, instance.labels)

    def drop_disk(self, now: Instant, disk: DiskRecord) -> None:
        if self.disks.pop((disk.project, disk.zone, disk.name), None) is not None:
            self.world.note(now, disk.path, "GONE", "deleted", disk.labels)

    def _identity(self, instance: InstanceRecord, attached: Attached) -> str:
        return self.disks[instance.project, instance.zone, attached.disk].bytes_name

    def _note(self, now: Instant, instance: InstanceRecord, status: str, why: str) -> None:
        instance.status = status
        self.world.note(now, instance.path, status, why, instance.labels)


def not_found(path: str) -> ServiceError:
    return ServiceError("NOT_FOUND", f"The resource '{path}' was not found", reason="notFound")


def already_exists(path: str) -> ServiceError:
    return ServiceError("ALREADY_EXISTS", f"The resource '{path}' already exists", reason="alreadyExists")


def invalid(text: str) -> ServiceError:
    return ServiceError("INVALID_ARGUMENT", text, reason="invalid")


def address_in_use(record: AddressRecord) -> ServiceError:
    text = f"The address resource '{record.path}' is already being used by '{record.user}'"
    return ServiceError("INVALID_ARGUMENT", text, reason="resourceInUseByAnotherResource")


def in_use(disk: DiskRecord) -> ServiceError:
    user = f"projects/{disk.project}/zones/{disk.zone}/instances/{disk.user}" if disk.user else next(iter(disk.nodes))
    text = f"The disk resource '{disk.path}' is already being used by '{user}'"
    return ServiceError("INVALID_ARGUMENT", text, reason="resourceInUseByAnotherResource")
