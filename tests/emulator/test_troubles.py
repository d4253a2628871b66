"""Nodes, stages, windows and lists that do not do what they should."""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.emulator.events import VmKill, VmMaintenance, VmReset, VmStop
from tpuctl.emulator.scenario import MaintenancePlan, NodeStatePlan
from tpuctl.testing.core_driver import PARENT, Driver, a_driver

LATENCIES = {"accepted": 1, "waiting": 2, "provisioning": 10, "boot": 5, "suspending": 3, "deleting": 4}


def node_document(driver: Driver, name: str, query: str = "") -> dict[str, Any]:
    return driver.call("GET", f"{PARENT}/nodes/{name}{query}")[1]


def change(driver: Driver, **plan: Any) -> None:
    node = driver.cloud.tpu.life.nodes[f"{PARENT.removeprefix('/v2/')}/nodes/q"]
    driver.cloud.node_states.change(driver.now, node, NodeStatePlan.model_validate(plan))


# States of nodes.


def test_node_in_repair_comes_back_or_does_not_while_its_request_is_active() -> None:
    for then, health in (("READY", "HEALTHY"), ("UNKNOWN", None)):
        driver = a_driver()
        driver.active("q")
        change(driver, state="REPAIRING", lasts=60, then=then)
        assert driver.node_state("q") == "REPAIRING"
        assert "health" not in node_document(driver, "q")

        driver.pass_time(60)

        assert (driver.node_state("q"), driver.qr_state("q")) == (then, "ACTIVE")
        assert node_document(driver, "q").get("health") == health


@pytest.mark.parametrize("state", ["PREEMPTED", "TERMINATED", "STOPPED", "gone"])
def test_node_without_machines_leaves_its_request_active(state: str) -> None:
    driver = a_driver()
    driver.active("q")
    change(driver, state=state)
    driver.pass_time(600)
    assert driver.node_state("q") == ("HTTP 404" if state == "gone" else state)
    assert driver.qr_state("q") == "ACTIVE"
    assert driver.events[-1] == VmStop("q-w-0")
    assert driver.call("DELETE", f"{PARENT}/queuedResources/q?force=true")[0] == 200
    driver.pass_time(60)
    assert driver.qr_state("q") == "HTTP 404"


@pytest.mark.parametrize(("state", "shown"), [(99, 99), ("raw:MELTING", "MELTING"), ("HIDDEN", "HIDDEN")])
def test_state_that_no_client_knows_is_shown_as_it_is(state: str | int, shown: str | int) -> None:
    driver = a_driver()
    driver.active("q")
    change(driver, state=state)
    assert node_document(driver, "q")["state"] == shown


def test_states_are_numbers_for_clients_that_ask_for_numbers() -> None:
    driver = a_driver()
    driver.active("q")
    change(driver, state="HIDDEN", health="TIMEOUT")
    document = node_document(driver, "q", "?$alt=json;enum-encoding=int")
    assert (document["state"], document["health"]) == (14, 3)


def test_health_can_be_bad_or_missing_on_a_ready_node() -> None:
    driver = a_driver()
    driver.active("q")
    change(driver, state="READY", health="none")
    assert "health" not in node_document(driver, "q")
    change(driver, state="READY", health="TIMEOUT", lasts=5)
    assert node_document(driver, "q")["health"] == "TIMEOUT"


def test_change_that_was_overtaken_is_not_undone() -> None:
    driver = a_driver(notice=0)
    driver.active("q")
    change(driver, state="REPAIRING", lasts=60)
    change(driver, state="UNKNOWN")
    driver.pass_time(61)
    assert driver.node_state("q") == "UNKNOWN"


def test_scenario_changes_states_by_plan() -> None:
    driver = a_driver(node_states=[{"node": "q.*", "after_ready": "1m..2m", "state": "REPAIRING", "lasts": "5m"}])
    driver.active("q1")
    driver.active("q2")
    driver.pass_time(120)
    assert (driver.node_state("q1"), driver.node_state("q2")) == ("REPAIRING", "READY")
    driver.pass_time(300)
    assert driver.node_state("q1") == "READY"


