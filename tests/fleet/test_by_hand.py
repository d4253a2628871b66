"""What somebody changed by hand, with pu, gcloud or a plain call, is seen and healed; what is foreign is left alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.emulator import foreign_tools
from tpuctl.base.ids import ClusterName, IncarnationId
from tpuctl.emulator.wire import Request
from tpuctl.testing.builders import EPOCH, POOL, ZONE
from tpuctl.testing.fleet_world import FleetWorld
from tpuctl.testing.served import served

PROJECT = "test-project"
PARENT = f"/v2/projects/{PROJECT}/locations/{ZONE}"
ByHand = Callable[[FleetWorld, str], None]


def call(world: FleetWorld, method: str, path: str) -> None:
    response = world.emulated.exchange(Request.from_url(method, f"{PARENT}/{path}", {}, b""), None)
    assert response.status == 200, response.body
    world.emulated.cloud.calls.pop()  # the log is of our calls


def node_deleted(world: FleetWorld, name: str) -> None:
    call(world, "DELETE", f"nodes/{name}")


def queued_resource_deleted(world: FleetWorld, name: str) -> None:
    call(world, "DELETE", f"queuedResources/{name}?force=true")


@pytest.mark.parametrize("by_hand", [node_deleted, queued_resource_deleted])
def test_slice_deleted_by_hand_is_replaced_once(tmp_path: Path, by_hand: ByHand) -> None:
    world = FleetWorld(tmp_path)
    world.settle()
    before = world.row().name
    by_hand(world, before)
    world.settle()

    after = world.row().name
    assert after != before
    assert world.states() == {after: "ACTIVE"}
    world.check_safety()


def test_slice_reset_by_hand_is_kept(tmp_path: Path) -> None:
    world = FleetWorld(tmp_path)
    world.settle()
    before = world.row().name
    call(world, "POST", f"queuedResources/{before}:reset")
    world.settle()
    assert world.states() == {before: "ACTIVE"}


def test_what_another_cluster_made_in_the_same_project_is_neither_adopted_nor_deleted(tmp_path: Path) -> None:
    theirs = IncarnationId(ClusterName("lab2"), POOL, 0, EPOCH, 1)
    world = FleetWorld(tmp_path)
    world.foreign(theirs.qr_name, labels=theirs.labels)
    world.settle()
    world.lose_store()
    world.settle()
    assert [row.name for row in world.rows()] == [f"lab-v4-0-{EPOCH}-1"]

    world.want_nothing()
    world.settle()
    assert world.states() == {theirs.qr_name: "ACTIVE"}
    world.check_safety()


def with_pu(url: str, directory: Path, name: str) -> Mapping[str, int]:
    zone = ("--zone", ZONE)
    foreign = foreign_tools.pu(
        url, directory, "create", "mine", *zone, "-a", "v4-8", "-y", "--async", project=PROJECT
    )  # fmt: skip
    deleted = foreign_tools.pu(url, directory, "delete", name, *zone, "-y", project=PROJECT)
    return {foreign.stderr: foreign.returncode, deleted.stderr: deleted.returncode}


def with_gcloud(url: str, directory: Path, name: str) -> Mapping[str, int]:
    tpus = ("compute", "tpus", "tpu-vm")
    kind = ("--accelerator-type", "v4-8", "--version", "tpu-ubuntu2204-base")
    foreign = foreign_tools.gcloud(
        url, directory, *tpus, "create", "mine", "--zone", ZONE, *kind, "--spot", project=PROJECT
    )  # fmt: skip
    deleted = foreign_tools.gcloud(url, directory, *tpus, "delete", name, "--zone", ZONE, project=PROJECT)
    return {foreign.stderr: foreign.returncode, deleted.stderr: deleted.returncode}


@pytest.mark.parametrize(
    "tool",
    [pytest.param(with_pu, marks=pytest.mark.slow), pytest.param(with_gcloud, marks=pytest.mark.gcloud)],
)
def test_what_a_foreign_tool_deletes_is_healed_and_what_it_makes_is_left_alone(
    tmp_path: Path, tool: Callable[[str, Path, str], Mapping[str, int]]
) -> None:
    world = FleetWorld(tmp_path)
    world.settle()
    before = world.row().name
    with served(world.emulated, step_s=5) as url:
        codes = tool(url, tmp_path, before)
    assert set(codes.values()) == {0}, codes
    world.emulated.cloud.calls.clear()  # the log is of our calls
    world.settle()

    after = world.row().name
    assert after != before
    assert world.states() == {after: "ACTIVE"}
    nodes = {node.node_id: node.state for node in world.emulated.cloud.tpu.life.nodes.values()}
    assert nodes == {after: "READY", "mine": "READY"}
    world.check_safety()
