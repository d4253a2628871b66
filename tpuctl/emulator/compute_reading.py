"""Compute's reads: lists, single resources, operations. None of them changes anything."""

# ruff: noqa: ARG002 (all verbs have one signature)
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tpuctl.emulator.calls import Call
from tpuctl.emulator.compute_life import ComputeLife, Key, not_found
from tpuctl.emulator.compute_records import AddressRecord, ComputeOperation, DiskRecord, InstanceRecord
from tpuctl.emulator.filters import matches
from tpuctl.emulator.wire import Answer, Json, ServiceError
from tpuctl.emulator.world import World

_MAX_WAIT_S = 110.0


@dataclass(frozen=True, slots=True)
class Where:
    project: str
    scope: str
    place: str
    kind: str
    name: str
    verb: str

    @property
    def path(self) -> str:
        return f"projects/{self.project}/{self.scope}/{self.place}/{self.kind}/{self.name}".rstrip("/")

    @property
    def key(self) -> tuple[str, str, str]:
        return self.project, self.place, self.name


class ComputeReading:
    def __init__(self, world: World, life: ComputeLife) -> None:
        self.world = world
        self.life = life

    def _records(self, kind: str) -> Mapping[Key, InstanceRecord | DiskRecord | AddressRecord]:
        if kind == "instances":
            return self.life.instances
        if kind == "disks":
            return self.life.disks
        if kind == "addresses":
            return self.life.addresses
        raise ServiceError("UNIMPLEMENTED", f"{kind}: not emulated.", reason="notImplemented")

    def get(self, call: Call, where: Where) -> Answer:
        record = self._records(where.kind).get(where.key)
        if record is None:
            raise not_found(where.path)
        labels = {} if isinstance(record, AddressRecord) else record.labels
        return Answer(record.document(), resource=where.path, labels=labels)

    def _found(self, call: Call, project: str, kind: str) -> list[tuple[str, str, Json]]:
        text = call.request.query.get("filter", "")
        return [
            (place, name, document)
            for (owner, place, name), record in sorted(self._records(kind).items())
            if owner == project and matches(text, document := record.document())
        ]

    def list(self, call: Call, where: Where) -> Answer:
        found = [
            (name, item) for place, name, item in self._found(call, where.project, where.kind) if place == where.place
        ]
        page, token = _page(call, found)
        document: Json = {"kind": f"compute#{where.kind}List", "items": page}
        return Answer(document | ({"nextPageToken": token} if token else {}))

    def aggregated(self, call: Call, project: str, kind: str) -> Answer:
        hidden = call.fault.unreachable if call.fault is not None and call.fault.kind == "partial" else ()
        found = [
            (f"{place}/{name}", item) for place, name, item in self._found(call, project, kind) if place not in hidden
        ]
        page, token = _page(call, found)
        items: dict[str, Json] = {}
        for item in page:
            items.setdefault("zones/" + str(item["zone"]).rsplit("/", 1)[-1], {}).setdefault(kind, []).append(item)
        for zone in self.world.settings.zones:
            if f"zones/{zone}" not in items and zone not in hidden:
                text = f"There are no results for scope 'zones/{zone}' on this page."
                items[f"zones/{zone}"] = {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": text}}
        document: Json = {"kind": f"compute#{kind[:-1]}AggregatedList", "items": items}
        if hidden:
            document["unreachables"] = [f"zones/{zone}" for zone in hidden]
            document["warning"] = {"code": "UNREACHABLE", "message": "Some zones could not be read."}
        return Answer(document | ({"nextPageToken": token} if token else {}))

    def places(self, project: str, one: str) -> Answer:
        zones = [{"kind": "compute#zone", "name": zone, "status": "UP"} for zone in sorted(self.world.settings.zones)]
        if not one:
            return Answer({"kind": "compute#zoneList", "items": zones})
        for zone in zones:
            if zone["name"] == one:
                return Answer(dict(zone))
        raise not_found(f"projects/{project}/zones/{one}")

    def get_operation(self, call: Call, where: Where) -> Answer:
        return operation_answer(self._operation(where))

    def wait_operation(self, call: Call, where: Where) -> Answer:
        operation = self._operation(where)
        if operation.ended is None and operation.due.since(call.now) < _MAX_WAIT_S:
            return Answer({}, again_at=operation.due)
        return operation_answer(operation)

    def _operation(self, where: Where) -> ComputeOperation:
        operation = self.life.operations.get(where.name)
        if operation is None or operation.project != where.project or operation.lost:
            raise not_found(where.path)
        now, ended = self.life.world.timeline.now, operation.ended
        if ended is None or now is None or now.since(ended) >= operation.shown_after_s:
            return operation
        return replace(operation, ended=None, due=ended.plus(operation.shown_after_s))


def _page(call: Call, found: Sequence[tuple[str, Json]]) -> tuple[list[Json], str]:
    return call.page([item for _, item in found], [name for name, _ in found], 500, "maxResults")


def operation_answer(operation: ComputeOperation, *, effect: bool = False) -> Answer:
    return Answer(operation.document(), effect=effect, resource=operation.target, labels=operation.labels)