# Maintenance.


def announce(driver: Driver, **plan: Any) -> None:
    (node,) = driver.cloud.tpu.life.nodes.values()
    driver.events.clear()
    driver.cloud.maintenances.announce(driver.now, node, MaintenancePlan.model_validate(plan))
    driver.pass_time(0)


def test_maintenance_is_announced_on_the_node_and_in_its_machines() -> None:
    driver = a_driver()
    driver.active("q", "v4-16")
    announce(driver, lead=3600, lasts=600, warning=60)

    upcoming = node_document(driver, "q")["upcomingMaintenance"]
    assert upcoming["windowStartTime"] == driver.now.plus(3600).iso()
    assert upcoming["windowEndTime"] == driver.now.plus(4200).iso()
    assert (upcoming["type"], upcoming["maintenanceStatus"]) == ("SCHEDULED", "PENDING")
    numbers = node_document(driver, "q", "?$alt=json;enum-encoding=int")["upcomingMaintenance"]
    assert (numbers["type"], numbers["maintenanceStatus"]) == (1, 1)
    told = [event for event in driver.events if isinstance(event, VmMaintenance)]
    assert [(event.name, event.event) for event in told] == [("q-w-0", "NONE"), ("q-w-1", "NONE")]
    assert told[0].upcoming is not None
    assert told[0].upcoming["window-start-time"] == upcoming["windowStartTime"]
    assert node_document(driver, "q")["health"] == "HEALTHY"


def test_hosts_are_down_in_the_window_and_boot_after_it() -> None:
    driver = a_driver()
    driver.active("q", "v4-16")
    announce(driver, lead=300, lasts=100, warning=60)
    driver.pass_time(240)
    assert driver.events[-1] == VmMaintenance(
        "q-w-1",
        "TERMINATE_ON_HOST_MAINTENANCE",
        driver.events[-1].upcoming,  # type: ignore[union-attr] # is one
    )
    driver.pass_time(60)
    document = node_document(driver, "q")
    assert (document["state"], document["health"]) == ("READY", "UNHEALTHY_MAINTENANCE")
    assert document["upcomingMaintenance"]["maintenanceStatus"] == "ONGOING"
    assert driver.events[-2:] == [VmKill("q-w-0"), VmKill("q-w-1")]

    driver.pass_time(100)

    document = node_document(driver, "q")
    assert document["health"] == "HEALTHY"
    assert "upcomingMaintenance" not in document
    assert driver.events[-2:] == [VmReset("q-w-0"), VmReset("q-w-1")]
    assert driver.events[-3] == VmMaintenance("q-w-1", "NONE", None)


def test_maintenance_of_one_host_touches_no_other() -> None:
    driver = a_driver()
    driver.active("q", "v4-16")
    announce(driver, lead=10, lasts=10, worker=1)
    driver.pass_time(60)
    assert {event.name for event in driver.events if not hasattr(event, "vm")} == {"q-w-1"}


def test_maintenance_can_end_the_slice() -> None:
    driver = a_driver(
        latencies=LATENCIES, maintenance=[{"after_ready": 10, "lead": 20, "lasts": 30, "ends": "terminated"}]
    )
    driver.active("q")
    driver.pass_time(18)
    assert (driver.qr_state("q"), driver.node_state("q")) == ("SUSPENDING", "TERMINATED")
    driver.pass_time(3)
    assert driver.qr_state("q") == "SUSPENDED"


def test_slice_that_went_before_its_maintenance_is_left_alone() -> None:
    driver = a_driver()
    driver.active("q")
    announce(driver, lead=100, lasts=10)
    driver.call("DELETE", f"{PARENT}/queuedResources/q?force=true")
    driver.pass_time(0)
    driver.events.clear()
    driver.pass_time(600)
    assert driver.events == []


# Stages.


