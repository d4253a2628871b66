"""The verbs about maintenance, which v2alpha1 has: to have it now, to try it out, to read what is announced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tpuctl.emulator.calls import Call
from tpuctl.emulator.maintenance import Maintenances
from tpuctl.emulator.operations import Operations, finish
from tpuctl.emulator.scenario import MaintenancePlan
from tpuctl.emulator.tpu_paths import Finder, Verbs, Where
from tpuctl.emulator.tpu_records import NodeRecord
from tpuctl.emulator.tpu_spec import bad_request, wrong_state
from tpuctl.emulator.wire import Answer, Json


class MaintenanceApi:
    def __init__(self, finder: Finder, operations: Operations, maintenances: Maintenances) -> None:
        self._find = finder
        self._operations = operations
        self._maintenances = maintenances

    def verbs(self) -> Verbs:
        return {
            ("POST", "nodes", True, "performMaintenance"): self._perform,
            ("POST", "nodes", True, "simulateMaintenanceEvent"): self._simulate,
            ("POST", "queuedResources", True, "performMaintenanceQueuedResource"): self._perform_queued,
            ("GET", "queuedResources", True, "getMaintenanceInfo"): self._info,
        }

    def _perform(self, call: Call, where: Where) -> Answer:
        node = self._find.node(where)
        self._begin_now(call, (node,))
        return self._answer(call, where, "performMaintenance", node.name, node.labels, "Node", node.document())

    def _perform_queued(self, call: Call, where: Where) -> Answer:
        record = self._find.queued(where)
        nodes = {node.node_id: node for node in self._find.life.nodes_of(record)}
        named = [str(name).rsplit("/", 1)[-1] for name in call.request.document().get("nodeNames") or nodes]
        strange = [name for name in named if name not in nodes]
        if strange:
            raise bad_request(self._find.world, f'the node "{strange[0]}" is not part of the queued resource.')
        self._begin_now(call, tuple(nodes[name] for name in named))
        verb, document = "performMaintenanceQueuedResource", record.document()
        return self._answer(call, where, verb, record.name, record.labels, "QueuedResource", document)

    def _begin_now(self, call: Call, nodes: Sequence[NodeRecord]) -> None:
        """Raises ServiceError: a node is not up, or one has an announced maintenance (none of which can be moved)."""
        for node in nodes:
            if node.state != "READY" or node.upcoming is not None:
                why = f"in state {node.state}" if node.upcoming is None else "maintenance is announced"
                raise wrong_state(self._find.world, f"performMaintenance is not supported while {why}")
        for node in nodes:
            self._maintenances.announce(call.now, node, MaintenancePlan(lead=0, warning=0, kind="UNSCHEDULED"))

    def _simulate(self, call: Call, where: Where) -> Answer:
        """The machines are told, and stay up. The first worker alone, unless others are named."""
        node = self._find.node(where)
        if node.state != "READY" or node.upcoming is not None:
            raise wrong_state(self._find.world, "simulateMaintenanceEvent needs a READY node without maintenance")
        workers = [str(worker) for worker in call.request.document().get("workerIds") or ["0"]]
        if len(workers) != 1 or not workers[0].isdigit() or int(workers[0]) >= node.accelerator.hosts:
            raise bad_request(
                self._find.world, f"one worker below {node.accelerator.hosts} must be named, got {workers}."
            )
        plan = MaintenancePlan(lead=0, warning=0, kind="UNSCHEDULED", worker=int(workers[0]), hosts="stay")
        self._maintenances.announce(call.now, node, plan)
        return self._answer(
            call, where, "simulateMaintenanceEvent", node.name, node.labels, "Node", node.document()
        )  # fmt: skip

    def _info(self, call: Call, where: Where) -> Answer:  # noqa: ARG002 -- all verbs have one signature
        record = self._find.queued(where)
        coming = [
            {"nodeName": node.node_id, "nodeUid": str(node.number), "upcomingMaintenance": dict(node.upcoming)}
            for node in self._find.life.nodes_of(record)
            if node.upcoming is not None
        ]
        return Answer({"nodeUpcomingMaintenances": coming}, resource=record.name, labels=record.labels)

    def _answer(
        self, call: Call, where: Where, verb: str, name: str, labels: Mapping[str, str], kind: str, document: Json
    ) -> Answer:
        """Done as soon as it has begun: the node shows how it goes on."""
        operation = self._operations.begin(call.now, where.parent, name, verb)
        finish(operation, call.now, kind, document)
        return Answer(operation.document(where.version), effect=True, resource=name, labels=labels)
