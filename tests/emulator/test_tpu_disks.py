"""Data disks of TPU nodes: which may be named, who holds them, and when they are free again."""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.emulator.events import VmStart
from tpuctl.testing.core_driver import PARENT, ZONE, Driver, a_driver

DISKS = f"/compute/v1/projects/lab/zones/{ZONE}/disks"
PATH = f"projects/lab/zones/{ZONE}/disks/data"


@pytest.fixture
def driver() -> Driver:
    driver = a_driver()
    status, _ = driver.call("POST", DISKS, {"name": "data", "sizeGb": "100"})
    assert status == 200
    driver.pass_time(10)
    return driver


def create(driver: Driver, name: str, kind: str = "v4-8", **disk: Any) -> tuple[int, str]:
    status, body = driver.create_node(name, kind, dataDisks=[{"sourceDisk": PATH} | disk])
    return status, body.get("error", {}).get("message", "")


def test_disk_of_a_node_is_on_its_machines_and_cannot_be_deleted(driver: Driver) -> None:
    assert create(driver, "n")[0] == 200
    driver.pass_time(60)
    (start,) = [event for event in driver.events if isinstance(event, VmStart)]
    assert start.vm.disks == ("persistent-disk-1",)
    assert start.vm.disk_of_device["persistent-disk-1"].startswith("data-")
    _, node = driver.call("GET", f"{PARENT}/nodes/n")
    assert node["dataDisks"] == [{"sourceDisk": PATH}]

    status, body = driver.call("DELETE", f"{DISKS}/data")
    assert status == 400
    assert "is already being used by" in body["error"]["message"]
    driver.call("DELETE", f"{PARENT}/nodes/n")
    driver.pass_time(60)
    assert driver.call("DELETE", f"{DISKS}/data")[0] == 200


def test_written_disk_has_one_holder_and_a_read_one_many(driver: Driver) -> None:
    assert create(driver, "a", mode="READ_ONLY")[0] == 200
    assert create(driver, "b", "v4-16", mode="READ_ONLY")[0] == 200
    status, text = create(driver, "c")
    assert status == 400
    assert f"'{PATH}' is already being used by" in text


@pytest.mark.parametrize(
    ("kind", "disk", "status", "text"),
    [
        ("v4-16", {}, 400, "in READ_ONLY mode only"),
        ("v4-8", {"sourceDisk": f"projects/lab/zones/{ZONE}/disks/other"}, 404, "was not found"),
        ("v4-8", {"sourceDisk": "projects/lab/zones/us-east1-d/disks/data"}, 400, "is not in the zone of the node"),
        ("v4-8", {"sourceDisk": "data"}, 400, "must be projects/<project>"),
        ("v4-8", {"mode": "APPEND"}, 400, "disk mode"),
    ],
)
def test_disks_that_cannot_be_had_are_refused(
    driver: Driver, kind: str, disk: dict[str, Any], status: int, text: str
) -> None:
    answer = create(driver, "n", kind, **disk)
    assert answer[0] == status
    assert text in answer[1]
    assert driver.node_state("n") == "HTTP 404"


def test_several_slices_of_one_request_cannot_write_one_disk(driver: Driver) -> None:
    node = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-vm-base", "dataDisks": [{"sourceDisk": PATH}]}
    spec = {"multisliceParams": {"nodeCount": 2}, "node": node}
    status, body = driver.create("q", tpu={"nodeSpec": [spec]})
    assert status == 400
    assert "in READ_ONLY mode only" in body["error"]["message"]


def test_disk_is_attached_and_detached_by_an_update(driver: Driver) -> None:
    driver.create_node("n")
    driver.pass_time(60)
    url = f"{PARENT}/nodes/n?updateMask=data_disks"
    assert driver.call("PATCH", url, {"dataDisks": [{"sourceDisk": PATH, "mode": "READ_WRITE"}]})[0] == 200
    assert driver.call("DELETE", f"{DISKS}/data")[0] == 400
    assert driver.call("PATCH", url, {"dataDisks": []})[0] == 200
    assert driver.call("DELETE", f"{DISKS}/data")[0] == 200
