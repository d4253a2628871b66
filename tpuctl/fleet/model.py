"""What a pass sees and what it decides. Data only."""

from __future__ import annotations

from dataclasses import dataclass

from tpuctl.base.ids import QrName, SliceName, Zone
from tpuctl.base.units import Instant
from tpuctl.cloud.model import Known, Listing, Node, QueuedResource, Unknown


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


@dataclass(frozen=True, slots=True)
class RayTable:
    """Ray's living hosts, at most one a (incarnation, worker), and when this Ray head started."""

    hosts: tuple[RayHost, ...]
    head_since: Instant | None  # None: not known, so nothing missing from the table proves anything

    def workers_of(self, incarnation: QrName) -> frozenset[int]:
        return frozenset(host.worker for host in self.hosts if host.incarnation == incarnation)


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
