"""Nodes by themselves: made without a queued resource, stopped, started, reset."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tpuctl.base.units import Instant
from tpuctl.emulator.events import VmReset
from tpuctl.emulator.operations import Operation, fail, finish
from tpuctl.emulator.tpu_disks import attach
from tpuctl.emulator.tpu_life import TpuLife
from tpuctl.emulator.tpu_machines import furnish, start_machines, stop_machines
from tpuctl.emulator.tpu_records import Asked, NodeRecord, QueuedRecord
from tpuctl.emulator.tpu_tiers import no_reserved_capacity
from tpuctl.emulator.wire import Json, ServiceError


class NodeLife:
    """Operations end when what they began has ended: a create when the node is READY, or when there is no room."""

    def __init__(self, life: TpuLife) -> None:
        self._life = life
        self._world = life.world
        self._asked: dict[str, Asked] = {}
        self._until_ready: list[tuple[tuple[NodeRecord, ...], Operation, QueuedRecord | None]] = []
        life.watchers.append(self)
        life.after_loss.append(self._settle)

    def create(
        self, now: Instant, name: str, project: str, asked: Asked, operation: Operation, doom: Json | None
    ) -> NodeRecord:
        """`doom`: it will fail with this google.rpc.Status."""
        zone = name.split("/")[3]
        node = NodeRecord(
            name, zone, project, asked.accelerator, asked.template, self._world.number(), now,
            tier=asked.tier, disks=asked.disks, version=asked.version,
        )  # fmt: skip
        self._asked[name] = asked
        self._life.nodes[name] = node
        attach(self._world, name, asked.disks)
        self._life.node_state(now, node, "CREATING", "create was called")
        doom = doom or asked.tier.too_late
        seconds = self._world.drawn(self._world.settings.latencies.accepted)
        self._world.later(now, seconds, lambda at: self._place(at, node, operation, doom))
        return node

    def _place(self, now: Instant, node: NodeRecord, operation: Operation, doom: Json | None) -> None:
        if self._life.nodes.get(node.name) is not node or node.state != "CREATING":
            fail(operation, now, {"code": 1, "message": "The operation was cancelled."})
            return
        if error := doom or self._stockout(now, node):
            fail(operation, now, error)
            self._life.drop_alone(now, node, str(error["message"]))
            return
        self._life.hold(node.name, node.zone, self._asked[node.name])
        self._bring_up(now, node, operation)

    def _stockout(self, now: Instant, node: NodeRecord) -> Json | None:
        asked = self._asked[node.name]
        if self._life.has_room(now, node.zone, asked):
            return None
        if asked.tier.reservation:
            return no_reserved_capacity(self._world).rpc()
        text = (
            f'There is no more capacity in the zone "{node.zone}"; you can try in another zone where Cloud TPU Nodes '
            f"are offered (see https://cloud.google.com/tpu/docs/regions) {self._world.event_id()}"
        )
        return ServiceError("RESOURCE_EXHAUSTED", text).rpc()

    def _bring_up(self, now: Instant, node: NodeRecord, operation: Operation) -> None:
        furnish(self._world, node)
        self._until_ready.append(((node,), operation, None))
        seconds = self._world.drawn(self._world.settings.latencies.provisioning)
        self._world.later(now, seconds, lambda at: self._run(at, node))

    def _run(self, now: Instant, node: NodeRecord) -> None:
        if self._life.nodes.get(node.name) is not node or not node.vms or node.running:
            self._settle(now)
            return
        start_machines(self._world, node, (node,))
        self._boot(now, node)

    def _boot(self, now: Instant, node: NodeRecord) -> None:
        if self._world.settings.boot_by_themselves:
            seconds = self._world.drawn(self._world.settings.latencies.boot)
            self._world.later(now, seconds, partial(self._life.boot_all, node))

    def stop(self, now: Instant, node: NodeRecord, operation: Operation) -> None:
        """Its chips are free from now on; the node and its quota stay."""
        self._life.node_state(now, node, "STOPPING", "stop was called")
        stop_machines(self._world, node)

        def stopped(at: Instant) -> None:
            if self._life.nodes.get(node.name) is node and node.state == "STOPPING":
                self._life.node_state(at, node, "STOPPED", "stop was called")
                self._life.capacity.release(node.name)
                self._world.timeline.at(at, self._life.grant_what_fits)
            finish(operation, at, "Node", node.document())

        self._world.later(now, self._world.drawn(self._world.settings.latencies.suspending), stopped)

    def start(self, now: Instant, node: NodeRecord, operation: Operation) -> None:
        """Where there is no room any more the node stays STOPPED."""
        if error := self._stockout(now, node):
            seconds = self._world.drawn(self._world.settings.latencies.accepted)
            self._world.later(now, seconds, lambda at: fail(operation, at, error))
            return
        self._life.hold(node.name, node.zone, self._asked[node.name])
        self._life.node_state(now, node, "STARTING", "start was called")
        self._bring_up(now, node, operation)

    def reset(self, now: Instant, record: QueuedRecord, operation: Operation) -> None:
        """All machines of an ACTIVE queued resource boot again; their disks stay."""
        nodes = tuple(node for node in self._life.nodes_of(record) if node.running)
        for node in nodes:
            node.booted.clear()
            self._life.node_state(now, node, "RESTARTING", "reset was called")
            self._world.events.extend(VmReset(vm) for vm in node.vms)
            self._boot(now, node)
        self._until_ready.append((nodes, operation, record))
        self._settle(now)

    def node_ready(self, now: Instant, node: NodeRecord) -> None:  # noqa: ARG002 -- any operation may be over now
        self._settle(now)

    def _settle(self, now: Instant) -> None:
        waiting = []
        for nodes, operation, record in self._until_ready:
            if all(node.state == "READY" for node in nodes):
                document = nodes[0].document() if record is None else record.document()
                finish(operation, now, "Node" if record is None else "QueuedResource", document)
            elif self._is_lost(nodes):
                fail(operation, now, {"code": 1, "message": "The operation was cancelled."})
            else:
                waiting.append((nodes, operation, record))
        self._until_ready = waiting

    def _is_lost(self, nodes: Sequence[NodeRecord]) -> bool:
        return any(self._life.nodes.get(node.name) is not node or not node.vms for node in nodes)
