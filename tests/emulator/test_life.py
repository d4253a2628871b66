"""The life of queued resources and nodes on virtual time."""

from __future__ import annotations

import pytest

from tpuctl.emulator.events import VmBooted, VmNotice, VmStart, VmStop
from tpuctl.emulator.tpu_records import ARROWS, QrState
from tpuctl.testing.core_driver import PARENT, Driver, a_driver

LATENCIES = {"accepted": 1, "waiting": 2, "provisioning": 10, "boot": 5, "suspending": 3, "deleting": 4}


def states_of(driver: Driver, name: str) -> list[str]:
    return [t.state for t in driver.cloud.history if t.resource.endswith(f"/queuedResources/{name}")]


def test_spot_request_walks_every_state_at_its_time() -> None:
    driver = a_driver(latencies=LATENCIES)
    driver.create("q")
    seen = [driver.qr_state("q")]
    for seconds in (1, 1, 1, 10):
        driver.pass_time(seconds)
        seen.append(driver.qr_state("q"))

    assert seen == ["CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"]
    assert driver.node_state("q") == "CREATING"
    driver.pass_time(5)
    assert driver.node_state("q") == "READY"


def test_create_operation_ends_when_the_request_is_stored_not_when_it_is_active() -> None:
    driver = a_driver(latencies=LATENCIES)
    _, operation = driver.create("q")
    assert operation["done"] is False

    driver.pass_time(1)

    _, operation = driver.call("GET", f"/v2/{operation['name']}")
    assert operation["done"] is True
    assert operation["response"]["@type"].endswith("google.cloud.tpu.v2.QueuedResource")
    assert driver.qr_state("q") == "ACCEPTED"


def test_node_is_ready_only_when_all_its_machines_have_booted() -> None:
    driver = a_driver(boot_by_themselves=False)
    driver.create("q", "v4-16")
    driver.pass_time(60)
    names = [event.vm.name for event in driver.events if isinstance(event, VmStart)]
    assert names == ["q-w-0", "q-w-1"]

    driver.cloud.report(driver.now, VmBooted("q-w-1"))
    assert driver.node_state("q") == "CREATING"
    driver.cloud.report(driver.now, VmBooted("q-w-0"))
    assert driver.node_state("q") == "READY"


def test_machines_of_a_slice_know_their_place_in_it() -> None:
    driver = a_driver()
    driver.active("q", "v4-16")
    first, second = (event.vm for event in driver.events if isinstance(event, VmStart))

    assert (first.attributes["agent-worker-number"], second.attributes["agent-worker-number"]) == ("0", "1")
    assert second.attributes["instance-id"] == "q"
    assert second.attributes["accelerator-type"] == "v4-16"
    assert second.attributes["startup-script"] == "true"
    addresses = [entry.split(":")[2] for entry in second.attributes["worker-network-endpoints"].split(",")]
    assert addresses == [first.address, second.address]
    assert "WORKER_ID: '1'" in second.attributes["tpu-env"].splitlines()
    assert (first.chips, second.chips) == (4, 4)


def test_preemption_gives_notice_then_takes_the_slice() -> None:
    driver = a_driver(notice=30, latencies=LATENCIES)
    driver.active("q")
    driver.events.clear()
    node = next(iter(driver.cloud.tpu.life.nodes.values()))

    driver.cloud.preemptions.preempt(driver.now, node)
    driver.pass_time(29)
    assert driver.events == [VmNotice("q-w-0")]
    assert (driver.qr_state("q"), driver.node_state("q")) == ("ACTIVE", "READY")

    driver.pass_time(1)
    assert driver.events[-1] == VmStop("q-w-0")
    assert (driver.qr_state("q"), driver.node_state("q")) == ("SUSPENDING", "PREEMPTED")
    driver.pass_time(3)
    assert (driver.qr_state("q"), driver.node_state("q")) == ("SUSPENDED", "HTTP 404")
    _, document = driver.call("GET", f"{PARENT}/queuedResources/q")
    assert document["state"]["stateInitiator"] == "SERVICE"


