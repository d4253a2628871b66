from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tpuctl.hosts.config import ConfigError, VmPlaces, parse_config

# The example of docs/architecture.md is read from there, so that page and code cannot part.
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def the_documented_attribute() -> dict[str, Any]:
    section = PAGE.read_text().split("## What a VM knows")[1]
    document: dict[str, Any] = json.loads(section.split("```json")[1].split("```")[0])
    document["endpoints"] = dict.fromkeys(("tpu", "compute", "secretmanager", "storage"), "http://127.0.0.1:1")
    return document


def test_the_documented_attribute_is_read() -> None:
    config = parse_config(the_documented_attribute())

    assert (config.role, config.cluster, config.secret, config.agent_port) == ("host", "lab", "tpuctl-lab-token", 7578)
    assert config.ray_ports == (20000, 32000)
    assert config.detection.hold_s == 25.0
    assert config.host is not None
    assert (config.host.slice, config.host.hosts, config.host.chips_per_host) == ("v4-0", 2, 4)


def test_a_head_has_no_host() -> None:
    document = the_documented_attribute() | {"role": "head"}
    del document["host"]

    assert parse_config(document).host is None


@pytest.mark.parametrize("key", ["cluster", "head", "secret", "agent_port", "ray_ports", "detection", "endpoints"])
def test_a_missing_key_is_named(key: str) -> None:
    document = the_documented_attribute()
    del document[key]

    with pytest.raises(ConfigError, match=key):
        parse_config(document)


def test_another_version_a_host_without_host_and_other_things_are_refused() -> None:
    with pytest.raises(ConfigError, match="version 2"):
        parse_config(the_documented_attribute() | {"version": 2})
    with pytest.raises(ConfigError, match="no `host`"):
        parse_config(the_documented_attribute() | {"host": None})
    with pytest.raises(ConfigError, match="list"):
        parse_config([])


def test_places_follow_the_units_variable_then_home_then_opt() -> None:
    assert VmPlaces.from_environment({"TPUCTL_VM_DIR": "/x/t", "HOME": "/h"}) == VmPlaces(Path("/x/t"), Path("/h"))
    assert VmPlaces.from_environment({"HOME": "/h"}).prefix == Path("/h/tpuctl")
    assert VmPlaces.from_environment({}).prefix == Path("/opt/tpuctl")


def test_a_config_that_is_absent_or_torn_says_what_to_do(tmp_path: Path) -> None:
    places = VmPlaces(tmp_path, tmp_path)
    with pytest.raises(ConfigError, match="startup script has not run"):
        places.read_config()

    places.config.write_text('{"version": 1')

    with pytest.raises(ConfigError, match="run the startup script again"):
        places.read_config()
