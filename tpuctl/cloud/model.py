"""What the Cloud TPU, Compute and Secret Manager services tell us, in our types.

States are those of google-cloud-tpu 1.28, tpu_v2. A number or word that the client does not know becomes
UnrecognisedState and never a crash; 0 (STATE_UNSPECIFIED) is unrecognised too, because an unknown enum *string* is
silently read as 0 by the client over REST. Unrecognised means: keep, wait, warn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, Protocol, TypeVar

from tpuctl.base.ids import QrName, Zone
from tpuctl.base.units import Instant

T = TypeVar("T", covariant=True)


class QrState(Enum):
    CREATING = 1
    ACCEPTED = 2
    PROVISIONING = 3
    FAILED = 4
    DELETING = 5
    ACTIVE = 6
    SUSPENDING = 7
    SUSPENDED = 8
    WAITING_FOR_RESOURCES = 9


class NodeState(Enum):
    CREATING = 1
    READY = 2
    RESTARTING = 3
    REIMAGING = 4
    DELETING = 5
    REPAIRING = 6
    STOPPED = 8
    STOPPING = 9
    STARTING = 10
    PREEMPTED = 11
    TERMINATED = 12
    HIDING = 13
    HIDDEN = 14
    UNHIDING = 15
    UNKNOWN = 16


class NodeHealth(Enum):
    HEALTHY = 1
    TIMEOUT = 3
    UNHEALTHY_TENSORFLOW = 4
    UNHEALTHY_MAINTENANCE = 5


class Initiator(Enum):
    USER = 1
    SERVICE = 2


@dataclass(frozen=True, slots=True)
class UnrecognisedState:
    """What the service said, as text (`99`, `STATE_UNSPECIFIED`)."""

    raw: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the service ended a queued resource. `kind`: `expired` (its window is over), the kind of refusal that its
    words mean (cloud/effects.py), or "" when it gave no reason. `words`: for people."""

    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class QueuedResource:
    name: QrName  # last segment of the full name
    zone: Zone
    state: QrState | UnrecognisedState
    initiator: Initiator | None = None
    node_ids: tuple[str, ...] = ()
    accelerator_type: str = ""
    runtime_version: str = ""
    spot: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)  # of its first node spec: the QR itself has none
    created: Instant | None = None
    error: str | None = None  # failed_data.error, when FAILED
    failure: Failure | None = None  # the same with its meaning
    reserved: bool = False

    @property
    def tier(self) -> str:
        return "spot" if self.spot else "reserved" if self.reserved else "on-demand"


