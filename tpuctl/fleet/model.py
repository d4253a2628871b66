"""What a pass sees and what it decides. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tpuctl.base.ids import PoolName, QrName, SliceName, Zone
from tpuctl.base.units import Instant
from tpuctl.cloud.model import Known, Listing, Node, QueuedResource, Unknown
from tpuctl.spec.pool import PoolSpec
from tpuctl.store.records import Event, Incarnation, ZoneHold


@dataclass(frozen=True, slots=True)
class RayHost:
    """One living node of Ray's table that carries our labels."""

    node_id: str  # Ray's, hex
    slice: SliceName
    incarnation: QrName
    worker: int
    boot_id: str
    address: str
    chips: int  # TPU resource
    draining: bool = False


@dataclass(frozen=True)  # no slots: the index of hosts is kept
class RayTable:
    """Ray's living hosts, at most one a (incarnation, worker), and when this Ray head started."""

    hosts: tuple[RayHost, ...]
    head_since: Instant | None  # None: not known, so nothing missing from the table proves anything

    def workers_of(self, incarnation: QrName) -> frozenset[int]:
        return frozenset(host.worker for host in self.hosts_of(incarnation))

    def hosts_of(self, incarnation: QrName) -> tuple[RayHost, ...]:
        return self._by_incarnation.get(incarnation, ())

    @cached_property
    def _by_incarnation(self) -> dict[QrName, tuple[RayHost, ...]]:
        found: dict[QrName, tuple[RayHost, ...]] = {}
        for host in self.hosts:
            found[host.incarnation] = (*found.get(host.incarnation, ()), host)
        return found


RayView = Known[RayTable] | Unknown


@dataclass(frozen=True, slots=True)
class ZoneView:
    """One list of each kind; each may have failed by itself."""

    zone: Zone
    queued_resources: Known[Listing[QueuedResource]] | Unknown
    nodes: Known[Listing[Node]] | Unknown


@dataclass(frozen=True, slots=True)
class FleetView:
    """All that one pass observed."""

    zones: tuple[ZoneView, ...]
    ray: RayView


@dataclass(frozen=True, slots=True)
class FleetRecords:
    """What the store knows of the fleet."""

    incarnations: tuple[Incarnation, ...]  # all that are not GONE, and the newest GONE ones of each slot
    last_numbers: Mapping[tuple[PoolName, int], int]  # highest n of each slot in this epoch, GONE ones too
    holds: tuple[ZoneHold, ...] = ()
    surveyed: frozenset[Zone] = frozenset()  # zones whose complete list these records have taken in


@dataclass(frozen=True, slots=True)
class Change:
    """A row of the records as it was read (None: new) and as it shall be. Saved only if it still is as it was read."""

    before: Incarnation | None
    after: Incarnation


@dataclass(frozen=True, slots=True)
class Create:
    """Ask for a queued resource, for the first time or again under the same name and request id.

    Precondition: every name in `after` was deleted in this pass (the call was answered), so that its slot never has two
    living queued resources.
    """

    incarnation: Incarnation
    pool: PoolSpec
    after: tuple[QrName, ...]
    reason: str

    def __str__(self) -> str:
        return f"create {self.incarnation.name}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Delete:
    """Precondition: the decision stands in the store, and no lease holds the incarnation unless it is LOST."""

    incarnation: Incarnation
    reason: str

    def __str__(self) -> str:
        return f"delete {self.incarnation.name}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Hold:
    """Nothing is done about `subject`, and why. `is_problem`: the pass is partial because of it (exit 3)."""

    subject: str
    reason: str
    is_problem: bool = False

    def __str__(self) -> str:
        return f"hold {self.subject}: {self.reason}"


Action = Create | Delete | Hold


@dataclass(frozen=True, slots=True)
class Plan:
    changes: tuple[Change, ...] = ()  # saved in one transaction before any action
    actions: tuple[Action, ...] = ()  # deletes, then creates, then holds
    events: tuple[Event, ...] = ()

    @property
    def deletes(self) -> tuple[Delete, ...]:
        return tuple(action for action in self.actions if isinstance(action, Delete))

    @property
    def creates(self) -> tuple[Create, ...]:
        return tuple(action for action in self.actions if isinstance(action, Create))

    @property
    def holds(self) -> tuple[Hold, ...]:
        return tuple(action for action in self.actions if isinstance(action, Hold))

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(str(action) for action in self.actions)
