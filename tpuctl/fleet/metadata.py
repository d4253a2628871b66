"""The metadata of a slice's hosts: `tpuctl-config` (docs/architecture.md) and the startup script. No secret."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from tpuctl.base.ids import ClusterName, Zone
from tpuctl.cloud.model import Endpoints
from tpuctl.spec.accelerators import accelerator
from tpuctl.spec.cluster import DetectionSpec
from tpuctl.store.records import Incarnation

NodeMetadata = Callable[[Incarnation], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class HostWorld:
    """What every host of the cluster is told, whatever its slice."""

    cluster: ClusterName
    project: str
    endpoints: Endpoints
    head_name: str
    head_zone: Zone
    secret: str  # name of the secret, not its value
    agent_port: int
    ray_ports: tuple[int, int]
    digest: str  # of tpuctl's own source
    detection: DetectionSpec
    startup_script: str


def node_metadata(world: HostWorld) -> NodeMetadata:
    """The builder of each slice's attributes."""
    return lambda row: {
        "tpuctl-config": json.dumps(host_config(world, row), sort_keys=True),
        "startup-script": world.startup_script,
        "enable-guest-attributes": "TRUE",
    }


def host_config(world: HostWorld, row: Incarnation) -> dict[str, object]:
    return {
        "version": 1,
        "role": "host",
        "cluster": world.cluster,
        "project": world.project,
        "endpoints": asdict(world.endpoints),
        "head": {"name": world.head_name, "zone": world.head_zone},
        "secret": world.secret,
        "agent_port": world.agent_port,
        "ray_ports": list(world.ray_ports),
        "digest": world.digest,
        "detection": {"hold_s": world.detection.hold_s, "rejoin_s": world.detection.rejoin_s},
        "host": {
            "pool": row.pool,
            "slot": row.slot,
            "epoch": row.epoch,
            "incarnation": row.name,
            "slice": row.slice_name,
            "zone": row.zone,
            "accelerator": row.accelerator,
            "hosts": row.hosts,
            "chips_per_host": accelerator(row.accelerator).chips_per_host,
        },
    }