@pytest.mark.parametrize(
    ("shows", "seen"), [("PREEMPTED", "PREEMPTED"), ("TERMINATED", "TERMINATED"), ("gone", "HTTP 404")]
)
def test_lost_node_looks_as_told_while_its_queued_resource_still_says_active(shows: str, seen: str) -> None:
    driver = a_driver(latencies=LATENCIES)
    driver.active("q")
    node = next(iter(driver.cloud.tpu.life.nodes.values()))

    driver.cloud.preemptions.preempt(driver.now, node, notice_s=0, shows=shows, lag_s=20)
    driver.pass_time(1)
    assert (driver.qr_state("q"), driver.node_state("q")) == ("ACTIVE", seen)

    driver.pass_time(30)
    assert driver.qr_state("q") == "SUSPENDED"


def test_node_deleted_by_hand_suspends_its_queued_resource_by_user() -> None:
    driver = a_driver(latencies=LATENCIES)
    driver.active("q")

    status, _ = driver.call("DELETE", f"{PARENT}/nodes/q")
    driver.pass_time(4)

    assert status == 200
    assert driver.qr_state("q") == "SUSPENDING"
    driver.pass_time(3)
    _, document = driver.call("GET", f"{PARENT}/queuedResources/q")
    assert document["state"] == {"state": "SUSPENDED", "stateInitiator": "USER", "suspendedData": {}}


def test_unforced_delete_of_an_active_one_is_refused() -> None:
    driver = a_driver()
    driver.active("q")

    status, body = driver.call("DELETE", f"{PARENT}/queuedResources/q")

    assert (status, body["error"]["status"]) == (400, "FAILED_PRECONDITION")
    assert "state ACTIVE" in body["error"]["message"]
    assert driver.qr_state("q") == "ACTIVE"


def test_forced_delete_ends_machines_at_once_and_the_name_later() -> None:
    driver = a_driver(latencies=LATENCIES)
    driver.active("q")

    _, operation = driver.call("DELETE", f"{PARENT}/queuedResources/q?force=true")
    driver.pass_time(0)
    assert driver.events[-1] == VmStop("q-w-0")
    assert (driver.qr_state("q"), driver.node_state("q")) == ("DELETING", "DELETING")
    assert driver.create("q")[0] == 409

    driver.pass_time(4)
    assert driver.qr_state("q") == "HTTP 404"
    assert driver.call("GET", f"/v2/{operation['name']}")[1]["done"] is True
    assert driver.create("q")[0] == 200


def test_repeated_delete_is_harmless_until_the_resource_is_gone() -> None:
    driver = a_driver(latencies=LATENCIES)
    driver.active("q")
    first = driver.call("DELETE", f"{PARENT}/queuedResources/q?force=true")[1]

    status, second = driver.call("DELETE", f"{PARENT}/queuedResources/q?force=true")

    assert (status, second["name"]) == (200, first["name"])
    driver.pass_time(4)
    assert driver.call("DELETE", f"{PARENT}/queuedResources/q?force=true")[0] == 404


@pytest.mark.parametrize("state", ["ACCEPTED", "WAITING_FOR_RESOURCES", "SUSPENDED", "FAILED"])
def test_request_without_nodes_is_deleted_without_force(state: str) -> None:
    driver = a_driver(latencies=LATENCIES, capacity=[{"zone": "us-central2-b", "chips": 4}])
    if state == "SUSPENDED":
        driver.active("q")
        driver.call("DELETE", f"{PARENT}/nodes/q")
        driver.pass_time(60)
    elif state == "FAILED":
        driver.active("other")
        driver.create("q", queueingPolicy={"validUntilDuration": "10s"})
        driver.pass_time(10)
    else:
        driver.active("other")
        driver.create("q")
        driver.pass_time(1 if state == "ACCEPTED" else 60)
    assert driver.qr_state("q") == state

    assert driver.call("DELETE", f"{PARENT}/queuedResources/q")[0] == 200