@dataclass(frozen=True, slots=True)
class Node:
    node_id: str  # last segment of the full name
    zone: Zone
    state: NodeState | UnrecognisedState
    health: NodeHealth | UnrecognisedState | None = None  # None: the service said nothing, which is usual
    health_description: str = ""
    queued_resource: QrName | None = None
    accelerator_type: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    addresses: tuple[str, ...] = ()  # internal, by worker index
    created: Instant | None = None


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A list answer with all its pages. `complete` is False when the service named places it could not read:
    then what is missing from `items` is unknown, not absent."""

    items: tuple[T, ...]
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """An observation that succeeded, begun at `at` and at `monotonic_s` on the clock that counts suspend."""

    value: T
    at: Instant
    monotonic_s: float


@dataclass(frozen=True, slots=True)
class Unknown:
    """An observation that failed; `reason` is for people. Nothing is created, deleted or restarted on ground of it."""

    reason: str


@dataclass(frozen=True, slots=True)
class QrRequest:
    """One slice to ask for. Node id and QR id are the same."""

    name: QrName
    zone: Zone
    accelerator_type: str
    runtime_version: str
    labels: Mapping[str, str]
    metadata: Mapping[str, str]
    tier: str = "spot"  # spot, on-demand or reserved
    reservation: str = ""  # of tier reserved: name or path; "" = any of the project
    valid_after: Instant | None = None  # not to be fulfilled before
    valid_until: Instant | None = None  # nor after
    data_disks: tuple[tuple[str, bool], ...] = ()  # (name or path, read-only)
    network: str = "default"
    subnetwork: str = ""
    external_ips: bool = True
    tags: tuple[str, ...] = ()
    service_account: str = ""


class TpuApi(Protocol):
    """Cloud TPU v2. Every call has a time limit and raises only tpuctl.cloud.errors.CloudError and its kinds."""

    def list_queued_resources(self, zone: Zone) -> Listing[QueuedResource]: ...

    def list_nodes(self, zone: Zone) -> Listing[Node]: ...

    def get_queued_resource(self, zone: Zone, name: QrName) -> QueuedResource:
        """Raises NotFoundError."""
        ...

    def get_node(self, zone: Zone, node_id: str) -> Node:
        """Raises NotFoundError."""
        ...

    def create_queued_resource(self, request: QrRequest, request_id: str) -> None:
        """Returns when the service took the request; never waits for the operation. Raises AlreadyExistsError."""
        ...

    def delete_queued_resource(self, zone: Zone, name: QrName, request_id: str) -> None:
        """With force. Returns when the service has begun. Raises NotFoundError when it is gone."""
        ...


@dataclass(frozen=True, slots=True)
class Instance:
    """A Compute Engine VM."""

    name: str
    zone: Zone
    status: str  # RUNNING, TERMINATED, …
    address: str  # internal
    created: Instant
    labels: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InstanceRequest:
    """The head VM: on-demand, with a data disk that is made before and outlives it."""

    name: str
    zone: Zone
    machine: str
    labels: Mapping[str, str]
    metadata: Mapping[str, str]
    data_disk: str  # name of an existing disk in the zone; attached as device `tpuctl-data`, auto-delete off
    network: str = "default"
    subnetwork: str = ""
    external_ip: bool = True
    tags: tuple[str, ...] = ()
    service_account: str = ""


class ComputeApi(Protocol):
    """Compute v1 as far as the head needs it. insert and delete wait for their operation, within the call's limit."""

    def find_instances(self, label: str, value: str) -> Listing[Instance]:
        """In every zone of the project."""
        ...

    def get_instance(self, zone: Zone, name: str) -> Instance:
        """Raises NotFoundError."""
        ...

    def insert_instance(self, request: InstanceRequest, request_id: str) -> None:
        """Raises AlreadyExistsError when the name is taken: that is the lock on being the head."""
        ...

    def delete_instance(self, zone: Zone, name: str, request_id: str) -> None:
        """Raises NotFoundError."""
        ...

    def insert_disk(self, zone: Zone, name: str, size_gb: int, labels: Mapping[str, str], request_id: str) -> None:
        """Raises AlreadyExistsError."""
        ...

    def find_disks(self, label: str, value: str) -> Listing[tuple[Zone, str]]: ...

    def delete_disk(self, zone: Zone, name: str, request_id: str) -> None:
        """Raises NotFoundError."""
        ...


class SecretApi(Protocol):
    """Secret Manager v1's few calls. A secret's value appears in no error and no log."""

    def create_secret(self, name: str, value: str, labels: Mapping[str, str]) -> None:
        """The secret and its first version. Raises AlreadyExistsError (and then adds no version)."""
        ...

    def read_secret(self, name: str) -> str:
        """The latest version. Raises NotFoundError."""
        ...

    def has_secret(self, name: str) -> bool:
        """Whether there is such a secret, with or without a version."""
        ...

    def delete_secret(self, name: str) -> None:
        """Raises NotFoundError."""
        ...


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Roots of the services, e.g. https://tpu.googleapis.com or http://127.0.0.1:8080, without a trailing slash."""

    tpu: str = "https://tpu.googleapis.com"
    compute: str = "https://compute.googleapis.com"
    secretmanager: str = "https://secretmanager.googleapis.com"
    storage: str = "https://storage.googleapis.com"

    @classmethod
    def all_at(cls, root: str) -> Endpoints:
        root = root.rstrip("/")
        return cls(root, root, root, root)
