"""Queued resources and nodes as the service keeps them, and how it writes them in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tpuctl.base.units import Instant
from tpuctl.emulator.accelerators import Accelerator
from tpuctl.emulator.tpu_disks import DataDisk
from tpuctl.emulator.tpu_tiers import ON_DEMAND_TIER, Tier
from tpuctl.emulator.wire import Json


class QrState(Enum):
    CREATING = "CREATING"
    ACCEPTED = "ACCEPTED"
    WAITING_FOR_RESOURCES = "WAITING_FOR_RESOURCES"
    PROVISIONING = "PROVISIONING"
    ACTIVE = "ACTIVE"
    FAILED = "FAILED"
    SUSPENDING = "SUSPENDING"
    SUSPENDED = "SUSPENDED"
    DELETING = "DELETING"


# Arrows of the service's own picture; `delete` may begin anywhere. None: gone.
ARROWS: dict[QrState, frozenset[QrState | None]] = {
    QrState.CREATING: frozenset({QrState.ACCEPTED, QrState.FAILED, QrState.DELETING}),
    QrState.ACCEPTED: frozenset({QrState.WAITING_FOR_RESOURCES, QrState.FAILED, QrState.DELETING}),
    QrState.WAITING_FOR_RESOURCES: frozenset({QrState.PROVISIONING, QrState.FAILED, QrState.DELETING}),
    QrState.PROVISIONING: frozenset({QrState.ACTIVE, QrState.FAILED, QrState.SUSPENDING, QrState.DELETING}),
    QrState.ACTIVE: frozenset({QrState.SUSPENDING, QrState.DELETING}),
    QrState.SUSPENDING: frozenset({QrState.SUSPENDED, QrState.DELETING}),
    QrState.SUSPENDED: frozenset({QrState.DELETING}),
    QrState.FAILED: frozenset({QrState.DELETING}),
    QrState.DELETING: frozenset({None}),
}

_DATA_FIELD = {
    QrState.CREATING: "creatingData",
    QrState.ACCEPTED: "acceptedData",
    QrState.PROVISIONING: "provisioningData",
    QrState.ACTIVE: "activeData",
    QrState.DELETING: "deletingData",
    QrState.SUSPENDING: "suspendingData",
    QrState.SUSPENDED: "suspendedData",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A create call's body after it was found good."""

    accelerator: Accelerator
    node_ids: tuple[str, ...]
    template: Json  # the node, without output-only fields
    tier: Tier
    policy: Json  # queueingPolicy as sent
    valid_until: Instant | None
    valid_after: Instant | None
    extra: Json  # tier and reservation fields, sent back as they came
    disks: tuple[DataDisk, ...] = ()
    version: str = "v2"  # of the call

    @property
    def chips(self) -> int:
        return self.accelerator.chips * len(self.node_ids)

    @property
    def hosts(self) -> int:
        return self.accelerator.hosts * len(self.node_ids)


@dataclass(slots=True)
class NodeRecord:
    name: str
    zone: str
    project: str
    accelerator: Accelerator
    template: Json
    number: int
    created: Instant
    state: str = "CREATING"
    queued: str = ""  # full name of its queued resource
    multislice: tuple[int, int] | None = None  # (index, slices)
    tier: Tier = ON_DEMAND_TIER
    disks: tuple[DataDisk, ...] = ()
    version: str = "v2"  # of the call that made it
    vms: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    booted: set[str] = field(default_factory=set)
    guest: dict[tuple[int, str, str], str] = field(default_factory=dict)
    leaving: bool = False  # a preemption is under way
    running: bool = False  # its machines were started and not yet stopped
    health: str = ""  # "": HEALTHY when READY, else none; "none": never shown
    upcoming: Json | None = None  # upcomingMaintenance

    @property
    def spot(self) -> bool:
        return self.tier.preemptible

    @property
    def holder(self) -> str:
        """Under which name its chips are held: its queued resource's, or its own."""
        return self.queued or self.name

    @property
    def node_id(self) -> str:
        return self.name.rsplit("/", 1)[1]

    @property
    def labels(self) -> Mapping[str, str]:
        return dict(self.template.get("labels") or {})

    def document(self) -> Json:
        network = self.template.get("networkConfig") or {}
        outside = bool(network.get("enableExternalIps"))
        document: Json = {
            **self.template,
            "name": self.name,
            "state": int(self.state) if self.state.isdecimal() else self.state.removeprefix("raw:"),
            "acceleratorType": self.accelerator.name,
            "acceleratorConfig": {
                "type": self.accelerator.generation.wire_type,
                "topology": self.accelerator.topology,
            },
            "networkEndpoints": [
                {
                    "ipAddress": address,
                    "port": 8470,
                    "accessConfig": {"externalIp": _external(address)} if outside else {},
                }
                for address in self.addresses
            ],
            "id": str(self.number),
            "createTime": self.created.iso(),
            "apiVersion": "V2_ALPHA1" if self.version == "v2alpha1" else "V2",
            "schedulingConfig": self._scheduling(),
        }
        if self.queued:
            document["queuedResource"] = self.queued
            document["multisliceNode"] = self.multislice is not None
        health = self.health or ("HEALTHY" if self.state == "READY" else "none")
        if health != "none":
            document["health"] = health
        if self.upcoming is not None:
            document["upcomingMaintenance"] = dict(self.upcoming)
        return document

    def _scheduling(self) -> Json:
        if self.spot:
            return {"spot": True, "preemptible": True}
        return {"reserved": True} if self.tier.name == "reserved" else {}


def _external(address: str) -> str:
    """An address of the documentation range, so that nobody ever reaches a stranger with it."""
    return f"203.0.113.{address.rsplit('.', 1)[1]}"


@dataclass(slots=True)
class QueuedRecord:
    name: str
    zone: str
    project: str
    asked: Asked
    created: Instant
    state: QrState = QrState.CREATING
    initiator: str = ""
    error: Json | None = None
    granted: bool = False
    ready_for_grant: Instant | None = None

    @property
    def parent(self) -> str:
        return self.name.rsplit("/queuedResources/", 1)[0]

    @property
    def labels(self) -> Mapping[str, str]:
        return dict(self.asked.template.get("labels") or {})

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(f"{self.parent}/nodes/{node_id}" for node_id in self.asked.node_ids)

    @property
    def chips(self) -> int:
        return self.asked.chips

    def document(self) -> Json:
        state: Json = {"state": self.state.value}
        if self.initiator:
            state["stateInitiator"] = self.initiator
        if self.state is QrState.FAILED:
            state["failedData"] = {"error": self.error or {}}
        elif self.state in _DATA_FIELD:
            state[_DATA_FIELD[self.state]] = {}
        document: Json = {
            "name": self.name,
            "createTime": self.created.iso(),
            "tpu": {
                "nodeSpec": [
                    {"parent": self.parent, "nodeId": node_id, "node": self.asked.template}
                    for node_id in self.asked.node_ids
                ]
            },
            "state": state,
            **self.asked.extra,
        }
        if self.asked.policy:
            document["queueingPolicy"] = self.asked.policy
        return document
