"""The head as a client sees it: its names, what is wanted, what exists, and what may be done about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tpuctl.base.errors import UserError
from tpuctl.base.ids import ClusterName, Zone
from tpuctl.cloud.model import Instance, InstanceRequest

CLUSTER_LABEL, ROLE_LABEL = "tpuctl-cluster", "tpuctl-role"
ROLE = "head"
RAY_PORTS = (20000, 32000)
DATA_DISK_GB = 20  # records, bundles and logs; no checkpoints

# What an instance's status means for its use. Words not listed here are taken as good: they are on their way up.
STOPPED = frozenset({"TERMINATED", "STOPPED", "SUSPENDED"})
LEAVING = frozenset({"STOPPING", "PENDING_STOP", "SUSPENDING", "DEPROVISIONING"})


class NameTakenError(UserError):
    """Something that is not ours has the head's name. It is left alone."""


class TwoHeadsError(UserError):
    """Two VMs say that they are this cluster's head."""


class DiskElsewhereError(UserError):
    """The records lie in a zone where the head may not go."""


@dataclass(frozen=True, slots=True)
class HeadNames:
    """All that a client makes for a cluster has a fixed name, so that making it twice makes it once."""

    cluster: ClusterName

    @property
    def head(self) -> str:
        return f"tpuctl-{self.cluster}-head"

    @property
    def disk(self) -> str:
        return f"tpuctl-{self.cluster}-data"

    @property
    def secret(self) -> str:
        return f"tpuctl-{self.cluster}-token"

    @property
    def labels(self) -> dict[str, str]:
        return {CLUSTER_LABEL: self.cluster, ROLE_LABEL: ROLE}

    def are_ours(self, labels: Mapping[str, str]) -> bool:
        """Ownership is judged by labels alone, never by the name."""
        return all(labels.get(key) == value for key, value in self.labels.items())


@dataclass(frozen=True, slots=True)
class HeadWant:
    """The head that the spec asks for. `metadata` is made for the zone that the head gets."""

    names: HeadNames
    project: str
    zone: Zone
    machine: str
    service_account: str = ""
    network: str = "default"
    subnetwork: str = ""
    external_ip: bool = True
    tags: tuple[str, ...] = ()
    disk_gb: int = DATA_DISK_GB


class SecretState(Enum):
    ABSENT = "absent"
    EMPTY = "empty"  # made, but without a version: its maker was killed between two calls
    PRESENT = "present"


@dataclass(frozen=True, slots=True)
class HeadView:
    """One observation. An incomplete list proves that what it shows is there, and nothing about the rest."""

    heads: tuple[Instance, ...]  # ours by label, whatever zone
    heads_complete: bool
    stranger: Instance | None  # has the head's name in the wanted zone and lacks our labels
    disks: tuple[Zone, ...]  # zones with a data disk of ours
    disks_complete: bool
    secret: SecretState


@dataclass(frozen=True, slots=True)
class CreateSecret:
    name: str
    replace_empty: bool
    reason: str


@dataclass(frozen=True, slots=True)
class CreateDisk:
    zone: Zone
    name: str
    size_gb: int
    reason: str


@dataclass(frozen=True, slots=True)
class InsertHead:
    """`request` lacks the metadata, which `apply` adds for the zone."""

    request: InstanceRequest
    reason: str


@dataclass(frozen=True, slots=True)
class DeleteHead:
    zone: Zone
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeleteDisk:
    zone: Zone
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeleteSecret:
    name: str
    reason: str


HeadAction = CreateSecret | CreateDisk | InsertHead | DeleteHead | DeleteDisk | DeleteSecret


@dataclass(frozen=True, slots=True)
class HeadPlan:
    """`waits`: why nothing more can be decided now; observe again after a moment."""

    actions: tuple[HeadAction, ...] = ()
    waits: str = ""
    notes: tuple[str, ...] = field(default_factory=tuple)