def test_request_whose_time_is_over_fails_with_a_reason() -> None:
    driver = a_driver(capacity=[{"zone": "us-central2-b", "type": "v4", "chips": 0}])
    driver.create("q", queueingPolicy={"validUntilDuration": "100s"})
    driver.pass_time(99)
    assert driver.qr_state("q") == "WAITING_FOR_RESOURCES"

    driver.pass_time(1)

    _, document = driver.call("GET", f"{PARENT}/queuedResources/q")
    assert document["state"]["state"] == "FAILED"
    assert "valid-until" in document["state"]["failedData"]["error"]["message"]


def test_slices_of_one_request_are_named_by_prefix_and_come_together() -> None:
    driver = a_driver()
    body = {"nodeId": None, "multisliceParams": {"nodeCount": 2, "nodeIdPrefix": "gang"}}
    spec = {"node": {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}, **body}
    url = f"{PARENT}/queuedResources?queuedResourceId=q"
    assert driver.call("POST", url, {"spot": {}, "tpu": {"nodeSpec": [spec]}})[0] == 200
    driver.pass_time(60)

    assert [driver.node_state(f"gang-{index}") for index in range(2)] == ["READY", "READY"]
    _, document = driver.call("GET", f"{PARENT}/queuedResources/q")
    assert [entry["nodeId"] for entry in document["tpu"]["nodeSpec"]] == ["gang-0", "gang-1"]
    environment = next(e.vm for e in driver.events if isinstance(e, VmStart) and e.vm.name == "gang-1-w-0")
    assert "MEGASCALE_SLICE_ID: '1'" in environment.attributes["tpu-env"]


def test_planned_preemption_hits_the_node_so_long_after_it_was_ready() -> None:
    rule = {"node": "q.*", "after_ready": 100, "notice": 0}
    driver = a_driver(latencies=LATENCIES, preemptions=[rule])
    driver.active("q1")

    driver.pass_time(100)
    assert driver.qr_state("q1") == "SUSPENDED"

    driver.active("q2")
    driver.pass_time(200)
    assert driver.qr_state("q2") == "ACTIVE"  # the rule says once


def test_arrows_lead_from_every_state_and_only_deletion_ends() -> None:
    assert set(ARROWS) == set(QrState)
    assert [state for state in QrState if None in ARROWS[state]] == [QrState.DELETING]


def test_slice_that_goes_before_its_machines_were_started_asks_nothing_of_them() -> None:
    for go in ("delete", "preempt"):
        driver = a_driver(latencies=LATENCIES)
        driver.create("q")
        driver.pass_time(3)
        assert driver.qr_state("q") == "PROVISIONING"

        if go == "delete":
            driver.call("DELETE", f"{PARENT}/queuedResources/q?force=true")
        else:
            driver.cloud.preemptions.preempt(driver.now, next(iter(driver.cloud.tpu.life.nodes.values())), notice_s=1)
        driver.pass_time(60)

        assert driver.events == []
        assert driver.qr_state("q") == ("HTTP 404" if go == "delete" else "SUSPENDED")
        assert driver.cloud.world.vm_names == set()


def test_delete_during_suspending_is_not_overtaken_by_the_suspension() -> None:
    driver = a_driver(latencies=LATENCIES)
    driver.active("q")
    driver.cloud.preemptions.preempt(driver.now, next(iter(driver.cloud.tpu.life.nodes.values())), notice_s=0)
    driver.pass_time(1)
    assert driver.qr_state("q") == "SUSPENDING"

    assert driver.call("DELETE", f"{PARENT}/queuedResources/q")[0] == 400
    assert driver.call("DELETE", f"{PARENT}/queuedResources/q?force=true")[0] == 200
    driver.pass_time(3)
    assert driver.qr_state("q") == "DELETING"
    driver.pass_time(1)
    assert driver.qr_state("q") == "HTTP 404"
