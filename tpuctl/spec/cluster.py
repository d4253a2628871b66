"""The cluster spec as a frozen model. spec/yaml.py reads it from text with line numbers; nothing here reads files.

Durations are seconds (`_s` in the names of the code; the YAML keys have no suffix and take `90s`, `2h`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tpuctl.base.ids import ClusterName, Zone
from tpuctl.spec.model import Model, Tier, When, plain
from tpuctl.spec.pool import MAX_POOL_SLICES, PoolSpec

Backend = Literal["gcp", "emulator"]
Reach = Literal["auto", "direct", "ssh", "iap"]
MAX_CLUSTER_NAME = 16


class HeadSpec(Model):
    zone: Zone
    machine: str = "e2-standard-4"
    service_account: str = ""
    reach: Reach = "auto"


class GrantEntry(Model):
    zone: Zone
    generation: str  # v2, v3, v4, v5e, v5p, v6e
    tier: Tier
    chips: int = Field(gt=0)


class GrantSpec(Model):
    until: When | None = None  # end of that day, UTC; None = no end known
    entries: tuple[GrantEntry, ...]


class NetworkSpec(Model):
    network: str = "default"
    subnetwork: str = ""
    external_ips: bool = True
    tags: tuple[str, ...] = ()


class DetectionSpec(Model):
    hold_s: float = 25.0  # how long a verdict waits for evidence
    rejoin_s: float = 90.0  # how long a SUSPECT slice may take to come back
    young_s: float | None = 900.0  # one that is lost so soon after READY counts against its place; None: none does


class EndpointSpec(Model):
    """Roots; "" = Google's own."""

    tpu: str = ""
    compute: str = ""
    secretmanager: str = ""
    storage: str = ""


class NotifySpec(Model):
    """Whom to tell. "" = nobody."""

    command: str = ""  # run on the head by a shell, with a JSON document on its input
    webhook: str = ""  # URL; the same document is posted to it


class ClusterSpec(Model):
    version: Literal[1] = 1
    cluster: Annotated[ClusterName, plain(MAX_CLUSTER_NAME)]
    project: str
    backend: Backend = "gcp"
    head: HeadSpec
    endpoints: EndpointSpec = EndpointSpec()
    grant: GrantSpec | None = None  # None: `grant: none`, or absent with the emulator
    network: NetworkSpec = NetworkSpec()
    storage: tuple[tuple[str, str], ...] = ()  # (region prefix, URL); at most one entry until the runs work
    detection: DetectionSpec = DetectionSpec()
    notify: NotifySpec = NotifySpec()
    ttl_s: float | None = None  # without a sign of life of a user for so long, all is given back; None = never
    pools: tuple[PoolSpec, ...]

    def pool(self, name: str) -> PoolSpec | None:
        return next((pool for pool in self.pools if pool.name == name), None)

    def most_slices(self, pool: PoolSpec) -> int:
        """How many slices the pool may ever have. `max: grant`: as many as the granted chips make, if nobody else
        wanted them; what is asked for at a time is the planner's business."""
        if pool.slices.max is not None:
            return pool.slices.max
        entries = () if self.grant is None else self.grant.entries
        most = 0
        for entry in entries:
            sizes = [
                place.accelerator.chips
                for place in pool.places
                if (place.zone, place.accelerator.generation, pool.tier) == (entry.zone, entry.generation, entry.tier)
            ]
            most += entry.chips // min(sizes) if sizes else 0
        return min(most, MAX_POOL_SLICES)
