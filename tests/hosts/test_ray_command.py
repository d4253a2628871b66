from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tpuctl.base.errors import BugError
from tpuctl.base.ids import QrName
from tpuctl.hosts.config import HostConfig, VmConfig, VmPlaces, parse_config
from tpuctl.hosts.identity import HostIdentity
from tpuctl.hosts.ports import RayPorts
from tpuctl.hosts.probe import Versions, why_other_versions
from tpuctl.hosts.ray_command import (
    head_arguments,
    head_environment,
    host_arguments,
    host_environment,
    host_labels,
    ray_environment,
)
from tpuctl.hosts.ray_node import MAX_PAUSE_S, pause_after

PLACES = VmPlaces(Path("/opt/tpuctl"), Path("/root"))


def a_config(**changes: Any) -> VmConfig:
    return parse_config(
        {
            "version": 1,
            "role": "host",
            "cluster": "lab",
            "project": "p",
            "endpoints": {},
            "head": {"name": "tpuctl-lab-head", "zone": "us-central1-a"},
            "secret": "tpuctl-lab-token",
            "agent_port": 7578,
            "ray_ports": [20000, 32000],
            "digest": "",
            "detection": {"hold_s": 25.0, "rejoin_s": 90.0},
            "host": {
                "pool": "v4", "slot": 0, "epoch": "t6m8gb", "incarnation": "lab-v4-0-t6m8gb-1", "slice": "v4-0",
                "zone": "us-central2-b", "accelerator": "v4-16", "hosts": 2, "chips_per_host": 4,
            },
        }
        | changes
    )  # fmt: skip


def a_host(config: VmConfig) -> HostIdentity:
    assert config.host is not None
    return HostIdentity(config.host, 1, "0fc57ab3-f60c-4380-83d5-be77274414dd-262964", "10.0.0.3")


def test_a_host_s_command_leaves_nothing_for_ray_to_guess() -> None:
    config = a_config()
    arguments = host_arguments(config, a_host(config), "10.0.0.2:20000", RayPorts(20300), PLACES, cpus=240)

    assert arguments[:2] == ("start", "--block")
    assert "--address=10.0.0.2:20000" in arguments
    assert "--node-ip-address=10.0.0.3" in arguments
    assert '--resources={"TPU": 4}' in arguments
    assert "--num-cpus=32" in arguments  # not more workers than the block has ports
    ports = [int(argument.rpartition("=")[2]) for argument in arguments if "-port=" in argument]
    assert len(ports) == 8
    assert all(20300 <= port < 20400 for port in ports)


def test_the_head_has_no_cpus_for_programs_and_shows_its_dashboard_to_hosts() -> None:
    arguments = head_arguments("10.0.0.2", RayPorts(20000), PLACES)

    assert {"--head", "--num-cpus=0", "--port=20000", "--dashboard-host=10.0.0.2"} <= set(arguments)
    assert not [argument for argument in arguments if argument.startswith("--labels")]


def test_a_label_that_ray_would_refuse_is_a_bug_of_ours() -> None:
    config = a_config()
    identity = a_host(config)
    host: HostConfig = replace(identity.config, incarnation=QrName("-x"))

    with pytest.raises(BugError, match="tpuctl/incarnation"):
        host_labels(config, replace(identity, config=host))


def test_another_ray_s_settings_are_not_inherited_and_the_token_is_only_a_path() -> None:
    environment = ray_environment(
        {"PATH": "/bin", "RAY_ADDRESS": "elsewhere:6379", "RAY_AUTH_MODE": "disabled"},
        PLACES,
        "TPUCTL_RAY_OF=/opt/tpuctl",
    )

    assert "RAY_ADDRESS" not in environment
    assert (environment["RAY_AUTH_MODE"], environment["RAY_AUTH_TOKEN_PATH"]) == ("token", "/opt/tpuctl/token")
    assert environment["PATH"] == "/bin"
    assert environment["TPUCTL_RAY_OF"] == "/opt/tpuctl"


def test_the_head_probes_as_detection_says_and_hosts_have_the_patience_of_it() -> None:
    detection = a_config().detection
    head, host = head_environment({}, detection), host_environment({}, detection)

    assert (head["RAY_health_check_period_ms"], head["RAY_health_check_timeout_ms"]) == ("2000", "3000")
    assert head["RAY_health_check_failure_threshold"] == "4"
    assert host["RAY_gcs_rpc_server_reconnect_timeout_s"] == "15"
    assert host["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"] == "25"


def test_the_pause_grows_with_failures_and_has_a_limit() -> None:
    assert [pause_after(n) for n in range(4)] == [0.0, 1.0, 2.0, 4.0]
    assert pause_after(50) == MAX_PAUSE_S


def test_versions_that_differ_in_the_patch_are_told_on_both_sides() -> None:
    assert why_other_versions(Versions("2.60.0", "3.11.7"), Versions("2.60.0", "3.11.7")) is None
    why = why_other_versions(Versions("2.60.0", "3.11.7"), Versions("2.60.0", "3.11.9"))
    assert why is not None
    assert "3.11.7" in why
    assert "3.11.9" in why
