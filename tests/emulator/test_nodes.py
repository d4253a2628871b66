"""Nodes without a queued resource: made, stopped, started, changed, lost; and queued resources that are reset."""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.emulator.events import VmReset, VmStart
from tpuctl.testing.core_driver import PARENT, ZONE, Driver, a_driver

SPOT: dict[str, Any] = {"schedulingConfig": {"spot": True}}


def ready(driver: Driver, name: str, kind: str = "v4-8", **fields: Any) -> None:
    status, answer = driver.create_node(name, kind, **fields)
    assert status == 200, answer
    driver.pass_time(60)
    assert driver.node_state(name) == "READY"


def post(driver: Driver, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
    return driver.call("POST", f"{PARENT}/{path}", body or {})


def test_node_is_creating_at_once_and_its_operation_ends_when_it_is_ready(driver: Driver) -> None:
    _, begun = driver.create_node("n", "v4-16", labels={"a": "b"})
    assert (begun["done"], begun["metadata"]["verb"]) == (False, "create")
    assert driver.node_state("n") == "CREATING"
    driver.pass_time(60)

    ended = driver.operation(begun["name"])
    assert ended["done"] is True
    assert (ended["response"]["state"], ended["response"]["name"]) == ("READY", f"{PARENT[4:]}/nodes/n")
    _, node = driver.call("GET", f"{PARENT}/nodes/n")
    assert "queuedResource" not in node
    assert (len(node["networkEndpoints"]), node["labels"]) == (2, {"a": "b"})
    assert len([event for event in driver.events if isinstance(event, VmStart)]) == 2


def test_stockout_ends_the_operation_in_the_services_words_and_leaves_no_node() -> None:
    driver = a_driver(capacity=[{"zone": ZONE, "type": "v4", "chips": 4}])
    ready(driver, "a")
    _, begun = driver.create_node("b")
    driver.pass_time(60)

    error = driver.operation(begun["name"])["error"]
    assert error["code"] == 8
    assert error["message"].startswith(
        f'There is no more capacity in the zone "{ZONE}"; you can try in another zone where Cloud TPU Nodes are '
        "offered (see https://cloud.google.com/tpu/docs/regions) [EID: 0x"
    )
    assert driver.node_state("b") == "HTTP 404"
    assert driver.node_state("a") == "READY"


def test_names_of_nodes_and_of_requested_nodes_are_taken(driver: Driver) -> None:
    driver.create("q")
    ready(driver, "n")
    assert driver.create_node("q")[0] == 409  # its node is not made yet
    status, body = driver.create_node("n")
    assert (status, body["error"]["message"]) == (409, f"Resource '{PARENT[4:]}/nodes/n' already exists")
    node = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
    assert driver.create("r", tpu={"nodeSpec": [{"nodeId": "n", "node": node}]})[0] == 409


def test_delete_frees_name_and_chips_and_repeats_are_harmless() -> None:
    driver = a_driver(capacity=[{"zone": ZONE, "type": "v4", "chips": 4}])
    ready(driver, "n")
    driver.create("waits")
    first = driver.call("DELETE", f"{PARENT}/nodes/n")
    again = driver.call("DELETE", f"{PARENT}/nodes/n")
    assert first[1]["name"] == again[1]["name"]
    driver.pass_time(60)

    assert driver.operation(first[1]["name"])["response"] == {"@type": "type.googleapis.com/google.protobuf.Empty"}
    assert (driver.node_state("n"), driver.qr_state("waits")) == ("HTTP 404", "ACTIVE")


def test_node_deleted_while_it_is_made_ends_its_creation_as_cancelled(driver: Driver) -> None:
    _, begun = driver.create_node("n")
    driver.call("DELETE", f"{PARENT}/nodes/n")
    driver.pass_time(60)
    assert driver.operation(begun["name"])["error"]["code"] == 1


def test_preempted_node_stays_and_counts_until_it_is_deleted() -> None:
    driver = a_driver(notice=0, quotas=[{"zone": ZONE, "generation": "v4", "chips": 4}])
    ready(driver, "n", **SPOT)
    (node,) = driver.cloud.tpu.life.nodes.values()
    driver.cloud.preemptions.preempt(driver.now, node)
    driver.pass_time(600)

    assert driver.node_state("n") == "PREEMPTED"
    assert driver.create_node("m", **SPOT)[0] == 429
    status, body = post(driver, "nodes/n:start")
    assert status == 400
    assert "start is not supported while in state PREEMPTED [EID: 0x" in body["error"]["message"]
    driver.call("DELETE", f"{PARENT}/nodes/n")
    driver.pass_time(60)
    assert driver.create_node("m", **SPOT)[0] == 200


def test_stopped_node_gives_its_chips_away_and_needs_room_to_start_again() -> None:
    driver = a_driver(capacity=[{"zone": ZONE, "type": "v4", "chips": 4}])
    ready(driver, "n")
    _, stopping = post(driver, "nodes/n:stop")
    assert driver.node_state("n") == "STOPPING"
    driver.pass_time(60)
    assert driver.operation(stopping["name"])["response"]["state"] == "STOPPED"

    driver.active("other")
    _, refused = post(driver, "nodes/n:start")
    driver.pass_time(60)
    assert "no more capacity in the zone" in driver.operation(refused["name"])["error"]["message"]
    assert driver.node_state("n") == "STOPPED"

    driver.call("DELETE", f"{PARENT}/queuedResources/other?force=true")
    driver.pass_time(60)
    _, starting = post(driver, "nodes/n:start")
    assert driver.node_state("n") == "STARTING"
    driver.pass_time(60)
    assert driver.node_state("n") == "READY"
    assert driver.operation(starting["name"])["done"] is True


@pytest.mark.parametrize(
    ("kind", "fields", "why"),
    [("v4-16", {}, "nodes with several workers"), ("v4-8", SPOT, "preemptible nodes")],
)
def test_only_single_host_on_demand_nodes_can_be_stopped(kind: str, fields: dict[str, Any], why: str) -> None:
    driver = a_driver()
    ready(driver, "n", kind, **fields)
    status, body = post(driver, "nodes/n:stop")
    assert status == 400
    assert f"stop is not supported for {why}" in body["error"]["message"]
    assert driver.node_state("n") == "READY"


def test_node_of_a_queued_resource_cannot_be_stopped(driver: Driver) -> None:
    body = {
        "guaranteed": {},
        "tpu": {"nodeSpec": [{"nodeId": "g", "node": {"acceleratorType": "v4-8", "runtimeVersion": "tpu-vm-base"}}]},
    }
    driver.call("POST", f"{PARENT}/queuedResources?queuedResourceId=g", body)
    driver.pass_time(60)
    status, answer = post(driver, "nodes/g:stop")
    assert status == 400
    assert "nodes of a queued resource" in answer["error"]["message"]


def test_reset_boots_all_machines_of_an_active_queued_resource_again(driver: Driver) -> None:
    driver.active("q", "v4-16")
    _, begun = post(driver, "queuedResources/q:reset")
    assert (driver.node_state("q"), driver.qr_state("q")) == ("RESTARTING", "ACTIVE")
    driver.pass_time(60)

    assert driver.node_state("q") == "READY"
    assert len([event for event in driver.events if isinstance(event, VmReset)]) == 2
    assert driver.operation(begun["name"])["response"]["state"]["state"] == "ACTIVE"


def test_reset_is_refused_for_what_has_no_nodes() -> None:
    driver = a_driver(capacity=[{"zone": ZONE, "chips": 0}])
    driver.create("q")
    driver.pass_time(60)
    status, body = post(driver, "queuedResources/q:reset")
    assert (status, body["error"]["status"]) == (400, "FAILED_PRECONDITION")
    assert "reset is not supported while in state WAITING_FOR_RESOURCES" in body["error"]["message"]


def test_update_replaces_whole_the_fields_that_its_mask_names(driver: Driver) -> None:
    ready(driver, "n", labels={"a": "1", "b": "2"}, description="old")
    change = {"labels": {"c": "3"}, "description": "not named by the mask"}
    status, operation = driver.call("PATCH", f"{PARENT}/nodes/n?updateMask=labels,tags", change)

    assert (status, operation["done"]) == (200, True)
    _, node = driver.call("GET", f"{PARENT}/nodes/n")
    assert (node["labels"], node["description"]) == ({"c": "3"}, "old")


@pytest.mark.parametrize("mask", ["", "acceleratorType", "labels,state"])
def test_update_of_what_cannot_change_is_refused(driver: Driver, mask: str) -> None:
    ready(driver, "n")
    status, body = driver.call("PATCH", f"{PARENT}/nodes/n?updateMask={mask}", {"labels": {"a": "b"}})
    assert status == 400
    assert "the update mask is invalid" in body["error"]["message"]


def test_update_of_a_node_that_is_not_up_is_refused(driver: Driver) -> None:
    driver.create_node("n")
    status, body = driver.call("PATCH", f"{PARENT}/nodes/n?updateMask=labels", {"labels": {}})
    assert status == 400
    assert "update is not supported while in state CREATING" in body["error"]["message"]


def test_guest_attributes_are_of_each_worker_or_of_those_named(driver: Driver) -> None:
    ready(driver, "n", "v4-16")
    (node,) = driver.cloud.tpu.life.nodes.values()
    for worker in (0, 1):
        node.guest[worker, "boot", "stage"] = f"up-{worker}"
    _, all_of_them = post(driver, "nodes/n:getGuestAttributes", {"queryPath": "boot/"})
    values = [each["queryValue"]["items"][0]["value"] for each in all_of_them["guestAttributes"]]
    assert values == ["up-0", "up-1"]
    _, second = post(driver, "nodes/n:getGuestAttributes", {"queryPath": "boot/stage", "workerIds": ["1"]})
    assert [each["queryValue"]["items"][0]["value"] for each in second["guestAttributes"]] == ["up-1"]
    assert post(driver, "nodes/n:getGuestAttributes", {"workerIds": ["2"]})[0] == 400


def test_operation_can_be_asked_to_cancel_and_goes_on(driver: Driver) -> None:
    _, begun = driver.create_node("n")
    assert driver.call("POST", f"/v2/{begun['name']}:cancel", {}) == (200, {})
    assert driver.operation(begun["name"])["metadata"]["cancelRequested"] is True
    driver.pass_time(60)
    assert driver.node_state("n") == "READY"
    assert driver.call("POST", f"{PARENT}/operations/none:cancel", {})[0] == 404