@pytest.mark.parametrize(
    ("stage", "state"),
    [
        ("CREATING", "CREATING"),
        ("ACCEPTED", "ACCEPTED"),
        ("WAITING_FOR_RESOURCES", "WAITING_FOR_RESOURCES"),
        ("PROVISIONING", "PROVISIONING"),
    ],
)
def test_stage_lasts_longer_or_for_good(stage: str, state: str) -> None:
    driver = a_driver(
        latencies=LATENCIES,
        stalls=[{"stage": stage, "queued": "never"}, {"stage": stage, "queued": "long", "lasts": "1h"}],
    )
    for name in ("never", "long", "usual"):
        driver.create(name)
    driver.pass_time(3590)
    assert [driver.qr_state(name) for name in ("never", "long", "usual")] == [state, state, "ACTIVE"]
    driver.pass_time(3600)
    assert [driver.qr_state(name) for name in ("never", "long")] == [state, "ACTIVE"]
    assert driver.call("DELETE", f"{PARENT}/queuedResources/never?force=true")[0] == 200
    driver.pass_time(60)
    assert driver.qr_state("never") == "HTTP 404"


def test_node_that_never_boots_leaves_its_request_active() -> None:
    driver = a_driver(stalls=[{"stage": "BOOTING"}])
    driver.create("q")
    driver.pass_time(7200)
    assert (driver.qr_state("q"), driver.node_state("q")) == ("ACTIVE", "CREATING")


def test_deletion_that_never_ends_keeps_name_and_quota() -> None:
    driver = a_driver(
        stalls=[{"stage": "DELETING"}], quotas=[{"zone": "us-central2-b", "generation": "v4", "chips": 4}]
    )
    driver.active("q")
    _, operation = driver.call("DELETE", f"{PARENT}/queuedResources/q?force=true")
    driver.pass_time(86_400)
    assert driver.qr_state("q") == "DELETING"
    assert driver.call("GET", f"/v2/{operation['name']}")[1]["done"] is False
    assert driver.create("q")[0] == 409
    assert driver.create("other")[0] == 429


def test_suspension_can_take_long() -> None:
    driver = a_driver(notice=0, latencies=LATENCIES, stalls=[{"stage": "SUSPENDING", "lasts": "10m"}])
    driver.active("q")
    driver.cloud.preemptions.preempt(driver.now, next(iter(driver.cloud.tpu.life.nodes.values())))
    driver.pass_time(600)
    assert driver.qr_state("q") == "SUSPENDING"
    driver.pass_time(10)
    assert driver.qr_state("q") == "SUSPENDED"


def test_request_fails_in_provisioning_and_frees_its_chips() -> None:
    stall = {"stage": "PROVISIONING", "lasts": 30, "error": "internal", "queued": "q"}
    driver = a_driver(latencies=LATENCIES, stalls=[stall], capacity=[{"zone": "us-central2-b", "chips": 4}])
    driver.create("q")
    driver.create("next")
    driver.pass_time(60)
    _, document = driver.call("GET", f"{PARENT}/queuedResources/q")
    assert document["state"]["state"] == "FAILED"
    assert document["state"]["failedData"]["error"]["code"] == 13
    assert driver.node_state("q") == "HTTP 404"
    assert driver.qr_state("next") == "ACTIVE"


def test_stall_befalls_so_many_after_so_many() -> None:
    driver = a_driver(stalls=[{"stage": "PROVISIONING", "skip": 1, "times": 2}])
    for name in "abcd":
        driver.create(name)
    driver.pass_time(60)
    assert [driver.qr_state(name) for name in "abcd"] == ["ACTIVE", "PROVISIONING", "PROVISIONING", "ACTIVE"]


# Windows.


def policy(driver: Driver, **fields: Any) -> tuple[int, dict[str, Any]]:
    return driver.create("q", queueingPolicy=fields)


