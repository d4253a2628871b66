"""Compute v1's REST face, as far as one VM with a data disk needs it."""

from __future__ import annotations

import re
from collections.abc import Callable

from tpuctl.base.units import Instant
from tpuctl.emulator.access import check_api, check_permission
from tpuctl.emulator.addresses import AddressesUsedUpError
from tpuctl.emulator.calls import Call
from tpuctl.emulator.compute_insert import check_name, read_disk, read_instance
from tpuctl.emulator.compute_life import ComputeLife, address_in_use, already_exists, in_use, invalid, not_found
from tpuctl.emulator.compute_reading import ComputeReading, Where, operation_answer
from tpuctl.emulator.compute_records import AddressRecord, DiskRecord, InstanceRecord, fingerprint
from tpuctl.emulator.events import GuestAttribute
from tpuctl.emulator.faults import planted_error
from tpuctl.emulator.timeline import Action
from tpuctl.emulator.wire import Answer, Json, ServiceError
from tpuctl.emulator.world import World

_PATH = re.compile(
    r"/compute/v1/projects/(?P<project>[^/]+)/(?:"
    r"(?P<scope>zones|regions)/(?P<place>[^/]+)/(?P<kind>\w+)(?:/(?P<name>[^/]+)(?:/(?P<verb>\w+))?)?"
    r"|aggregated/(?P<aggregated>\w+)|(?P<places>zones|regions)(?:/(?P<one_place>[^/]+))?)"
)
_ZONE = re.compile(r"[a-z]+-[a-z]+\d+-[a-z][a-z0-9]*")


