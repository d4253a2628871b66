"""All that a plan is made from, and the looking-up in it. Pure; one Scene a pass."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from tpuctl.base.ids import ClusterName, Epoch, IncarnationId, QrName, RunId, Zone
from tpuctl.base.units import Instant, show_duration
from tpuctl.cloud.model import (
    Known,
    Listing,
    Node,
    NodeHealth,
    NodeState,
    QrState,
    QueuedResource,
    Unknown,
    UnrecognisedState,
)
from tpuctl.fleet.model import FleetView, RayTable
from tpuctl.spec.cluster import ClusterSpec, DetectionSpec
from tpuctl.spec.pool import PoolSpec
from tpuctl.store.records import Incarnation, Lease

T = TypeVar("T")

# No effect rests on an observation that is older. The observation's age is taken on the clock that counts suspend: a
# laptop lid or a stopped VM between looking and doing does not hide in it.
FRESH_S = 60.0


@dataclass(frozen=True, slots=True)
class Absent:
    """A complete list does not have it."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """It could not be looked at. Nothing follows."""

    reason: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """Something of that name stands there that is not ours by its labels. Never touched."""

    queued: QueuedResource


@dataclass(frozen=True, slots=True)
class Sight:
    """What this pass sees of one incarnation."""

    queued: QueuedResource | Absent | Unseen | Foreign
    node: Node | Absent | Unseen


@dataclass(frozen=True)  # no slots: what is looked up often is indexed once
class Scene:
    spec: ClusterSpec | None
    wanted: bool
    view: FleetView
    leases: tuple[Lease, ...]
    now: Instant
    monotonic_s: float
    epoch: Epoch
    cluster: ClusterName
    salt: str  # a fresh UUID a pass; request ids are made from it, so that the planner rolls no dice
    beyond_grant: bool = False  # the user goes on after the grant's end
    seen_user: Instant | None = None  # last sign of life of a user
    surveyed: frozenset[Zone] = frozenset()  # zones whose complete list this store has taken in before
    orphans: bool = False  # `down` takes what carries our labels too, although neither records nor spec know it

    def request_id(self, name: QrName, verb: str) -> str:
        """The same within a pass. Never the same in two passes: a name that a lost store lets be used again must not
        meet the service's memory of an earlier request."""
        return str(uuid.uuid5(uuid.UUID(self.salt), f"{verb} {name}"))

    def holder_of(self, name: QrName) -> RunId | None:
        return self._holders.get(name)

    def pool(self, name: str) -> PoolSpec | None:
        return None if self.spec is None else self.spec.pool(name)

    @property
    def drain_reason(self) -> str:
        """Why all slices are to be given back although the spec wants them; "" if they are not."""
        spec = self.spec
        if spec is None:
            return ""
        until = None if spec.grant is None else spec.grant.until
        if until is not None and self.now >= until and not self.beyond_grant:
            return f"the grant ended with {until.plus(-1).iso()[:10]} (UTC); 'tpuctl up --beyond-grant' goes on, billed"
        if spec.ttl_s is not None and self.seen_user is not None and self.now.since(self.seen_user) >= spec.ttl_s:
            ago = show_duration(self.now.since(self.seen_user))
            return f"no command of a user for {ago} (ttl {show_duration(spec.ttl_s)}); 'tpuctl up' goes on"
        return ""

    @property
    def detection(self) -> DetectionSpec:
        return DetectionSpec() if self.spec is None else self.spec.detection

    @property
    def ray(self) -> RayTable | Unseen:
        if isinstance(self.view.ray, Unknown):
            return Unseen(self.view.ray.reason)
        return Unseen("Ray's node table is old") if self._is_stale(self.view.ray) else self.view.ray.value

    def queued_in(self, zone: Zone) -> Listing[QueuedResource] | Unseen:
        for view in self.view.zones:
            if view.zone == zone:
                return self._usable(view.queued_resources, zone, "queued resources")
        return Unseen(f"{zone} was not looked at")

    def nodes_in(self, zone: Zone) -> Listing[Node] | Unseen:
        for view in self.view.zones:
            if view.zone == zone:
                return self._usable(view.nodes, zone, "nodes")
        return Unseen(f"{zone} was not looked at")

    def sees_all_of(self, zone: Zone) -> bool:
        """What is missing from the list of queued resources is absent."""
        listing = self.queued_in(zone)
        return isinstance(listing, Listing) and listing.complete

    def look_at(self, row: Incarnation) -> Sight:
        return Sight(self._queued_of(row), self._node_of(row))

    def identity_of(self, queued: QueuedResource) -> IncarnationId | None:
        """Whose incarnation it is, by its labels alone; None when it is not of this cluster."""
        made = IncarnationId.from_labels(dict(queued.labels))
        return made if made is not None and made.cluster == self.cluster else None

    def _queued_of(self, row: Incarnation) -> QueuedResource | Absent | Unseen | Foreign:
        listing = self.queued_in(row.zone)
        if isinstance(listing, Unseen):
            return listing
        found = self._queued_by_name.get((row.zone, row.name))
        if found is None:
            return Absent() if listing.complete else Unseen(f"the list of {row.zone} is not complete")
        made = self.identity_of(found)
        return found if made is not None and made.qr_name == row.name else Foreign(found)

    def _node_of(self, row: Incarnation) -> Node | Absent | Unseen:
        listing = self.nodes_in(row.zone)
        if isinstance(listing, Unseen):
            return listing
        node = self._nodes_by_name.get((row.zone, row.name))
        # A node of the same name that another queued resource made is not this incarnation's.
        if node is not None and node.queued_resource in (None, row.name):
            return node
        return Absent() if listing.complete else Unseen(f"the list of {row.zone} is not complete")

    @cached_property
    def _holders(self) -> dict[QrName, RunId]:
        return {lease.incarnation: lease.run_id for lease in self.leases}

    @cached_property
    def _queued_by_name(self) -> dict[tuple[Zone, str], QueuedResource]:
        found: dict[tuple[Zone, str], QueuedResource] = {}
        for view in self.view.zones:
            listing = self.queued_in(view.zone)
            for each in listing.items if isinstance(listing, Listing) else ():
                found.setdefault((view.zone, each.name), each)
        return found

    @cached_property
    def _nodes_by_name(self) -> dict[tuple[Zone, str], Node]:
        found: dict[tuple[Zone, str], Node] = {}
        for view in self.view.zones:
            listing = self.nodes_in(view.zone)
            for each in listing.items if isinstance(listing, Listing) else ():
                found.setdefault((view.zone, each.node_id), each)
        return found

    def _usable(self, seen: Known[Listing[T]] | Unknown, zone: Zone, what: str) -> Listing[T] | Unseen:
        if isinstance(seen, Unknown):
            return Unseen(f"the {what} of {zone} could not be listed: {seen.reason}")
        return Unseen(f"the list of {what} of {zone} is old") if self._is_stale(seen) else seen.value

    def _is_stale(self, seen: Known[object]) -> bool:
        return self.monotonic_s - seen.monotonic_s > FRESH_S


def state_text(state: QrState | NodeState | UnrecognisedState) -> str:
    return state.raw if isinstance(state, UnrecognisedState) else state.name


def node_text(node: Node) -> str:
    """`READY`, or `READY, UNHEALTHY_MAINTENANCE` where the service says more."""
    if node.health is None or node.health is NodeHealth.HEALTHY:
        return state_text(node.state)
    health = node.health.raw if isinstance(node.health, UnrecognisedState) else node.health.name
    return f"{state_text(node.state)}, {health}"
