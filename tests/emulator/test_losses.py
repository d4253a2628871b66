"""Slices that the service takes: many at once, by chance, by plan, when capacity falls."""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.testing.core_driver import Driver, a_driver

ZONE, OTHER = "us-central2-b", "us-east1-d"


def with_slices(count: int, **scenario: Any) -> Driver:
    driver = a_driver(notice=0, **scenario)
    for number in range(count):
        driver.create(f"s{number}")
        driver.pass_time(10)
    driver.pass_time(60)
    return driver


def lost(driver: Driver) -> list[str]:
    names = [t.resource.rsplit("/", 1)[1] for t in driver.cloud.history if t.state == "SUSPENDED"]
    return sorted(names)


def preempt_among(driver: Driver, count: int | None = None, share: float | None = None, choose: Any = "newest") -> None:
    for node in driver.cloud.preemptions.among(ZONE, count, share, choose):
        driver.cloud.preemptions.preempt(driver.now, node)
    driver.pass_time(60)


@pytest.mark.parametrize(
    ("asked", "gone"),
    [
        ({"count": 2}, ["s3", "s4"]),
        ({"count": 9}, ["s0", "s1", "s2", "s3", "s4"]),
        ({"share": 0.5, "choose": "oldest"}, ["s0", "s1", "s2"]),
        ({"share": 0.2}, ["s4"]),
        ({}, ["s0", "s1", "s2", "s3", "s4"]),
    ],
)
def test_many_are_taken_at_once_by_number_or_share(asked: dict[str, Any], gone: list[str]) -> None:
    driver = with_slices(5)
    preempt_among(driver, **asked)
    assert lost(driver) == gone


def test_seed_chooses_who_goes() -> None:
    def chosen(seed: int) -> list[str]:
        driver = with_slices(8, seed=seed)
        driver.cloud.preemptions._choices.seed(seed)
        preempt_among(driver, count=3, choose="seeded")
        return lost(driver)

    assert chosen(1) == chosen(1)
    assert len(chosen(1)) == 3
    assert len({tuple(chosen(seed)) for seed in range(6)}) > 1


def test_slices_of_another_zone_are_spared() -> None:
    driver = with_slices(2)
    driver.create("v6e", "v6e-8", zone=OTHER)
    driver.pass_time(60)
    preempt_among(driver)
    assert lost(driver) == ["s0", "s1"]


def test_share_of_the_ready_slices_goes_at_its_time_by_plan() -> None:
    driver = with_slices(4, preemptions=[{"at": 300, "share": 0.5, "zone": ZONE}, {"at": 400, "node": "s0"}])
    driver.pass_time(250)
    assert lost(driver) == ["s2", "s3"]
    driver.pass_time(60)
    assert lost(driver) == ["s0", "s2", "s3"]


def test_planned_loss_can_leave_its_request_active_for_a_while() -> None:
    driver = with_slices(1, preemptions=[{"at": 100, "shows": "gone", "lag": 30}])
    driver.pass_time(50)
    assert (driver.qr_state("s0"), driver.node_state("s0")) == ("ACTIVE", "HTTP 404")
    driver.pass_time(60)
    assert driver.qr_state("s0") == "SUSPENDED"


def test_chance_takes_about_as_many_as_the_rate_says_and_the_same_for_a_seed() -> None:
    def losses() -> list[float]:
        driver = with_slices(100, preemption_rates=[{"type": "v4", "per_slice_hour": 0.5}])
        driver.pass_time(3600)
        return [t.at.unix_s for t in driver.cloud.history if t.state == "SUSPENDING"]

    found = losses()
    # 100 slices of 3660 to 4660 s, at one loss in 7200 s: 44 are expected to go, with a deviation of 5.
    assert 30 <= len(found) <= 58
    assert losses() == found


def test_rate_holds_in_its_time_alone_and_for_its_type() -> None:
    rates = [
        {"type": "v4", "per_slice_hour": 3600, "after": 1000, "until": 2000},
        {"type": "v6e", "per_slice_hour": 3600},
    ]
    driver = with_slices(3, preemption_rates=rates)
    driver.pass_time(900)
    assert lost(driver) == []
    driver.pass_time(300)
    assert lost(driver) == ["s0", "s1", "s2"]
    driver.pass_time(1000)
    driver.active("late")
    driver.pass_time(4000)
    assert driver.qr_state("late") == "ACTIVE"


def test_slice_that_is_not_spot_is_safe_from_chance() -> None:
    driver = a_driver(preemption_rates=[{"per_slice_hour": 3600}], spot_lifetime=1)
    url = f"/v2/projects/lab/locations/{ZONE}/queuedResources?queuedResourceId=od"
    node = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
    driver.call("POST", url, {"tpu": {"nodeSpec": [{"nodeId": "od", "node": node}]}})
    driver.pass_time(4000)
    assert driver.qr_state("od") == "ACTIVE"


@pytest.mark.parametrize(("reclaim", "gone"), [("newest", ["s2"]), (True, ["s2"]), ("oldest", ["s0"]), ("none", [])])
def test_falling_capacity_takes_whom_the_scenario_says(reclaim: Any, gone: list[str]) -> None:
    rule = {"zone": ZONE, "type": "v4", "over_time": [{"at": "10m", "chips": 8}]}
    driver = with_slices(3, reclaim=reclaim, capacity=rule)
    driver.pass_time(600)
    assert lost(driver) == gone


def test_seeded_reclaim_is_the_same_for_a_seed() -> None:
    def gone(seed: int) -> list[str]:
        rule = {"zone": ZONE, "over_time": [{"at": "10m", "chips": 12}]}
        driver = Driver(with_slices(0, reclaim="seeded", capacity=rule).cloud.world.settings, seed)
        for number in range(6):
            driver.create(f"s{number}")
        driver.pass_time(900)
        return lost(driver)

    assert gone(3) == gone(3)
    assert len(gone(3)) == 3
    assert len({tuple(gone(seed)) for seed in range(6)}) > 1


def test_stockout_grants_nothing_new_and_spares_what_runs() -> None:
    driver = with_slices(1, stockouts=[{"zone": ZONE, "type": "v4", "after": 60, "until": "20m"}])
    driver.create("late")
    driver.pass_time(900)
    assert (driver.qr_state("s0"), driver.qr_state("late")) == ("ACTIVE", "WAITING_FOR_RESOURCES")
    driver.pass_time(300)
    assert driver.qr_state("late") == "ACTIVE"