def test_request_whose_window_is_not_open_stays_accepted() -> None:
    driver = a_driver(latencies=LATENCIES)
    policy(driver, validAfterTime=driver.now.plus(1000).iso())
    driver.pass_time(999)
    assert driver.qr_state("q") == "ACCEPTED"
    driver.pass_time(2)
    assert driver.qr_state("q") == "PROVISIONING"


def test_interval_opens_and_closes() -> None:
    driver = a_driver(capacity=[{"zone": "us-central2-b", "chips": 0}])
    interval = {"startTime": driver.now.plus(100).iso(), "endTime": driver.now.plus(200).iso()}
    policy(driver, validInterval=interval)
    seen = []
    for _ in range(2):
        driver.pass_time(99)
        seen.append(driver.qr_state("q"))
    driver.pass_time(2)
    assert [*seen, driver.qr_state("q")] == ["ACCEPTED", "WAITING_FOR_RESOURCES", "FAILED"]


def test_expired_request_is_told_apart_from_one_that_failed() -> None:
    errors = []
    for scenario in (
        {"capacity": [{"zone": "us-central2-b", "chips": 0}]},
        {"stalls": [{"stage": "WAITING_FOR_RESOURCES", "error": "internal", "lasts": 1}]},
    ):
        driver = a_driver(**scenario)
        policy(driver, validUntilTime=driver.now.plus(50).iso())
        driver.pass_time(60)
        state = driver.call("GET", f"{PARENT}/queuedResources/q")[1]["state"]
        assert state["state"] == "FAILED"
        errors.append(state["failedData"]["error"]["code"])
    assert errors == [4, 13]


def test_request_granted_before_its_time_was_over_becomes_active_after_it() -> None:
    driver = a_driver(latencies={**LATENCIES, "provisioning": 600})
    policy(driver, validUntilDuration="100s")
    driver.pass_time(300)
    assert driver.qr_state("q") == "PROVISIONING"
    driver.pass_time(400)
    assert driver.qr_state("q") == "ACTIVE"


@pytest.mark.parametrize(
    "fields",
    [
        {"validUntilDuration": "5s", "validAfterDuration": "1s"},
        {"validInterval": {"startTime": "2030-01-02T00:00:00Z", "endTime": "2030-01-01T00:00:00Z"}},
        {"validUntilTime": "soon"},
        {"validUntilDuration": "5"},
    ],
)
def test_window_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    status, body = policy(a_driver(), **fields)
    assert (status, body["error"]["status"]) == (400, "INVALID_ARGUMENT")


# Lists, rates.


def test_zone_is_out_of_sight_of_lists_for_a_while() -> None:
    driver = a_driver(unreachable=[{"zone": "us-central2-b", "after": 100, "until": 200}])
    driver.active("q")
    seen = []
    for _ in range(3):
        for zone in ("us-central2-b", "-"):
            for kind in ("queuedResources", "nodes"):
                _, listing = driver.call("GET", f"/v2/projects/lab/locations/{zone}/{kind}")
                seen.append((len(listing[kind]), len(listing.get("unreachable", ()))))
        driver.pass_time(70)
    assert seen == [(1, 0)] * 4 + [(0, 1)] * 4 + [(1, 0)] * 4
    assert "unreachable" not in driver.call("GET", "/v2/projects/lab/locations/us-east1-d/nodes")[1]


def test_creates_of_a_minute_are_counted_for_each_project() -> None:
    driver = a_driver(creates_per_minute=2)
    assert [driver.create(name)[0] for name in "abc"] == [200, 200, 429]
    status, body = driver.create("c")
    assert (status, body["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert body["error"]["message"].startswith("Quota exceeded for quota metric 'CreateQueuedResource requests'")
    assert body["error"]["details"][0]["reason"] == "RATE_LIMIT_EXCEEDED"
    node = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
    url = "/v2/projects/other/locations/us-central2-b/queuedResources?queuedResourceId=x"
    assert driver.call("POST", url, {"spot": {}, "tpu": {"nodeSpec": [{"nodeId": "x", "node": node}]}})[0] == 200
    driver.pass_time(60)
    assert driver.create("c")[0] == 200
