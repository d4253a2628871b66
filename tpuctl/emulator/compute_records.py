"""Instances, disks, addresses and operations of Compute v1 as the service keeps and writes them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from tpuctl.base.units import Instant
from tpuctl.emulator.wire import Json

ROOT = "https://www.googleapis.com/compute/v1"


def link(project: str, zone: str, kind: str, name: str) -> str:
    return f"{ROOT}/projects/{project}/zones/{zone}/{kind}/{name}"


def fingerprint(document: object) -> str:
    return hashlib.sha256(repr(document).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Attached:
    """A disk in an instance."""

    disk: str
    device: str
    boot: bool
    auto_delete: bool


@dataclass(slots=True)
class DiskRecord:
    name: str
    project: str
    zone: str
    number: int
    created: Instant
    size_gb: str
    kind: str = "pd-balanced"
    labels: dict[str, str] = field(default_factory=dict)
    status: str = "READY"
    user: str = ""  # name of the instance that has it
    nodes: dict[str, bool] = field(default_factory=dict)  # TPU nodes that have it: full name -> read-only

    @property
    def path(self) -> str:
        return f"projects/{self.project}/zones/{self.zone}/disks/{self.name}"

    @property
    def bytes_name(self) -> str:
        """One name for one disk's bytes: a disk that is made again under an old name begins empty."""
        return f"{self.name}-{self.number % 10**9:09d}"

    def document(self) -> Json:
        return {
            "kind": "compute#disk",
            "id": str(self.number),
            "name": self.name,
            "zone": f"{ROOT}/projects/{self.project}/zones/{self.zone}",
            "selfLink": f"{ROOT}/{self.path}",
            "sizeGb": self.size_gb,
            "type": link(self.project, self.zone, "diskTypes", self.kind),
            "status": self.status,
            "labels": dict(self.labels),
            "labelFingerprint": fingerprint(self.labels),
            "creationTimestamp": self.created.iso(),
            "users": [link(self.project, self.zone, "instances", self.user)] if self.user else [],
        }


@dataclass(slots=True)
class InstanceRecord:
    name: str
    project: str
    zone: str
    number: int
    created: Instant
    body: Json  # as sent
    address: str
    disks: tuple[Attached, ...]
    labels: dict[str, str]
    metadata: dict[str, str]
    status: str = "PROVISIONING"
    vm: str = ""  # name among the machines while it runs
    guest: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"projects/{self.project}/zones/{self.zone}/instances/{self.name}"

    def document(self) -> Json:
        wanted = (self.body.get("networkInterfaces") or [{}])[0]
        network: Json = {"name": "nic0", "networkIP": self.address, "network": wanted.get("network", "")}
        if wanted.get("accessConfigs"):
            outside = f"203.0.113.{self.address.rsplit('.', 1)[1]}"
            network["accessConfigs"] = [{**wanted["accessConfigs"][0], "natIP": outside}]
        items = [{"key": key, "value": value} for key, value in sorted(self.metadata.items())]
        return {
            "kind": "compute#instance",
            "id": str(self.number),
            "name": self.name,
            "zone": f"{ROOT}/projects/{self.project}/zones/{self.zone}",
            "selfLink": f"{ROOT}/{self.path}",
            "machineType": f"{ROOT}/projects/{self.project}/{self.body.get('machineType', '')}",
            "status": self.status,
            "labels": dict(self.labels),
            "labelFingerprint": fingerprint(self.labels),
            "metadata": {"kind": "compute#metadata", "items": items, "fingerprint": fingerprint(items)},
            "tags": self.body.get("tags", {}),
            "scheduling": self.body.get("scheduling", {}),
            "serviceAccounts": self.body.get("serviceAccounts", []),
            "networkInterfaces": [network],
            "disks": [self._disk(index, disk) for index, disk in enumerate(self.disks)],
            "creationTimestamp": self.created.iso(),
        }

    def _disk(self, index: int, disk: Attached) -> Json:
        return {
            "index": index,
            "type": "PERSISTENT",
            "mode": "READ_WRITE",
            "source": link(self.project, self.zone, "disks", disk.disk),
            "deviceName": disk.device,
            "boot": disk.boot,
            "autoDelete": disk.auto_delete,
        }


@dataclass(slots=True)
class AddressRecord:
    name: str
    project: str
    region: str
    number: int
    created: Instant
    address: str
    body: Json
    user: str = ""  # path of the instance that has it

    @property
    def path(self) -> str:
        return f"projects/{self.project}/regions/{self.region}/addresses/{self.name}"

    def document(self) -> Json:
        return {
            **{key: self.body[key] for key in ("addressType", "purpose", "subnetwork") if key in self.body},
            "kind": "compute#address",
            "id": str(self.number),
            "name": self.name,
            "address": self.address,
            "region": f"{ROOT}/projects/{self.project}/regions/{self.region}",
            "status": "IN_USE" if self.user else "RESERVED",
            **({"users": [f"{ROOT}/{self.user}"]} if self.user else {}),
            "selfLink": f"{ROOT}/{self.path}",
            "creationTimestamp": self.created.iso(),
        }


@dataclass(slots=True)
class ComputeOperation:
    name: str
    project: str
    scope: str  # zones/<zone> or regions/<region>
    kind: str
    target: str  # path below the root
    number: int
    created: Instant
    due: Instant  # when it ends, by plan
    ended: Instant | None = None
    error: Json | None = None
    labels: dict[str, str] = field(default_factory=dict)
    shown_after_s: float = 0.0  # its end shows so much later than it happens; inf: never
    lost: bool = False  # 404, whatever becomes of the work

    def document(self) -> Json:
        done = self.ended is not None
        document: Json = {
            "kind": "compute#operation",
            "id": str(self.number),
            "name": self.name,
            "operationType": self.kind,
            "targetLink": f"{ROOT}/{self.target}",
            "status": "DONE" if done else "RUNNING",
            "progress": 100 if done else 0,
            "insertTime": self.created.iso(),
            "startTime": self.created.iso(),
            "selfLink": f"{ROOT}/projects/{self.project}/{self.scope}/operations/{self.name}",
        }
        scope, _, place = self.scope.partition("/")
        document[scope.rstrip("s")] = f"{ROOT}/projects/{self.project}/{self.scope}" if place else ""
        if self.ended is not None:
            document["endTime"] = self.ended.iso()
        if self.error is not None:
            document["error"] = {"errors": [self.error]}
            document["httpErrorStatusCode"], document["httpErrorMessage"] = 503, "SERVICE UNAVAILABLE"
        return document
