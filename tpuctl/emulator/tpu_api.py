"""Cloud TPU's REST face, v2 and v2alpha1: paths to verbs, verbs to the life of the records."""

# ruff: noqa: ARG002 (all verbs have one signature)
from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tpuctl.emulator.access import CreateRate, check_api, check_permission, check_zone
from tpuctl.emulator.calls import Call
from tpuctl.emulator.faults import planted_error
from tpuctl.emulator.operations import Operations
from tpuctl.emulator.tpu_catalogue import accelerator_documents, location_document, runtime_documents
from tpuctl.emulator.tpu_life import TpuLife
from tpuctl.emulator.tpu_records import Asked, NodeRecord, QrState, QueuedRecord
from tpuctl.emulator.tpu_spec import read_queued, wrong_state
from tpuctl.emulator.wire import Answer, Json, ServiceError
from tpuctl.emulator.world import World

_PATH = re.compile(
    r"/(?P<version>v2|v2alpha1)/projects/(?P<project>[^/:]+)/locations"
    r"(?:/(?P<zone>[^/:]+)(?:/(?P<kind>\w+)(?:/(?P<id>[^/:]+))?)?)?(?::(?P<verb>\w+))?"
)
_DELETABLE = (QrState.ACCEPTED, QrState.WAITING_FOR_RESOURCES, QrState.FAILED, QrState.SUSPENDED)
_PERMISSION_VERB = {"GET": "get", "POST": "create", "DELETE": "delete", "PATCH": "update"}


@dataclass(frozen=True, slots=True)
class Where:
    version: str
    project: str
    zone: str
    kind: str
    id: str
    verb: str

    @property
    def parent(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}"

    @property
    def name(self) -> str:
        return f"{self.parent}/{self.kind}/{self.id}"


