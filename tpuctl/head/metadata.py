"""The head VM's metadata: `tpuctl-config` and the startup script. It holds no secret."""

from __future__ import annotations

import json
from dataclasses import asdict

from tpuctl.base.ids import Zone
from tpuctl.cloud.model import Endpoints
from tpuctl.head.model import RAY_PORTS, HeadWant
from tpuctl.head.reach import AGENT_PORT
from tpuctl.spec.cluster import DetectionSpec


def head_metadata(
    want: HeadWant,
    zone: Zone,
    *,
    endpoints: Endpoints,
    detection: DetectionSpec,
    digest: str,
    startup_script: str,
) -> dict[str, str]:
    """For a head in `zone`. `digest` is that of tpuctl's own source: a VM with other code fetches it anew."""
    config = {
        "version": 1,
        "role": "head",
        "cluster": want.names.cluster,
        "project": want.project,
        "endpoints": asdict(endpoints),
        "head": {"name": want.names.head, "zone": zone},
        "secret": want.names.secret,
        "agent_port": AGENT_PORT,
        "ray_ports": list(RAY_PORTS),
        "digest": digest,
        "detection": {"hold_s": detection.hold_s, "rejoin_s": detection.rejoin_s},
    }
    return {
        "tpuctl-config": json.dumps(config, sort_keys=True),
        "startup-script": startup_script,
        "enable-guest-attributes": "TRUE",
    }
