"""v2alpha1 beside v2: its own field names, what each refuses and leaves out, its reservations and maintenance."""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.emulator.events import VmMaintenance
from tpuctl.testing.core_driver import ZONE, Driver, a_driver

V2 = f"/v2/projects/lab/locations/{ZONE}"
ALPHA = f"/v2alpha1/projects/lab/locations/{ZONE}"
NODE = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}


def create(driver: Driver, base: str, name: str, spec: dict[str, Any], **fields: Any) -> tuple[int, dict[str, Any]]:
    body = {"tpu": {"nodeSpec": [{"node": NODE} | spec]}} | fields
    return driver.call("POST", f"{base}/queuedResources?queuedResourceId={name}", body)


@pytest.mark.parametrize(("base", "params"), [(ALPHA, "multiNodeParams"), (V2, "multisliceParams")])
def test_each_version_makes_several_slices_under_its_own_name(driver: Driver, base: str, params: str) -> None:
    status, operation = create(driver, base, "q", {params: {"nodeCount": 2, "nodeIdPrefix": "s"}}, spot={})
    assert status == 200
    assert operation["metadata"]["@type"].endswith(f"{base.split('/')[1]}.OperationMetadata")
    driver.pass_time(60)

    for version in (V2, ALPHA):
        _, queued = driver.call("GET", f"{version}/queuedResources/q")
        assert [spec["nodeId"] for spec in queued["tpu"]["nodeSpec"]] == ["s-0", "s-1"]
        assert queued["state"]["state"] == "ACTIVE"
    assert (driver.node_state("s-0"), driver.node_state("s-1")) == ("READY", "READY")


@pytest.mark.parametrize(
    ("base", "spec", "fields", "name", "place"),
    [
        (V2, {"multiNodeParams": {"nodeCount": 2}}, {}, "multiNodeParams", "queued_resource.tpu.node_spec[0]"),
        (ALPHA, {"multisliceParams": {"nodeCount": 2}}, {}, "multisliceParams", "queued_resource.tpu.node_spec[0]"),
        (V2, {"nodeId": "q"}, {"bestEffort": {}}, "bestEffort", "queued_resource"),
        (V2, {"nodeId": "q"}, {"guaranteed": {"reserved": True}}, "reserved", "queued_resource.guaranteed"),
        (V2, {"nodeId": "q"}, {"provisioningModel": "SPOT"}, "provisioningModel", "queued_resource"),
    ],
)
def test_field_of_the_other_version_is_unknown(
    driver: Driver, base: str, spec: dict[str, Any], fields: dict[str, Any], name: str, place: str
) -> None:
    status, body = create(driver, base, "q", spec, **fields)
    assert status == 400
    assert body["error"]["message"] == (
        f"Invalid JSON payload received. Unknown name \"{name}\" at '{place}': Cannot find field."
    )


def test_what_v2_lacks_is_left_out_when_it_reads_what_v2alpha1_made(driver: Driver) -> None:
    node = NODE | {"autocheckpointEnabled": True, "bootDiskConfig": {"enableConfidentialCompute": False}}
    create(driver, ALPHA, "q", {"nodeId": "q", "node": node}, bestEffort={}, provisioningModel="STANDARD")
    driver.pass_time(60)

    _, alpha = driver.call("GET", f"{ALPHA}/queuedResources/q")
    _, v2 = driver.call("GET", f"{V2}/queuedResources/q")
    assert {"bestEffort", "provisioningModel"} <= set(alpha)
    assert not {"bestEffort", "provisioningModel"} & set(v2)
    assert alpha["tpu"]["nodeSpec"][0]["node"]["autocheckpointEnabled"] is True
    assert "autocheckpointEnabled" not in v2["tpu"]["nodeSpec"][0]["node"]
    _, shown = driver.call("GET", f"{ALPHA}/nodes/q")
    assert (shown["apiVersion"], shown["schedulingConfig"]["spot"]) == ("V2_ALPHA1", True)


@pytest.mark.parametrize(
    "tier",
    [{"guaranteed": {"reserved": True}}, {"provisioningModel": "RESERVATION_BOUND"}],
)
def test_reserved_tier_of_v2alpha1_takes_any_reservation(tier: dict[str, Any]) -> None:
    driver = a_driver(
        capacity=[{"zone": ZONE, "chips": 0}],
        reservations=[{"name": "r", "zone": ZONE, "type": "v4", "chips": 4}],
    )
    create(driver, ALPHA, "q", {"nodeId": "q"}, **tier)
    driver.pass_time(60)
    assert driver.qr_state("q") == "ACTIVE"


def test_flex_start_counts_as_spot_and_is_refused_later_where_it_is_not_offered() -> None:
    driver = a_driver(quotas=[{"generation": "v4", "tier": "on-demand", "limit": 0}])
    assert create(driver, ALPHA, "q", {"nodeId": "q"}, provisioningModel="FLEX_START")[0] == 200
    driver.pass_time(60)
    _, queued = driver.call("GET", f"{ALPHA}/queuedResources/q")
    assert queued["state"]["failedData"]["error"] == {
        "code": 3,
        "message": f'FLEX_START provisioning model is not supported for accelerator type "v4-8" in location "{ZONE}"',
    }


def test_verbs_that_only_v2alpha1_has_are_unknown_to_v2(driver: Driver) -> None:
    driver.active("q")
    assert driver.call("GET", f"{V2}/reservations")[0] == 501
    assert driver.call("POST", f"{V2}/nodes/q:performMaintenance", {})[0] == 501
    assert driver.call("GET", f"{ALPHA}/reservations") == (200, {"reservations": [], "nextPageToken": ""})


def test_maintenance_can_be_had_now_and_is_told_until_it_is_over(driver: Driver) -> None:
    driver.active("q", "v4-16")
    url = f"{ALPHA}/queuedResources/q"
    status, operation = driver.call("POST", f"{url}:performMaintenanceQueuedResource", {"nodeNames": ["q"]})
    assert (status, operation["done"]) == (200, True)
    driver.pass_time(1)

    _, info = driver.call("GET", f"{url}:getMaintenanceInfo")
    (coming,) = info["nodeUpcomingMaintenances"]
    assert (coming["nodeName"], coming["upcomingMaintenance"]["maintenanceStatus"]) == ("q", "ONGOING")
    _, node = driver.call("GET", f"{ALPHA}/nodes/q")
    assert node["health"] == "UNHEALTHY_MAINTENANCE"
    assert driver.call("POST", f"{ALPHA}/nodes/q:performMaintenance", {})[0] == 400  # one at a time

    driver.pass_time(120)
    assert driver.call("GET", f"{url}:getMaintenanceInfo")[1] == {"nodeUpcomingMaintenances": []}


def test_simulated_maintenance_is_of_one_worker(driver: Driver) -> None:
    driver.active("q", "v4-16")
    url = f"{ALPHA}/nodes/q:simulateMaintenanceEvent"
    assert driver.call("POST", url, {"workerIds": ["0", "1"]})[0] == 400
    assert driver.call("POST", url, {"workerIds": ["1"]})[0] == 200
    driver.pass_time(1)
    assert {event.name for event in driver.events if isinstance(event, VmMaintenance)} == {"q-w-1"}
