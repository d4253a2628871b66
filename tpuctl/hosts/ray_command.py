"""The command lines and environments of `ray start`, for the head and for hosts. Pure.

Everything that Ray would detect or choose by itself is given: TPU count, ports, address, labels, token mode. So an
emulated VM and a real one get the same node, and no two nodes on one machine meet on a port.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from tpuctl.base.errors import BugError
from tpuctl.hosts.config import VmConfig, VmPlaces
from tpuctl.hosts.detection import Detection
from tpuctl.hosts.identity import HostIdentity
from tpuctl.hosts.ports import RayPorts

# Programs exchange data through files and their own sockets; Ray moves only our small calls.
OBJECT_STORE_BYTES = 100_000_000
# Ray starts up to one idle worker a CPU and each takes one port of the block; programs are not limited by this number.
MAX_CPUS = 32
# Of the 30 s between soft-off and hard-off; TimeoutStopSec of the unit is 28.
DRAIN_S = 25

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def host_labels(config: VmConfig, identity: HostIdentity) -> dict[str, str]:
    """The labels by which agent and supervisor find this host (docs/architecture.md, the view of Ray's nodes)."""
    labels = {
        "tpuctl/cluster": config.cluster,
        "tpuctl/slice": identity.config.slice,
        "tpuctl/incarnation": identity.config.incarnation,
        "tpuctl/worker": str(identity.worker),
        "tpuctl/boot": identity.boot_id,
        "tpuctl/chips": str(identity.config.chips_per_host),
    }
    for key, value in labels.items():
        if not _LABEL_VALUE.fullmatch(value):
            raise BugError(f"{key}={value!r} cannot be a label of Ray")
    return labels


def host_arguments(
    config: VmConfig, identity: HostIdentity, ray_address: str, ports: RayPorts, places: VmPlaces, cpus: int
) -> tuple[str, ...]:
    labels = ",".join(f"{key}={value}" for key, value in host_labels(config, identity).items())
    return (
        "start",
        "--block",
        f"--address={ray_address}",
        f"--num-cpus={max(1, min(cpus, MAX_CPUS))}",
        f"--resources={json.dumps({'TPU': identity.config.chips_per_host})}",
        f"--labels={labels}",
        *_common(identity.address, ports, places),
    )


def head_arguments(address: str, ports: RayPorts, places: VmPlaces) -> tuple[str, ...]:
    return (
        "start",
        "--head",
        "--block",
        f"--port={ports.gcs}",
        "--num-cpus=0",
        f"--dashboard-host={address}",
        f"--dashboard-port={ports.dashboard}",
        f"--ray-client-server-port={ports.client_server}",
        "--no-monitor",  # the autoscaler's process: slices come from the fleet's pass, and it costs 50 MB
        *_common(address, ports, places),
    )


def _common(address: str, ports: RayPorts, places: VmPlaces) -> tuple[str, ...]:
    first_worker, last_worker = ports.workers
    return (
        f"--node-ip-address={address}",
        f"--node-manager-port={ports.node_manager}",
        f"--object-manager-port={ports.object_manager}",
        f"--runtime-env-agent-port={ports.runtime_env_agent}",
        f"--dashboard-agent-listen-port={ports.dashboard_agent_listen}",
        f"--dashboard-agent-grpc-port={ports.dashboard_agent_grpc}",
        f"--metrics-export-port={ports.metrics_export}",
        f"--min-worker-port={first_worker}",
        f"--max-worker-port={last_worker}",
        f"--object-store-memory={OBJECT_STORE_BYTES}",
        f"--temp-dir={places.ray}",
        "--disable-usage-stats",
        # Programs' output is copied by their supervisor; Ray's own copier costs 45 MB a host.
        "--include-log-monitor=false",
    )


def ray_environment(inherited: Mapping[str, str], places: VmPlaces, mark: str) -> dict[str, str]:
    """What Ray's processes get on every VM: the VM's own environment, nothing of another Ray's, and our settings."""
    kept = {name: value for name, value in inherited.items() if not name.startswith("RAY_")}
    name, _, value = mark.partition("=")
    return kept | {
        name: value,
        "TPUCTL_VM_DIR": str(places.prefix),
        # Never left to a ~/.ray/auth_token that some ray.init() made: it would switch token auth on by itself.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(places.token),
        "RAY_worker_niceness": "0",
        # A TPU program owns the host's memory; Ray must not choose whom to kill.
        "RAY_memory_monitor_refresh_ms": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def host_environment(base: Mapping[str, str], detection: Detection) -> dict[str, str]:
    """A host's own patience with the head, and how long a notice leaves for checkpoints."""
    return {
        **base,
        "RAY_gcs_rpc_server_reconnect_timeout_s": str(detection.reconnect_s),
        "RAY_raylet_liveness_self_check_interval_ms": str(detection.self_check_ms),
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": str(DRAIN_S),
    }


def head_environment(base: Mapping[str, str], detection: Detection) -> dict[str, str]:
    """The health checks: the head does the probing. It does not drain itself: its end ends everything anyhow."""
    return {
        **base,
        "RAY_health_check_period_ms": str(detection.health_period_ms),
        "RAY_health_check_initial_delay_ms": str(detection.health_period_ms),
        "RAY_health_check_timeout_ms": str(detection.timeout_ms),
        "RAY_health_check_failure_threshold": str(detection.threshold),
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    }
