"""Quotas in the service's units, metrics and words; reservations; what is not offered; standing refusals."""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.base.errors import UserError
from tpuctl.emulator.accelerators import ACCELERATORS
from tpuctl.emulator.scenario import parse_scenario
from tpuctl.testing.core_driver import Driver, a_driver

ZONE = "us-central1-a"
RUNTIME = {"runtimeVersion": "tpu-ubuntu2204-base"}


def create(driver: Driver, name: str, kind: str, zone: str = ZONE, **fields: Any) -> tuple[int, str]:
    """Status, and the error's message."""
    status, body = driver.create(name, kind, zone=zone, node=RUNTIME, **fields)
    return status, body.get("error", {}).get("message", "")


def on_demand(driver: Driver, name: str, kind: str, zone: str = ZONE, **fields: Any) -> tuple[int, str]:
    spec = {"nodeId": name, "node": {"acceleratorType": kind, **RUNTIME}}
    body = {"tpu": {"nodeSpec": [spec]}} | fields
    url = f"/v2/projects/lab/locations/{zone}/queuedResources?queuedResourceId={name}"
    status, answer = driver.call("POST", url, body)
    return status, answer.get("error", {}).get("message", "")


@pytest.mark.parametrize(
    ("kind", "tier", "metric"),
    [
        ("v2-8", "on-demand", "TPUV2s"),
        ("v2-32", "spot", "TPUV2sPreemptiblePod"),
        ("v3-8", "spot", "TPUV3sPreemptible"),
        ("v4-8", "spot", "TPUV4sPreemptiblePod"),
        ("v4-32", "reserved", "TPUV4sReservedPod"),
        ("v5litepod-8", "spot", "TPUV5sPreemptibleLitepodServing"),
        ("v5litepod-16", "spot", "TPUV5sPreemptibleLitepod"),
        ("v5litepod-16", "on-demand", "TPUV5sLitepod"),
        ("v5p-8", "spot", "TPUV5PPreemptible"),
        ("v6e-8", "spot", "TPUV6EPreemptible"),
    ],
)
def test_metric_names_generation_tier_and_kind_of_size(kind: str, tier: str, metric: str) -> None:
    assert ACCELERATORS[kind].quota_metric(tier) == metric


def test_zero_quota_of_a_region_reads_as_operators_saw_it() -> None:
    driver = a_driver(quotas=[{"region": "us-east5", "generation": "v6e", "limit": 0}])
    assert create(driver, "a", "v6e-8", "us-east5-b") == (
        429,
        "Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded. Limit: 0 in region us-east5.",
    )
    assert create(driver, "a", "v6e-8", "us-east1-d")[0] == 200


def test_limits_count_cores_up_to_v5p_and_chips_of_v5e_and_v6e() -> None:
    driver = a_driver(
        quotas=[{"zone": ZONE, "generation": "v5p", "limit": 16}, {"zone": ZONE, "generation": "v5e", "limit": 16}]
    )
    assert create(driver, "p", "v5p-16")[0] == 200  # 8 chips, 16 cores
    assert "Limit: 16 in zone us-central1-a" in create(driver, "p2", "v5p-8")[1]
    assert create(driver, "e", "v5litepod-16")[0] == 200  # 16 chips
    assert "Limit: 16 in zone us-central1-a" in create(driver, "e2", "v5litepod-16")[1]


def test_serving_sizes_of_v5e_have_a_quota_of_their_own() -> None:
    driver = a_driver(quotas=[{"generation": "v5e-serving", "limit": 4}])
    status, text = create(driver, "s", "v5litepod-8")
    assert status == 429
    assert "'TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI'" in text
    assert create(driver, "s", "v5litepod-4")[0] == 200
    assert create(driver, "t", "v5litepod-64")[0] == 200


def test_zone_and_region_limits_both_count_and_are_told_together() -> None:
    driver = a_driver(
        quotas=[{"zone": "us-east5-a", "generation": "v6e", "limit": 8},
                {"region": "us-east5", "generation": "v6e", "limit": 12}]
    )  # fmt: skip
    assert create(driver, "a", "v6e-8", "us-east5-a")[0] == 200
    status, text = create(driver, "b", "v6e-8", "us-east5-b")  # the region's 12 are used up by another zone
    assert (status, text) == (
        429,
        "Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded. Limit: 12 in region us-east5.",
    )
    assert create(driver, "c", "v6e-8", "us-east5-a")[1] == (
        "Quota limit 'TPUV6EPreemptiblePerProjectPerZoneForTPUAPI' has been exceeded. Limit: 8 in zone us-east5-a., "
        "Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded. Limit: 12 in region us-east5."
    )


def test_nodes_and_queued_resources_share_a_quota_and_projects_do_not() -> None:
    driver = a_driver(quotas=[{"generation": "v4", "limit": 8}])
    assert driver.create_node("n", schedulingConfig={"preemptible": True})[0] == 200
    assert driver.create("q")[0] == 429
    assert driver.create_node("od")[0] == 200  # on-demand counts apart
    body = {"spot": {}, "tpu": {"nodeSpec": [{"nodeId": "q", "node": {"acceleratorType": "v4-8", **RUNTIME}}]}}
    url = "/v2/projects/other/locations/us-central2-b/queuedResources?queuedResourceId=q"
    assert driver.call("POST", url, body)[0] == 200