class ComputeApi:
    def __init__(self, world: World) -> None:
        self.world = world
        self.life = ComputeLife(world)
        self.read = ComputeReading(world, self.life)

    def owns(self, path: str) -> bool:
        return path.startswith("/compute/v1/")

    def guest_attribute(self, report: GuestAttribute) -> None:
        """A running instance wrote one; others are passed over."""
        for instance in self.life.instances.values():
            if instance.vm == report.name:
                instance.guest[report.namespace, report.key] = report.value

    def handle(self, call: Call) -> Answer:
        """Raises ServiceError."""
        match = _PATH.fullmatch(call.request.path)
        if match is None:
            raise ServiceError("NOT_FOUND", f"The requested URL {call.request.path} was not found.", reason="notFound")
        part = {key: value or "" for key, value in match.groupdict().items()}
        check_api(self.world.settings, "compute", part["project"], reason="accessNotConfigured")
        action = {"GET": "get" if part["name"] else "list", "POST": "create", "DELETE": "delete"}[call.request.method]
        kind = part["kind"] or part["aggregated"]
        check_permission(self.world.settings, f"compute.{kind}.{action}", part["project"], reason="forbidden")
        if part["aggregated"]:
            return self.read.aggregated(call, part["project"], part["aggregated"])
        if part["places"]:
            return self.read.places(part["project"], part["one_place"])
        where = Where(part["project"], part["scope"], part["place"], part["kind"], part["name"], part["verb"])
        # A VM may live in zones without TPUs: what looks like a zone is one.
        if where.scope == "zones" and not _ZONE.fullmatch(where.place):
            raise not_found(f"projects/{where.project}/zones/{where.place}")
        return self._verb(call.request.method, where)(call, where)

    def _verb(self, method: str, where: Where) -> Callable[[Call, Where], Answer]:
        verbs: dict[tuple[str, str, bool, str], Callable[[Call, Where], Answer]] = {
            ("POST", "instances", False, ""): self._insert_instance,
            ("GET", "instances", False, ""): self.read.list,
            ("GET", "instances", True, ""): self.read.get,
            ("DELETE", "instances", True, ""): self._delete_instance,
            ("POST", "instances", True, "start"): self._start,
            ("POST", "instances", True, "stop"): self._stop,
            ("POST", "instances", True, "reset"): self._reset,
            ("POST", "instances", True, "setMetadata"): self._set_metadata,
            ("POST", "instances", True, "setLabels"): self._set_labels,
            ("GET", "instances", True, "getGuestAttributes"): self._guest_attributes,
            ("POST", "disks", False, ""): self._insert_disk,
            ("GET", "disks", False, ""): self.read.list,
            ("GET", "disks", True, ""): self.read.get,
            ("DELETE", "disks", True, ""): self._delete_disk,
            ("POST", "addresses", False, ""): self._insert_address,
            ("GET", "addresses", False, ""): self.read.list,
            ("GET", "addresses", True, ""): self.read.get,
            ("DELETE", "addresses", True, ""): self._delete_address,
            ("GET", "operations", True, ""): self.read.get_operation,
            ("POST", "operations", True, "wait"): self.read.wait_operation,
        }
        found = verbs.get((method, where.kind, bool(where.name), where.verb))
        if found is None:
            raise ServiceError(
                "UNIMPLEMENTED", f"{method} {where.kind} {where.verb}: not emulated.", reason="notImplemented"
            )
        return found

    # Instances

    def _insert_instance(self, call: Call, where: Where) -> Answer:
        body = call.request.document()
        target = f"{where.path}/{body.get('name', '')}"
        if (earlier := self.life.repeated(target, call.request_id)) is not None:
            return operation_answer(earlier)
        instance, fresh = read_instance(self.life, call.now, where.project, where.place, body)
        self.life.place(call.now, instance, fresh)
        failure = self._planned_failure(call)
        operation = self.life.begin(
            call.now,
            "insert",
            f"zones/{where.place}",
            target,
            seconds=self.world.drawn(self.world.settings.latencies.instance),
            then=lambda at: self.life.run(at, instance),
            request_id=call.request_id,
            error=failure,
            labels=instance.labels,
        )
        if failure is not None:
            self.world.timeline.at(operation.due, lambda at: self.life.unplace(at, instance))
        return operation_answer(operation, effect=True)

    def _planned_failure(self, call: Call) -> Json | None:
        if call.fault is None or call.fault.kind != "fail-later":
            return None
        if call.fault.error == "no-capacity":
            text = "The zone does not have enough resources available to fulfill the request. Try a different zone."
            return {"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": call.fault.message or text}
        error = planted_error(call.fault)
        code = "QUOTA_EXCEEDED" if call.fault.error.startswith("quota") else error.status
        return {"code": code, "message": error.message}

    def _delete_instance(self, call: Call, where: Where) -> Answer:
        if (earlier := self.life.repeated(where.path + "#delete", call.request_id)) is not None:
            return operation_answer(earlier)
        instance = self._instance(where)
        self.life.halt(call.now, instance, "STOPPING", "delete was called")
        return self._begin(call, where, "delete", instance, lambda at: self.life.delete(at, instance))

    def _start(self, call: Call, where: Where) -> Answer:
        instance = self._instance(where)
        if instance.status != "TERMINATED":
            return self._begin(call, where, "start", instance, _nothing)
        return self._begin(call, where, "start", instance, lambda at: self.life.run(at, instance))

    def _stop(self, call: Call, where: Where) -> Answer:
        instance = self._instance(where)
        self.life.halt(call.now, instance, "STOPPING", "stop was called")
        return self._begin(
            call, where, "stop", instance, lambda at: self.life.halt(at, instance, "TERMINATED", "stop was called")
        )

    def _reset(self, call: Call, where: Where) -> Answer:
        instance = self._instance(where)
        self.life.reset(instance)
        return self._begin(call, where, "reset", instance, _nothing)

    def _set_metadata(self, call: Call, where: Where) -> Answer:
        instance, body = self._instance(where), call.request.document()
        if body.get("fingerprint") != instance.document()["metadata"]["fingerprint"]:
            raise _stale()
        instance.metadata = {str(item["key"]): str(item.get("value", "")) for item in body.get("items") or []}
        return self._begin(call, where, "setMetadata", instance, _nothing)

    def _set_labels(self, call: Call, where: Where) -> Answer:
        instance, body = self._instance(where), call.request.document()
        if body.get("labelFingerprint") != fingerprint(instance.labels):
            raise _stale()
        instance.labels = dict(body.get("labels") or {})
        return self._begin(call, where, "setLabels", instance, _nothing)

    def _guest_attributes(self, call: Call, where: Where) -> Answer:
        instance = self._instance(where)
        namespace, _, wanted = call.request.query.get("queryPath", "").strip("/").partition("/")
        items = [
            {"namespace": ns, "key": key, "value": value}
            for (ns, key), value in sorted(instance.guest.items())
            if namespace in ("", ns) and wanted in ("", key)
        ]
        if not items:
            raise not_found(f"{instance.path}/guestAttributes/{namespace}")
        return Answer({"kind": "compute#guestAttributes", "queryValue": {"items": items}}, resource=instance.path)

    def _begin(self, call: Call, where: Where, kind: str, target: InstanceRecord | DiskRecord, then: Action) -> Answer:
        return operation_answer(
            self.life.begin(
                call.now,
                kind,
                f"zones/{where.place}",
                target.path,
                seconds=self.world.drawn(self.world.settings.latencies.instance_deleting),
                then=then,
                labels=target.labels,
            ),
            effect=True,
        )

    # Disks and addresses

    def _insert_disk(self, call: Call, where: Where) -> Answer:
        body = call.request.document()
        target = f"{where.path}/{body.get('name', '')}"
        if (earlier := self.life.repeated(target, call.request_id)) is not None:
            return operation_answer(earlier)
        disk = read_disk(self.life, call.now, where.project, where.place, body)
        self.life.disks[disk.project, disk.zone, disk.name] = disk
        self.world.note(call.now, disk.path, "READY", "created", disk.labels)
        operation = self.life.begin(
            call.now,
            "insert",
            f"zones/{where.place}",
            target,
            seconds=self.world.drawn(self.world.settings.latencies.instance),
            then=_nothing,
            request_id=call.request_id,
            labels=disk.labels,
        )
        return operation_answer(operation, effect=True)

    def _delete_disk(self, call: Call, where: Where) -> Answer:
        disk = self.life.disks.get(where.key)
        if disk is None:
            raise not_found(where.path)
        if disk.user or disk.nodes:
            raise in_use(disk)
        return self._begin(call, where, "delete", disk, lambda at: self.life.drop_disk(at, disk))

    def _insert_address(self, call: Call, where: Where) -> Answer:
        body = call.request.document()
        name = str(body.get("name", ""))
        check_name("resource.name", name)
        key = (where.project, where.place, name)
        if key in self.life.addresses:
            raise already_exists(f"{where.path}/{name}")
        address = self._reserved(str(body.get("address") or ""))
        self.life.addresses[key] = AddressRecord(
            name, where.project, where.place, self.world.number(), call.now, address, body
        )
        return self._region_operation(call, where, "insert", f"{where.path}/{name}")

    def _reserved(self, wanted: str) -> str:
        """The address that is asked for, or any. Raises ServiceError."""
        if wanted:
            try:
                free = self.world.addresses.take_this(wanted)
            except ValueError as error:
                raise invalid(f"Invalid value for field 'resource.address': '{wanted}'.") from error
            if not free:
                raise invalid(f"Invalid value for field 'resource.address': '{wanted}'. It is not free in the network.")
            return wanted
        try:
            return self.world.addresses.take()
        except AddressesUsedUpError as error:
            raise invalid("No address is left in the network.") from error

    def _delete_address(self, call: Call, where: Where) -> Answer:
        record = self.life.addresses.get(where.key)
        if record is None:
            raise not_found(where.path)
        if record.user:
            raise address_in_use(record)
        del self.life.addresses[where.key]
        self.world.addresses.give_back(record.address)
        return self._region_operation(call, where, "delete", where.path)

    def _region_operation(self, call: Call, where: Where, kind: str, target: str) -> Answer:
        scope = f"regions/{where.place}"
        operation = self.life.begin(call.now, kind, scope, target, seconds=0.0, then=_nothing)
        return operation_answer(operation, effect=True)

    def _instance(self, where: Where) -> InstanceRecord:
        instance = self.life.instances.get(where.key)
        if instance is None:
            raise not_found(where.path)
        return instance


def _nothing(at: Instant) -> None:  # noqa: ARG001 -- what an operation does that took effect when it was called
    return


def _stale() -> ServiceError:
    text = "Supplied fingerprint does not match current metadata fingerprint."
    return ServiceError("FAILED_PRECONDITION", text, reason="conditionNotMet", http=412)
