"""What a client remembers, the cheap reading of a cluster's name, and what the head's VM is told."""

from __future__ import annotations

import errno
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


@pytest.mark.parametrize("damage", [b"\xff\xfe", b"two words", "tök".encode(), b"a\nb"])
def test_damaged_token_is_as_good_as_none(tmp_path: Path, damage: bytes) -> None:
    folder = ClusterFolder(tmp_path, "lab")
    folder.save_token("t")
    (tmp_path / "clusters/lab/token").write_bytes(damage)

    assert folder.token() == ""


@pytest.mark.parametrize("address", [5, None, "10.0.0.2\r\nX: y"])
def test_damaged_address_is_as_good_as_none(tmp_path: Path, address: object) -> None:
    folder = ClusterFolder(tmp_path, "lab")
    folder.save_token("t")
    (tmp_path / "clusters/lab/head.json").write_text(json.dumps({"zone": "z", "name": "n", "address": address}))

    assert folder.head() is None


def test_home_that_is_no_directory_costs_nothing_but_memory(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    said: list[str] = []
    folder = ClusterFolder(tmp_path / "home", "lab", said.append)

    folder.save_token("t")
    folder.save_head(KnownHead("z", "n", "10.0.0.2"))
    folder.save_status({})
    assert (folder.token(), folder.head(), folder.last_status()) == ("", None, None)
    folder.forget()

    assert all("Not a directory" in text for text in said)
    assert len(said) >= 3


def test_full_disk_costs_nothing_but_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tpuctl.head.folder.write_atomic", full)
    said: list[str] = []

    ClusterFolder(tmp_path, "lab", said.append).save_token("t")

    assert "No space left on device; the next command looks again" in said[0]


def test_forgetting_leaves_a_strangers_file_and_removes_halves_of_ours(tmp_path: Path) -> None:
    said: list[str] = []
    folder = ClusterFolder(tmp_path, "lab", said.append)
    folder.save_token("t")
    (tmp_path / "clusters/lab/.token.0123456789abcdef.tmp").write_text("t")
    (tmp_path / "clusters/lab/notes").write_text("mine")

    folder.forget()

    assert [path.name for path in (tmp_path / "clusters/lab").iterdir()] == ["notes"]
    assert "could not be removed: Directory not empty" in said[0]
