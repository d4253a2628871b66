"""The life of queued resources and nodes: which state follows which, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from tpuctl.base.units import Instant
from tpuctl.emulator.capacity import Capacity, Holding
from tpuctl.emulator.fault_errors import named_error
from tpuctl.emulator.operations import Operation, Operations, fail, finish
from tpuctl.emulator.quota import Use
from tpuctl.emulator.stalls import Stalls
from tpuctl.emulator.tpu_disks import detach_all
from tpuctl.emulator.tpu_machines import furnish, start_machines, stop_machines
from tpuctl.emulator.tpu_records import ARROWS, Asked, NodeRecord, QrState, QueuedRecord
from tpuctl.emulator.tpu_states import BOOTING, WITHOUT_MACHINES
from tpuctl.emulator.tpu_tiers import key_of
from tpuctl.emulator.wire import Json
from tpuctl.emulator.world import World


class NodeWatcher(Protocol):
    def node_ready(self, now: Instant, node: NodeRecord) -> None:
        """Called once for each node, when all its hosts are up."""
        ...


class TpuLife:
    def __init__(self, world: World, operations: Operations) -> None:
        self.world = world
        self.operations = operations
        rules = tuple(rule for each in world.settings.capacity for rule in each.rules)
        self.capacity = Capacity(rules, world.settings.stockouts)
        self.stalls = Stalls(world.settings.stalls)
        self.queued: dict[str, QueuedRecord] = {}  # by full name, in order of creation
        self.nodes: dict[str, NodeRecord] = {}
        self.watchers: list[NodeWatcher] = []
        self.after_loss: list[Callable[[Instant], None]] = []  # called when nodes have been lost or deleted
        for each in world.settings.reservations:
            self.capacity.reserve(key_of(each), each.chips)

    # Creation

    def create(
        self, now: Instant, name: str, project: str, asked: Asked, operation: Operation, doom: Json | None
    ) -> QueuedRecord:
        """The request is stored. `doom`: it will fail with this google.rpc.Status when it is judged."""
        zone = name.split("/")[3]
        record = self.queued[name] = QueuedRecord(name, zone, project, asked, now)
        self.world.note(now, name, record.state.value, "created", record.labels)
        if asked.valid_until is not None:
            self.world.timeline.at(asked.valid_until, lambda at: self._expire(at, record))
        seconds = self.world.drawn(self.world.settings.latencies.accepted)
        self._stage(now, record, "CREATING", seconds, lambda at: self._judge(at, record, operation, doom))
        return record

    def _stage(
        self, now: Instant, record: QueuedRecord, stage: str, seconds: float, then: Callable[[Instant], None]
    ) -> None:
        """`then` when the stage is over: after `seconds`, unless a stall makes it longer, endless or its end FAILED."""
        stall = self.stalls.meet(record.name.rsplit("/", 1)[1], record.zone, stage)
        if stall is None:
            self.world.later(now, seconds, then)
            return
        if stall.lasts is None and not stall.error:
            return
        total_s = seconds + (0.0 if stall.lasts is None else self.world.drawn(stall.lasts))
        if not stall.error:
            self.world.later(now, total_s, then)
            return
        status = named_error(stall.error).rpc()
        self.world.later(now, total_s, lambda at: self._fail_in(at, record, QrState(stage), status))

    def _fail_in(self, now: Instant, record: QueuedRecord, state: QrState, status: Json) -> None:
        if record.state is state:
            self._release(now, record, "its queued resource failed")
            self._fail(now, record, status)

    def _judge(self, now: Instant, record: QueuedRecord, operation: Operation, doom: Json | None) -> None:
        if record.state is not QrState.CREATING:
            fail(operation, now, {"code": 1, "message": "The operation was cancelled."})
            return
        if doom is not None:
            fail(operation, now, doom)
            self._fail(now, record, doom)
            return
        self._move(now, record, QrState.ACCEPTED, "admitted")
        finish(operation, now, "QueuedResource", record.document())
        half = self.world.drawn(self.world.settings.latencies.waiting) / 2
        opens = now if record.asked.valid_after is None else record.asked.valid_after
        self._stage(now, record, "ACCEPTED", max(half, opens.since(now)), lambda at: self._wait(at, record, half))

    def _wait(self, now: Instant, record: QueuedRecord, half: float) -> None:
        if record.state is not QrState.ACCEPTED:
            return
        self._move(now, record, QrState.WAITING_FOR_RESOURCES, "in the queue")
        self._stage(now, record, "WAITING_FOR_RESOURCES", half, lambda at: self._may_be_granted(at, record))

    def _may_be_granted(self, now: Instant, record: QueuedRecord) -> None:
        record.ready_for_grant = now
        self.grant_what_fits(now)

    def _expire(self, now: Instant, record: QueuedRecord) -> None:
        if record.state in (QrState.CREATING, QrState.ACCEPTED, QrState.WAITING_FOR_RESOURCES):
            text = "The queued resource could not be provisioned before its valid-until time."
            self._fail(now, record, {"code": 4, "message": text})

    def _fail(self, now: Instant, record: QueuedRecord, error: Json) -> None:
        record.error = error
        self._move(now, record, QrState.FAILED, str(error.get("message", "")))

    # Granting

    def grant_what_fits(self, now: Instant) -> None:
        """In order of creation; a large request that does not fit does not hold up a smaller one behind it."""
        for record in list(self.queued.values()):
            due = record.ready_for_grant is not None and record.ready_for_grant <= now
            if record.state is QrState.WAITING_FOR_RESOURCES and due and self._fits(record, now):
                self._grant(now, record)

    def _fits(self, record: QueuedRecord, now: Instant) -> bool:
        return self.has_room(now, record.zone, record.asked)

    def has_room(self, now: Instant, zone: str, asked: Asked) -> bool:
        """In the zone, or in the reservation that the request is for; and addresses for its hosts."""
        if self.world.addresses.free < asked.hosts:
            return False
        if asked.tier.reservation:
            return self.capacity.fits_reserved(asked.tier.reservation, asked.chips)
        return self.capacity.fits(zone, asked.accelerator, asked.chips, self.world.age(now))

    def hold(self, name: str, zone: str, asked: Asked) -> None:
        self.capacity.hold(Holding(name, zone, asked.accelerator, asked.chips, asked.tier.reservation))

    def _grant(self, now: Instant, record: QueuedRecord) -> None:
        asked = record.asked
        self.hold(record.name, record.zone, asked)
        self._move(now, record, QrState.PROVISIONING, "granted")
        many = len(asked.node_ids)
        for index, name in enumerate(record.node_names):
            node = NodeRecord(
                name, record.zone, record.project, asked.accelerator, asked.template, self.world.number(), now,
                queued=record.name, multislice=(index, many) if many > 1 else None, tier=asked.tier,
                disks=asked.disks, version=asked.version,
            )  # fmt: skip
            furnish(self.world, node)
            self.nodes[name] = node
            self.node_state(now, node, "CREATING", "granted")
        seconds = self.world.drawn(self.world.settings.latencies.provisioning)
        self._stage(now, record, "PROVISIONING", seconds, lambda at: self._activate(at, record))

    def rush(self, now: Instant, record: QueuedRecord) -> None:
        """A request that was judged becomes ACTIVE within this moment, if there is room for it."""
        if record.state is QrState.ACCEPTED and self._fits(record, now):
            self._move(now, record, QrState.WAITING_FOR_RESOURCES, "in the queue")
        if record.state is QrState.WAITING_FOR_RESOURCES and self._fits(record, now):
            self._grant(now, record)
        self._activate(now, record)

    def _activate(self, now: Instant, record: QueuedRecord) -> None:
        if record.state is not QrState.PROVISIONING:
            return
        self._move(now, record, QrState.ACTIVE, "nodes were made")
        nodes = tuple(self.nodes_of(record))
        for node in nodes:
            start_machines(self.world, node, nodes)
            if self.world.settings.boot_by_themselves:
                seconds = self.world.drawn(self.world.settings.latencies.boot)
                self._stage(now, record, "BOOTING", seconds, partial(self.boot_all, node))

    def boot_all(self, node: NodeRecord, now: Instant) -> None:
        for vm in node.vms:
            self.booted(now, node, vm)

    def booted(self, now: Instant, node: NodeRecord, vm: str) -> None:
        """One machine is up. The node is READY when all are."""
        if vm not in node.vms:
            return
        node.booted.add(vm)
        if node.state in BOOTING and node.booted == set(node.vms):
            self.node_state(now, node, "READY", "all hosts are up")
            for watcher in self.watchers:
                watcher.node_ready(now, node)

    # Loss

    def lose(self, now: Instant, node: NodeRecord, *, shows: str, lag_s: float = 0.0) -> None:
        """The service takes the node's whole queued resource: machines end at once; the queued resource follows after
        `lag_s`. `shows`: PREEMPTED, TERMINATED, or `gone` for a node that is not even listed. A node without a queued
        resource stays as it shows itself until it is deleted."""
        record = self.queued.get(node.queued)
        for each in self.together(node):
            stop_machines(self.world, each)
            if shows == "gone":
                self.drop_node(now, each, "preempted")
            elif each.state != "DELETING":
                self.node_state(now, each, shows, "preempted")
        self.capacity.release(node.holder)
        if record is None:
            pass
        elif lag_s > 0:
            self.world.later(now, lag_s, lambda at: self._suspend(at, record, "SERVICE", "preempted"))
        else:
            self._suspend(now, record, "SERVICE", "preempted")
        self.world.timeline.at(now, self.grant_what_fits)
        self._tell_of_loss(now)

    def turn(self, now: Instant, node: NodeRecord, state: str, why: str) -> None:
        """The node's state is another one, or the node is `gone`; its queued resource does not notice."""
        if state == "gone" or state in WITHOUT_MACHINES:
            stop_machines(self.world, node)
        if state != "gone":
            self.node_state(now, node, state, why)
        elif node.queued:
            self.drop_node(now, node, why)
        else:
            self.drop_alone(now, node, why)
        record = self.queued.get(node.queued)
        idle = record is not None and not node.vms and not any(each.vms for each in self.nodes_of(record))
        if idle and self.capacity.release(node.queued):  # chips without machines are anybody's
            self.world.timeline.at(now, self.grant_what_fits)

    def _suspend(self, now: Instant, record: QueuedRecord, initiator: str, why: str) -> None:
        if record.state not in (QrState.ACTIVE, QrState.PROVISIONING):
            return
        record.initiator = initiator
        self._move(now, record, QrState.SUSPENDING, why)
        seconds = self.world.drawn(self.world.settings.latencies.suspending)
        self._stage(now, record, "SUSPENDING", seconds, lambda at: self._suspended(at, record, why))

    def _suspended(self, now: Instant, record: QueuedRecord, why: str) -> None:
        if record.state is QrState.SUSPENDING:
            self._release(now, record, why)
            self._move(now, record, QrState.SUSPENDED, why)

    # Deletion

    def delete(self, now: Instant, record: QueuedRecord, operation: Operation, doom: Json | None = None) -> None:
        """With its nodes, whatever state they are in. `doom`: the operation fails with it, and all stays as it was."""
        seconds = self.world.drawn(self.world.settings.latencies.deleting)
        if doom is not None:
            self.world.later(now, seconds, lambda at: fail(operation, at, doom))
            return
        self._move(now, record, QrState.DELETING, "delete was called")
        for node in self.nodes_of(record):
            stop_machines(self.world, node)
            self.node_state(now, node, "DELETING", "its queued resource is deleted")
        self._stage(now, record, "DELETING", seconds, lambda at: self._gone(at, record, operation))
        self._tell_of_loss(now)

    def _gone(self, now: Instant, record: QueuedRecord, operation: Operation) -> None:
        self._release(now, record, "deleted")
        del self.queued[record.name]
        self.world.note(now, record.name, "GONE", "deleted", record.labels)
        finish(operation, now)

    def delete_node(self, now: Instant, node: NodeRecord, operation: Operation) -> None:
        """The user deletes a node by hand: its queued resource, if it has one, suspends, and its other nodes go too."""
        record = self.queued.get(node.queued)
        for each in self.together(node):
            stop_machines(self.world, each)
            if each.state != "DELETING":
                self.node_state(now, each, "DELETING", "delete was called")

        def gone(at: Instant) -> None:
            finish(operation, at)
            if record is None:
                self.drop_alone(at, node, "deleted")
            elif self.queued.get(record.name) is record:
                self._release(at, record, "a node was deleted")
                self._suspend(at, record, "USER", "a node was deleted")

        self.world.later(now, self.world.drawn(self.world.settings.latencies.deleting), gone)
        self._tell_of_loss(now)

    def _release(self, now: Instant, record: QueuedRecord, why: str) -> None:
        """Nodes are gone and their chips free."""
        for node in list(self.nodes_of(record)):
            stop_machines(self.world, node)
            self.drop_node(now, node, why)
        if self.capacity.release(record.name):
            self.world.timeline.at(now, self.grant_what_fits)

    def drop_alone(self, now: Instant, node: NodeRecord, why: str) -> None:
        """A node without a queued resource is gone, and its chips are free."""
        if self.nodes.get(node.name) is node:
            self.drop_node(now, node, why)
        if self.capacity.release(node.name):
            self.world.timeline.at(now, self.grant_what_fits)

    # Looking

    def nodes_of(self, record: QueuedRecord) -> Iterable[NodeRecord]:
        found = [self.nodes.get(name) for name in record.node_names]
        return [node for node in found if node is not None and node.queued == record.name]

    def together(self, node: NodeRecord) -> tuple[NodeRecord, ...]:
        """The nodes that live and die with this one: all of its queued resource; itself when it has none."""
        record = self.queued.get(node.queued)
        return (node,) if record is None else tuple(self.nodes_of(record))

    def uses(self) -> list[Use]:
        """What counts against quotas: every request and node that exists, dead ones too; waiting ones by setting."""
        waiting = (QrState.CREATING, QrState.ACCEPTED, QrState.WAITING_FOR_RESOURCES)
        found = [
            Use(record.project, record.zone, record.asked.accelerator, record.chips, record.asked.tier.name)
            for record in self.queued.values()
            if self.world.settings.quota_counts_waiting or record.state not in waiting
        ]
        alone = [node for node in self.nodes.values() if not node.queued]
        return found + [
            Use(node.project, node.zone, node.accelerator, node.accelerator.chips, node.tier.name) for node in alone
        ]

    def _move(self, now: Instant, record: QueuedRecord, state: QrState, why: str) -> None:
        if state not in ARROWS[record.state]:
            raise AssertionError(f"{record.name}: {record.state.value} -> {state.value} is no arrow of the service")
        record.state = state
        self.world.note(now, record.name, state.value, why, record.labels)

    def node_state(self, now: Instant, node: NodeRecord, state: str, why: str) -> None:
        node.state = state
        self.world.note(now, node.name, state, why, node.labels)

    def _tell_of_loss(self, now: Instant) -> None:
        for told in self.after_loss:
            told(now)

    def drop_node(self, now: Instant, node: NodeRecord, why: str) -> None:
        del self.nodes[node.name]
        detach_all(self.world, node.name)
        self.world.note(now, node.name, "GONE", why, node.labels)