def test_refusal_that_comes_later_fails_the_request_with_its_details() -> None:
    driver = a_driver(quota_refusal="later", quotas=[{"region": "us-west4", "generation": "v5e", "limit": 8}])
    driver.create("q", "v5litepod-16", zone="us-west4-a", node=RUNTIME)
    driver.pass_time(60)

    _, queued = driver.call("GET", "/v2/projects/lab/locations/us-west4-a/queuedResources/q")
    error = queued["state"]["failedData"]["error"]
    assert queued["state"]["state"] == "FAILED"
    assert (error["code"], error["message"]) == (
        8, "Quota 'TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI' exhausted. Limit 8 in region us-west4",
    )  # fmt: skip
    assert error["details"][0]["@type"] == "type.googleapis.com/google.rpc.QuotaFailure"
    assert error["details"][0]["violations"][0]["subject"] == "region us-west4"


@pytest.mark.parametrize(
    "rule",
    [
        {"zone": ZONE, "region": "us-central1", "generation": "v4"},
        {"generation": "v4", "chips": 4, "limit": 8},
        {"generation": "v5litepod-8", "limit": 8},
    ],
)
def test_rules_that_say_two_things_are_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"quotas"):
        parse_scenario({"quotas": [rule]})


RESERVED = [{"name": "r1", "zone": ZONE, "type": "v5p", "chips": 8}]
NAME = f"projects/lab/locations/{ZONE}/reservations"


@pytest.mark.parametrize("name", ["r1", "-"])
def test_reservation_has_chips_of_its_own_outside_the_zones_capacity(name: str) -> None:
    driver = a_driver(capacity=[{"zone": ZONE, "chips": 0}], reservations=RESERVED)
    for each in ("a", "b", "c"):
        assert on_demand(driver, each, "v5p-8", reservationName=f"{NAME}/{name}")[0] == 200
    driver.pass_time(60)

    states = [document["state"]["state"] for document in queued_resources(driver)]
    assert states == ["ACTIVE", "ACTIVE", "WAITING_FOR_RESOURCES"]
    _, node = driver.call("GET", f"/v2/projects/lab/locations/{ZONE}/nodes/a")
    assert node["schedulingConfig"] == {"reserved": True}
    _, listed = driver.call("GET", f"/v2alpha1/projects/lab/locations/{ZONE}/reservations")
    (reservation,) = listed["reservations"]
    assert (reservation["name"], reservation["state"]) == (f"{NAME}/r1", "ACTIVE")
    assert reservation["standard"] == {
        "size": 8, "capacityUnits": "CHIPS", "resourceType": "v5p", "usage": {"total": "8"},
    }  # fmt: skip


def queued_resources(driver: Driver) -> list[dict[str, Any]]:
    _, listed = driver.call("GET", f"/v2/projects/lab/locations/{ZONE}/queuedResources")
    return list(listed["queuedResources"])


def test_no_reservation_for_the_type_fails_the_request_in_the_services_words() -> None:
    driver = a_driver(reservations=RESERVED)
    assert on_demand(driver, "a", "v5litepod-16", reservationName=f"{NAME}/-")[0] == 200
    driver.pass_time(60)
    (queued,) = queued_resources(driver)
    assert queued["state"]["failedData"]["error"]["message"].startswith(
        "Insufficient reserved capacity. Contact customer support to increase your reservation. [EID: 0x"
    )


def test_full_reservation_ends_the_creation_of_a_node() -> None:
    driver = a_driver(reservations=RESERVED)
    reserved = {"schedulingConfig": {"reserved": True}}
    assert driver.create_node("a", "v5p-16", zone=ZONE, **reserved)[0] == 200
    _, second = driver.create_node("b", "v5p-8", zone=ZONE, **reserved)
    driver.pass_time(60)
    assert driver.operation(second["name"])["error"]["code"] == 9


def test_named_reservation_that_does_not_exist_is_not_found() -> None:
    driver = a_driver(reservations=RESERVED)
    assert on_demand(driver, "a", "v5p-8", reservationName=f"{NAME}/r2")[0] == 404
    assert on_demand(driver, "a", "v5p-8", reservationName="r1")[0] == 400
    assert create(driver, "a", "v5p-8", reservationName=f"{NAME}/r1")[0] == 400  # spot as well


def test_type_that_is_not_offered_at_a_tier_is_refused() -> None:
    driver = a_driver(not_offered=[{"zone": ZONE, "type": "v2-512", "tier": "on-demand"}])
    assert on_demand(driver, "a", "v2-512") == (
        400,
        "Accelerator type v2-512 as preemptible (false) and reserved (false) is not available in zone us-central1-a, "
        "please contact support.",
    )
    assert create(driver, "a", "v2-512")[0] == 200
