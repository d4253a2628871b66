"""The verbs of nodes."""

from __future__ import annotations

from tpuctl.emulator.access import CreateRate
from tpuctl.emulator.calls import Call
from tpuctl.emulator.operations import Operations, finish
from tpuctl.emulator.quota import Quotas
from tpuctl.emulator.tpu_disks import attach, detach_all, read_disks
from tpuctl.emulator.tpu_nodes import NodeLife
from tpuctl.emulator.tpu_paths import Finder, Verbs, Where
from tpuctl.emulator.tpu_queued_api import check_node_names, check_quota, doom_of
from tpuctl.emulator.tpu_records import NodeRecord
from tpuctl.emulator.tpu_spec import bad_request, check_changeable, read_node
from tpuctl.emulator.wire import Answer

_MASKS = {
    "description": "description", "tags": "tags", "labels": "labels", "metadata": "metadata",
    "network_config.enable_external_ips": "networkConfig", "networkConfig.enableExternalIps": "networkConfig",
    "data_disks": "dataDisks", "dataDisks": "dataDisks",
}  # fmt: skip


class NodeApi:
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
            ("GET", "nodes", False, ""): self._list,
            ("GET", "nodes", True, ""): self._get,
            ("POST", "nodes", False, ""): self._create,
            ("DELETE", "nodes", True, ""): self._delete,
            ("PATCH", "nodes", True, ""): self._update,
            ("POST", "nodes", True, "stop"): self._stop,
            ("POST", "nodes", True, "start"): self._start,
            ("POST", "nodes", True, "getGuestAttributes"): self._guest_attributes,
        }

    def _list(self, call: Call, where: Where) -> Answer:
        return self._find.list(call, where, list(self._life.nodes.values()))

    def _get(self, call: Call, where: Where) -> Answer:
        return self._find.answer(call, where, self._find.node(where))

    def _create(self, call: Call, where: Where) -> Answer:
        node_id = call.request.query.get("nodeId", "")
        name = f"{where.parent}/nodes/{node_id}"
        earlier = self._operations.repeated("create", name, call.request_id)
        if earlier is not None:
            return Answer(earlier.document(where.version), resource=name, labels=self._find.labels(name))
        self._rate.check(call.now, where.project)
        asked = read_node(self._find.world, where.version, where.parent, node_id, call.request.document())
        check_node_names(self._find, where, asked)
        doom = doom_of(call) or check_quota(self._find, self._quotas, where, asked)
        operation = self._operations.begin(call.now, where.parent, name, "create", call.request_id)
        node = self._nodes.create(call.now, name, where.project, asked, operation, doom)
        return Answer(operation.document(where.version), effect=True, resource=name, labels=node.labels)

    def _delete(self, call: Call, where: Where) -> Answer:
        node = self._find.node(where)
        if node.state == "DELETING" and (running := self._operations.latest("delete", node.name)) is not None:
            return Answer(running.document(where.version), resource=node.name, labels=node.labels)
        operation = self._operations.begin(call.now, where.parent, node.name, "delete", call.request_id)
        self._life.delete_node(call.now, node, operation)
        return Answer(operation.document(where.version), effect=True, resource=node.name, labels=node.labels)

    def _update(self, call: Call, where: Where) -> Answer:
        node, body = self._find.node(where), call.request.document()
        self._check_state(node, "update", ("READY", "STOPPED"))
        masks = [mask.strip() for mask in call.request.query.get("updateMask", "").split(",") if mask.strip()]
        unknown = [mask for mask in masks if mask not in _MASKS]
        if unknown or not masks:
            wrong = f'"{unknown[0]}" cannot be updated' if unknown else "it names no field"
            raise bad_request(self._find.world, f"the update mask is invalid: {wrong}.")
        change = {_MASKS[mask]: body.get(_MASKS[mask]) for mask in masks}
        check_changeable(self._find.world, change)
        if "dataDisks" in change:
            disks = read_disks(
                self._find.world, node.zone, change["dataDisks"] or [], node.accelerator.hosts, node.name
            )
            detach_all(self._find.world, node.name)
            node.disks = disks
            attach(self._find.world, node.name, disks)
        kept = {key: value for key, value in node.template.items() if key not in change}
        node.template = kept | {key: value for key, value in change.items() if value}
        operation = self._operations.begin(call.now, where.parent, node.name, "update")
        finish(operation, call.now, "Node", node.document())
        return Answer(operation.document(where.version), effect=True, resource=node.name, labels=node.labels)

    def _stop(self, call: Call, where: Where) -> Answer:
        node = self._find.node(where)
        self._check_kind(node, "stop")
        self._check_state(node, "stop", ("READY",))
        operation = self._operations.begin(call.now, where.parent, node.name, "stop")
        self._nodes.stop(call.now, node, operation)
        return Answer(operation.document(where.version), effect=True, resource=node.name, labels=node.labels)

    def _start(self, call: Call, where: Where) -> Answer:
        node = self._find.node(where)
        self._check_kind(node, "start")
        self._check_state(node, "start", ("STOPPED",))
        operation = self._operations.begin(call.now, where.parent, node.name, "start")
        self._nodes.start(call.now, node, operation)
        return Answer(operation.document(where.version), effect=True, resource=node.name, labels=node.labels)

    def _check_kind(self, node: NodeRecord, verb: str) -> None:
        """Only a single-host node that is neither spot nor of a queued resource. Raises ServiceError."""
        if node.state in ("PREEMPTED", "TERMINATED"):
            self._check_state(node, verb, ())
        for is_so, kind in (
            (node.accelerator.hosts > 1, "nodes with several workers"),
            (node.spot, "preemptible nodes"),
            (bool(node.queued), "nodes of a queued resource"),
        ):
            if is_so:
                raise bad_request(self._find.world, f"{verb} is not supported for {kind}")

    def _check_state(self, node: NodeRecord, verb: str, good: tuple[str, ...]) -> None:
        if node.state not in good:
            raise bad_request(self._find.world, f"{verb} is not supported while in state {node.state}")

    def _guest_attributes(self, call: Call, where: Where) -> Answer:
        node, body = self._find.node(where), call.request.document()
        namespace, _, key = str(body.get("queryPath", "")).strip("/").partition("/")
        asked = [str(worker) for worker in body.get("workerIds") or [] if str(worker)]
        if any(not worker.isdigit() or int(worker) >= node.accelerator.hosts for worker in asked):
            raise bad_request(self._find.world, f"the node has {node.accelerator.hosts} workers; got {asked}.")
        found = []
        for worker in sorted({int(worker) for worker in asked} or set(range(node.accelerator.hosts))):
            items = [
                {"namespace": ns, "key": k, "value": value}
                for (w, ns, k), value in sorted(node.guest.items())
                if w == worker and namespace in ("", ns) and key in ("", k)
            ]
            found.append({"queryPath": body.get("queryPath", ""), "queryValue": {"items": items}})
        return Answer({"guestAttributes": found}, resource=node.name, labels=node.labels)
