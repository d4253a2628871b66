"""The verbs of queued resources."""

from __future__ import annotations

from tpuctl.emulator.access import CreateRate
from tpuctl.emulator.calls import Call
from tpuctl.emulator.faults import planted_error
from tpuctl.emulator.operations import Operations
from tpuctl.emulator.quota import Quotas, Use, late_refusal, refusal
from tpuctl.emulator.tpu_nodes import NodeLife
from tpuctl.emulator.tpu_paths import Finder, Verbs, Where
from tpuctl.emulator.tpu_records import Asked, QrState
from tpuctl.emulator.tpu_spec import read_queued, wrong_state
from tpuctl.emulator.wire import Answer, Json, ServiceError

_DELETABLE = (QrState.ACCEPTED, QrState.WAITING_FOR_RESOURCES, QrState.FAILED, QrState.SUSPENDED)


class QueuedApi:
    def __init__(
        self, finder: Finder, operations: Operations, nodes: NodeLife, quotas: Quotas, rate: CreateRate
    ) -> None:
        self._find = finder
        self._operations = operations
        self._life = finder.life
        self._nodes = nodes
        self._quotas = quotas
        self._rate = rate

    def verbs(self) -> Verbs:
        return {
            ("GET", "queuedResources", False, ""): self._list,
            ("GET", "queuedResources", True, ""): self._get,
            ("POST", "queuedResources", False, ""): self._create,
            ("DELETE", "queuedResources", True, ""): self._delete,
            ("POST", "queuedResources", True, "reset"): self._reset,
        }

    def _list(self, call: Call, where: Where) -> Answer:
        return self._find.list(call, where, list(self._life.queued.values()))

    def _get(self, call: Call, where: Where) -> Answer:
        return self._find.answer(call, where, self._find.queued(where))

    def _create(self, call: Call, where: Where) -> Answer:
        qr_id = call.request.query.get("queuedResourceId", "")
        name = f"{where.parent}/queuedResources/{qr_id}"
        earlier = self._operations.repeated("create", name, call.request_id)
        if earlier is not None:
            return Answer(earlier.document(where.version), resource=name, labels=self._find.labels(name))
        self._rate.check(call.now, where.project)
        asked = read_queued(self._find.world, where.version, where.parent, qr_id, call.request.document(), call.now)
        if name in self._life.queued:
            raise ServiceError("ALREADY_EXISTS", f"Resource '{name}' already exists")
        check_node_names(self._find, where, asked)
        doom = doom_of(call) or asked.tier.too_late or check_quota(self._find, self._quotas, where, asked)
        operation = self._operations.begin(call.now, where.parent, name, "create", call.request_id)
        record = self._life.create(call.now, name, where.project, asked, operation, doom)
        return Answer(operation.document(where.version), effect=True, resource=name, labels=record.labels)

    def _delete(self, call: Call, where: Where) -> Answer:
        earlier = self._operations.repeated("delete", where.name, call.request_id)
        if earlier is not None:
            return Answer(earlier.document(where.version), resource=where.name, labels=self._find.labels(where.name))
        record = self._find.queued(where)
        if record.state is QrState.DELETING:
            running = self._operations.latest("delete", record.name)
            document = {} if running is None else running.document(where.version)
            return Answer(document, resource=record.name, labels=record.labels)
        if record.state not in _DELETABLE and not call.request.flag("force"):
            raise wrong_state(
                self._find.world,
                f"the queued resource is in state {record.state.value} and has nodes; delete them first or set force.",
            )
        operation = self._operations.begin(call.now, where.parent, record.name, "delete", call.request_id)
        labels = record.labels
        self._life.delete(call.now, record, operation, doom_of(call))
        return Answer(operation.document(where.version), effect=True, resource=record.name, labels=labels)

    def _reset(self, call: Call, where: Where) -> Answer:
        record = self._find.queued(where)
        if record.state is not QrState.ACTIVE:
            raise wrong_state(self._find.world, f"reset is not supported while in state {record.state.value}")
        operation = self._operations.begin(call.now, where.parent, record.name, "reset")
        self._nodes.reset(call.now, record, operation)
        return Answer(operation.document(where.version), effect=True, resource=record.name, labels=record.labels)


def doom_of(call: Call) -> Json | None:
    """The google.rpc.Status with which a planted fault lets the work end."""
    rule = call.fault
    return planted_error(rule).rpc() if rule is not None and rule.kind == "fail-later" else None


def check_node_names(finder: Finder, where: Where, asked: Asked) -> None:
    """A node's name must be free in the zone, also of requests whose nodes are not made yet. Raises ServiceError."""
    life = finder.life
    taken = set(life.nodes) | {each for record in life.queued.values() for each in record.node_names}
    for node_id in asked.node_ids:
        if f"{where.parent}/nodes/{node_id}" in taken:
            raise ServiceError("ALREADY_EXISTS", f"Resource '{where.parent}/nodes/{node_id}' already exists")


def check_quota(finder: Finder, quotas: Quotas, where: Where, asked: Asked) -> Json | None:
    """Raises ServiceError, or returns the google.rpc.Status of a refusal that comes later, as the scenario says."""
    wanted = Use(where.project, where.zone, asked.accelerator, asked.chips, asked.tier.name)
    exceeded = quotas.exceeded(finder.life.uses(), wanted)
    if not exceeded:
        return None
    if finder.world.settings.quota_refusal == "later":
        return late_refusal(exceeded).rpc()
    raise refusal(exceeded)