class TpuApi:
    def __init__(self, world: World) -> None:
        self.world = world
        self.operations = Operations(world)
        self.life = TpuLife(world, self.operations)
        self._rate = CreateRate(world.settings)

    def owns(self, path: str) -> bool:
        return _PATH.fullmatch(path) is not None

    def handle(self, call: Call) -> Answer:
        """Raises ServiceError."""
        match = _PATH.fullmatch(call.request.path)
        if match is None:
            raise ServiceError("NOT_FOUND", f"The requested URL {call.request.path} was not found on this server.")
        where = Where(**{key: value or "" for key, value in match.groupdict().items()})
        settings = self.world.settings
        check_api(settings, "tpu", where.project)
        method = call.request.method
        action = "list" if method == "GET" and not where.id else _PERMISSION_VERB.get(method, method.lower())
        check_permission(settings, f"tpu.{(where.kind or 'locations').lower()}.{action}", where.name.rstrip("/"))
        if where.zone and where.zone != "-":
            check_zone(settings, where.zone, where.project, self.world.event_id())
        return self._verb(method, where)(call, where)

    def _verb(self, method: str, where: Where) -> Callable[[Call, Where], Answer]:
        one = "one" if where.id else "all"
        verbs: dict[tuple[str, str, str, str], Callable[[Call, Where], Answer]] = {
            ("GET", "queuedResources", "all", ""): self._list_queued,
            ("GET", "queuedResources", "one", ""): self._get_queued,
            ("POST", "queuedResources", "all", ""): self._create_queued,
            ("DELETE", "queuedResources", "one", ""): self._delete_queued,
            ("GET", "nodes", "all", ""): self._list_nodes,
            ("GET", "nodes", "one", ""): self._get_node,
            ("DELETE", "nodes", "one", ""): self._delete_node,
            ("POST", "nodes", "one", "getGuestAttributes"): self._guest_attributes,
            ("GET", "operations", "all", ""): self._list_operations,
            ("GET", "operations", "one", ""): self._get_operation,
            ("DELETE", "operations", "one", ""): self._drop_operation,
            ("POST", "operations", "one", "cancel"): self._cancel_operation,
            ("GET", "acceleratorTypes", "all", ""): self._list_catalogue,
            ("GET", "acceleratorTypes", "one", ""): self._get_catalogue,
            ("GET", "runtimeVersions", "all", ""): self._list_catalogue,
            ("GET", "runtimeVersions", "one", ""): self._get_catalogue,
            ("GET", "", "all", ""): self._locations,
        }
        found = verbs.get((method, where.kind, one, where.verb))
        return found or self._unimplemented

    def _unimplemented(self, call: Call, where: Where) -> Answer:
        what = f"{call.request.method} {where.kind}{':' + where.verb if where.verb else ''}"
        raise ServiceError("UNIMPLEMENTED", f"Operation is not implemented, or supported, or enabled. ({what})")

    # Queued resources

    def _create_queued(self, call: Call, where: Where) -> Answer:
        qr_id = call.request.query.get("queuedResourceId", "")
        name = f"{where.parent}/queuedResources/{qr_id}"
        earlier = self.operations.repeated("create", name, call.request_id)
        if earlier is not None:
            return Answer(earlier.document(where.version), resource=name, labels=self._labels(name))
        self._rate.check(call.now, where.project)
        asked = read_queued(self.world, where.parent, qr_id, call.request.document(), call.now)
        self._check_names(where, name, asked)
        self._check_quota(where, asked)
        operation = self.operations.begin(call.now, where.parent, name, "create", call.request_id)
        doom = self._doom(call)
        record = self.life.create(call.now, name, where.project, asked, operation, doom)
        return Answer(operation.document(where.version), effect=True, resource=name, labels=record.labels)

    def _doom(self, call: Call) -> Json | None:
        rule = call.fault
        return planted_error(rule).rpc() if rule is not None and rule.kind == "fail-later" else None

    def _check_names(self, where: Where, name: str, asked: Asked) -> None:
        if name in self.life.queued:
            raise ServiceError("ALREADY_EXISTS", f"Resource '{name}' already exists")
        taken = set(self.life.nodes) | {each for record in self.life.queued.values() for each in record.node_names}
        for node_id in asked.node_ids:
            if f"{where.parent}/nodes/{node_id}" in taken:
                raise ServiceError("ALREADY_EXISTS", f"Resource '{where.parent}/nodes/{node_id}' already exists")

    def _check_quota(self, where: Where, asked: Asked) -> None:
        settings, generation = self.world.settings, asked.accelerator.generation
        limit = settings.default_quota
        for rule in settings.quotas:
            if (rule.zone, rule.generation, rule.tier) == (where.zone, generation.key, asked.tier):
                limit = rule.chips
        if limit is None:
            return
        held = self.life.held_quota(where.project, where.zone, generation.key, asked.tier)
        if held + asked.accelerator.chips * len(asked.node_ids) > limit:
            tier = "Preemptible" if asked.tier == "spot" else ""
            metric = f"TPU{generation.metric}{tier}PerProjectPerZoneForTPUAPI"
            raise ServiceError(
                "RESOURCE_EXHAUSTED",
                f"Quota limit '{metric}' has been exceeded. Limit: {limit * generation.cores_per_chip} in zone "
                f"{where.zone}.",
            )

    def _get_queued(self, call: Call, where: Where) -> Answer:
        record = self._queued(where)
        return Answer(self._shown(call, record.name, record.document()), resource=record.name, labels=record.labels)

    def _list_queued(self, call: Call, where: Where) -> Answer:
        return self._list(call, where, "queuedResources", list(self.life.queued.values()))

    def _delete_queued(self, call: Call, where: Where) -> Answer:
        earlier = self.operations.repeated("delete", where.name, call.request_id)
        if earlier is not None:
            return Answer(earlier.document(where.version), resource=where.name, labels=self._labels(where.name))
        record = self._queued(where)
        if record.state is QrState.DELETING:
            running = self.operations.latest("delete", record.name)
            document = {} if running is None else running.document(where.version)
            return Answer(document, resource=record.name, labels=record.labels)
        if record.state not in _DELETABLE and not call.request.flag("force"):
            raise wrong_state(
                self.world,
                f"the queued resource is in state {record.state.value} and has nodes; delete them first or set force.",
            )
        operation = self.operations.begin(call.now, where.parent, record.name, "delete", call.request_id)
        labels = record.labels
        self.life.delete(call.now, record, operation, self._doom(call))
        return Answer(operation.document(where.version), effect=True, resource=record.name, labels=labels)

    # Nodes

    def _list_nodes(self, call: Call, where: Where) -> Answer:
        return self._list(call, where, "nodes", list(self.life.nodes.values()))

    def _get_node(self, call: Call, where: Where) -> Answer:
        node = self._node(where)
        return Answer(self._shown(call, node.name, node.document()), resource=node.name, labels=node.labels)

    def _delete_node(self, call: Call, where: Where) -> Answer:
        node = self._node(where)
        operation = self.operations.begin(call.now, where.parent, node.name, "delete")
        self.life.delete_node(call.now, node, operation)
        return Answer(operation.document(where.version), effect=True, resource=node.name, labels=node.labels)

    def _guest_attributes(self, call: Call, where: Where) -> Answer:
        node, body = self._node(where), call.request.document()
        namespace, _, key = str(body.get("queryPath", "")).strip("/").partition("/")
        workers = {int(worker) for worker in body.get("workerIds", [])} or set(range(node.accelerator.hosts))
        found = []
        for worker in sorted(workers):
            items = [
                {"namespace": ns, "key": k, "value": value}
                for (w, ns, k), value in sorted(node.guest.items())
                if w == worker and namespace in ("", ns) and key in ("", k)
            ]
            found.append({"queryPath": body.get("queryPath", ""), "queryValue": {"items": items}})
        return Answer({"guestAttributes": found}, resource=node.name, labels=node.labels)

    # Operations, locations, catalogues

    def _list_operations(self, call: Call, where: Where) -> Answer:
        operations = sorted(self.operations.below(where.parent), key=lambda o: o.name)
        documents = [operation.document(where.version) for operation in operations]
        page, token = call.page(documents, [o.name for o in operations], self.world.settings.page_size, "pageSize")
        return Answer({"operations": page, "nextPageToken": token})

    def _get_operation(self, call: Call, where: Where) -> Answer:
        operation = self.operations.get(where.name)
        labels = self._labels(operation.target)
        return Answer(operation.document(where.version), resource=operation.target, labels=labels)

    def _drop_operation(self, call: Call, where: Where) -> Answer:
        self.operations.drop(where.name)
        return Answer({})

    def _cancel_operation(self, call: Call, where: Where) -> Answer:
        self.operations.get(where.name)
        raise ServiceError("UNIMPLEMENTED", "Operation cancellation is not supported.")

    def _locations(self, call: Call, where: Where) -> Answer:
        if where.zone:
            return Answer(location_document(where.project, where.zone))
        zones = sorted(zone for zone in self.world.settings.zones if zone not in self.world.settings.denied_zones)
        documents = [location_document(where.project, zone) for zone in zones]
        page, token = call.page(documents, zones, self.world.settings.page_size, "pageSize")
        return Answer({"locations": page, "nextPageToken": token})

    def _catalogue(self, where: Where) -> list[Json]:
        make = accelerator_documents if where.kind == "acceleratorTypes" else runtime_documents
        return make(self.world.settings, where.parent, where.zone)

    def _list_catalogue(self, call: Call, where: Where) -> Answer:
        documents = sorted(self._catalogue(where), key=lambda document: str(document["name"]))
        names = [str(document["name"]) for document in documents]
        page, token = call.page(documents, names, self.world.settings.page_size, "pageSize")
        return Answer({where.kind: page, "nextPageToken": token})

    def _get_catalogue(self, call: Call, where: Where) -> Answer:
        for document in self._catalogue(where):
            if document["name"] == where.name:
                return Answer(document)
        raise ServiceError("NOT_FOUND", f"Resource '{where.name}' was not found")

    # Common to both kinds of resource

    def _queued(self, where: Where) -> QueuedRecord:
        record = self.life.queued.get(where.name)
        if record is None:
            raise ServiceError("NOT_FOUND", f"Resource '{where.name}' was not found")
        return record

    def _node(self, where: Where) -> NodeRecord:
        node = self.life.nodes.get(where.name)
        if node is None:
            raise ServiceError("NOT_FOUND", f"Resource '{where.name}' was not found")
        return node

    def _shown(self, call: Call, name: str, document: Json) -> Json:
        shown = self.world.shown(call.now, name, document)
        if shown is None:
            raise ServiceError("NOT_FOUND", f"Resource '{name}' was not found")
        return shown

    def _labels(self, name: str) -> dict[str, str]:
        record = self.life.queued.get(name) or self.life.nodes.get(name)
        return dict(record.labels) if record is not None else {}

    def _list(self, call: Call, where: Where, key: str, records: Sequence[QueuedRecord | NodeRecord]) -> Answer:
        unreachable = self._unreachable(call, where)
        shown: dict[str, Json] = {}
        for record in sorted(records, key=lambda each: each.name):
            if record.project != where.project or where.zone not in ("-", record.zone) or record.zone in unreachable:
                continue
            document = self.world.shown(call.now, record.name, record.document())
            if document is not None:
                shown[record.name] = document
        page, token = call.page(list(shown.values()), list(shown), self.world.settings.page_size, "pageSize")
        listing: Json = {key: page, "nextPageToken": token}
        if unreachable:
            listing["unreachable"] = [f"projects/{where.project}/locations/{zone}" for zone in unreachable]
        return Answer(listing)

    def _unreachable(self, call: Call, where: Where) -> tuple[str, ...]:
        """Zones of this list that cannot be read now, or that a planted `partial` fault hides (by default: all)."""
        hidden = self.world.out_of_sight(call.now)
        found = tuple(zone for zone in hidden if where.zone in ("-", zone))
        if call.fault is not None and call.fault.kind == "partial":
            found += call.fault.unreachable or (where.zone,)
        return tuple(dict.fromkeys(found))
