"""What a client remembers, the cheap reading of a cluster's name, and what the head's VM is told."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tpuctl.base.errors import UserError
from tpuctl.base.ids import ClusterName, Zone
from tpuctl.cloud.model import Endpoints
from tpuctl.head.folder import ClusterFolder, KnownHead, cluster_named_in
from tpuctl.head.metadata import head_metadata
from tpuctl.head.model import HeadNames, HeadWant
from tpuctl.head.reach import ReachError, agent_address, check_reach
from tpuctl.hosts.config import parse_config
from tpuctl.spec.cluster import DetectionSpec


def test_nothing_is_known_at_first(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path, "lab")

    assert (folder.token(), folder.head(), folder.last_status()) == ("", None, None)
    assert list(tmp_path.iterdir()) == []


def test_what_was_saved_is_known(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path, "lab")
    folder.save_token("t")
    folder.save_head(KnownHead("z", "n", "10.0.0.2"))
    folder.save_status({"at": "2026-12-01T10:00:00.000Z", "slices": []})

    again = ClusterFolder(tmp_path, "lab")
    assert (again.token(), again.head()) == ("t", KnownHead("z", "n", "10.0.0.2"))
    last = again.last_status()
    assert last is not None
    assert last.at.iso() == "2026-12-01T10:00:00.000Z"
    assert stat.S_IMODE((tmp_path / "clusters/lab/token").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "clusters/lab").stat().st_mode) == 0o700


def test_forgotten_cluster_leaves_nothing(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path, "lab")
    folder.save_token("t")
    folder.forget()
    folder.forget()

    assert list((tmp_path / "clusters").iterdir()) == []


def test_what_a_killed_writer_left_is_forgotten_and_what_a_user_put_there_is_not(tmp_path: Path) -> None:
    folder = ClusterFolder(tmp_path, "lab")
    folder.save_token("t")
    (tmp_path / "clusters/lab/.token.0123456789abcdef.tmp").write_text("t")
    (tmp_path / "clusters/lab/notes.txt").write_text("mine")

    folder.forget()

    assert [path.name for path in (tmp_path / "clusters/lab").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("text", ["", "[]", '{"other": 1}', "{"])
def test_damaged_memory_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    folder = ClusterFolder(tmp_path, "lab")
    folder.save_token("t")
    for name in ("head.json", "last_status.json"):
        (tmp_path / "clusters/lab" / name).write_text(text)

    assert (folder.head(), folder.last_status()) == (None, None)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("version: 1\ncluster: lab\nproject: p\n", "lab"),
        ("cluster: 'lab'   # mine\n", "lab"),
        ('cluster: "my-lab"\r\n', "my-lab"),
        ("pools:\n  - cluster: no\ncluster: lab\n", "lab"),
        # Only the full reader can tell, or refuse, these.
        ("cluster: lab\ncluster: other\n", ""),
        ("{cluster: lab}\n", ""),
        ("cluster: &a lab\n", ""),
        ("cluster:\n  lab\n", ""),
        ("", ""),
    ],
)
def test_cluster_name_is_read_from_its_plain_line_or_left_to_the_full_reader(
    tmp_path: Path, text: str, name: str
) -> None:
    spec = tmp_path / "tpuctl.yaml"
    spec.write_bytes(text.encode())

    assert cluster_named_in(spec) == name


def test_missing_spec_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="TPUCTL_SPEC"):
        cluster_named_in(tmp_path / "none.yaml")


def test_heads_vm_is_told_what_its_daemons_read_and_no_secret() -> None:
    want = HeadWant(HeadNames(ClusterName("lab")), "p", Zone("a"), "e2")

    metadata = head_metadata(
        want,
        Zone("b"),
        endpoints=Endpoints.all_at("http://127.0.0.1:1"),
        detection=DetectionSpec(hold_s=8.0, rejoin_s=20.0),
        digest="0123456789abcdef",
        startup_script="#!/bin/sh",
    )

    config = parse_config(json.loads(metadata["tpuctl-config"]))
    assert (config.role, config.cluster, config.host) == ("head", "lab", None)
    assert (config.head_name, config.head_zone, config.secret) == ("tpuctl-lab-head", "b", "tpuctl-lab-token")
    assert set(metadata) == {"tpuctl-config", "startup-script", "enable-guest-attributes"}


@pytest.mark.parametrize("reach", ["ssh", "iap"])
def test_tunnels_are_refused_by_name(reach: str) -> None:
    with pytest.raises(ReachError, match=f"reach: {reach}.*not there yet"):
        check_reach(reach)
    check_reach("auto")
    check_reach("direct")


def test_agents_address() -> None:
    assert agent_address("10.0.0.2") == "http://10.0.0.2:7578"
    assert agent_address("") == ""
