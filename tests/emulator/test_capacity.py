"""Capacity and quota."""

from __future__ import annotations

from tpuctl.testing.core_driver import PARENT, Driver, a_driver

ZONE = "us-central2-b"


def states(driver: Driver, *names: str) -> list[str]:
    return [driver.qr_state(name) for name in names]


def test_request_waits_until_another_slice_is_gone() -> None:
    driver = a_driver(capacity=[{"zone": ZONE, "type": "v4", "chips": 8}])
    driver.active("a", "v4-16")
    driver.create("b")
    driver.pass_time(600)
    assert driver.qr_state("b") == "WAITING_FOR_RESOURCES"

    driver.call("DELETE", f"{PARENT}/queuedResources/a?force=true")
    driver.pass_time(60)

    assert driver.qr_state("b") == "ACTIVE"


def test_large_request_does_not_hold_up_a_smaller_one_behind_it() -> None:
    driver = a_driver(capacity=[{"zone": ZONE, "type": "v4", "chips": 8}])
    driver.create("large", "v4-32")
    driver.create("small", "v4-8")
    driver.pass_time(60)

    assert states(driver, "large", "small") == ["WAITING_FOR_RESOURCES", "ACTIVE"]


def test_rules_for_a_type_and_for_its_generation_both_hold() -> None:
    rules = [{"zone": ZONE, "type": "v4", "chips": 100}, {"zone": ZONE, "type": "v4-8", "chips": 4}]
    driver = a_driver(capacity=rules)
    for name, kind in (("a", "v4-8"), ("b", "v4-8"), ("c", "v4-16")):
        driver.create(name, kind)
    driver.pass_time(60)

    assert states(driver, "a", "b", "c") == ["ACTIVE", "WAITING_FOR_RESOURCES", "ACTIVE"]


def test_capacity_follows_its_plan_over_time() -> None:
    plan = [{"at": 0, "chips": 0}, {"at": "10m", "chips": 4}, {"at": "20m", "chips": 0}]
    driver = a_driver(capacity=[{"zone": ZONE, "type": "v4", "over_time": plan}], notice=0)
    driver.create("a")
    driver.pass_time(599)
    assert driver.qr_state("a") == "WAITING_FOR_RESOURCES"
    driver.pass_time(61)
    assert driver.qr_state("a") == "ACTIVE"

    driver.pass_time(600)

    assert driver.qr_state("a") == "SUSPENDED"


def test_falling_capacity_takes_the_youngest_slice_only() -> None:
    driver = a_driver(notice=0)
    for name in ("old", "young"):
        driver.active(name)

    driver.cloud.tpu.life.capacity.set(ZONE, "v4", 4, driver.now.since(driver.cloud.world.started or driver.now))
    driver.cloud.preemptions.capacity_changed(driver.now)
    driver.pass_time(60)

    assert states(driver, "old", "young") == ["ACTIVE", "SUSPENDED"]


def test_quota_counts_cores_in_its_text_and_dead_requests_in_its_sum() -> None:
    driver = a_driver(quotas=[{"zone": ZONE, "generation": "v4", "chips": 4}])
    driver.active("a")
    driver.call("DELETE", f"{PARENT}/nodes/a")
    driver.pass_time(60)
    assert driver.qr_state("a") == "SUSPENDED"

    status, body = driver.create("b")

    assert (status, body["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert body["error"]["message"] == (
        "Quota limit 'TPUV4sPreemptiblePodPerProjectPerZoneForTPUAPI' has been exceeded. Limit: 8 in zone "
        "us-central2-b."
    )
    driver.call("DELETE", f"{PARENT}/queuedResources/a")
    driver.pass_time(60)
    assert driver.create("b")[0] == 200


def test_waiting_requests_count_against_quota_unless_told_otherwise() -> None:
    for counts, status in ((True, 429), (False, 200)):
        driver = a_driver(
            capacity=[{"zone": ZONE, "chips": 0}],
            quotas=[{"zone": ZONE, "generation": "v4", "chips": 4}],
            quota_counts_waiting=counts,
        )
        driver.create("a")
        driver.pass_time(60)
        assert driver.create("b")[0] == status


def test_spot_and_on_demand_have_separate_quotas() -> None:
    driver = a_driver(quotas=[{"zone": ZONE, "generation": "v4", "tier": "on-demand", "chips": 0}])
    assert driver.create("spot")[0] == 200

    node = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
    status, body = driver.call(
        "POST",
        f"{PARENT}/queuedResources?queuedResourceId=od",
        {"tpu": {"nodeSpec": [{"nodeId": "od", "node": node}]}},
    )

    assert status == 429
    assert "Limit: 0 in zone" in body["error"]["message"]
