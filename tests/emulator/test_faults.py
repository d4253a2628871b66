"""Planted faults: which calls they meet, what the caller gets, and whether the call took effect."""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.base.errors import UserError
from tpuctl.emulator.fault_errors import ERRORS
from tpuctl.emulator.faults import Faults
from tpuctl.emulator.scenario import FaultRule, parse_scenario
from tpuctl.emulator.wire import Request
from tpuctl.testing.core_driver import PARENT, Driver, a_driver

CREATE = {"method": "POST", "path": "queuedResources"}


def with_fault(**rule: Any) -> Driver:
    return a_driver(faults=[{**CREATE, **rule}])


def create(driver: Driver) -> tuple[int, bool, float]:
    """(status, lost, delay) of a create call whose answer may never come."""
    driver.create("q", request_id="one")
    record = driver.cloud.calls[-1]
    return record.status, record.effect, sum(fault.fired for fault in driver.cloud.faults.all())


@pytest.mark.parametrize(
    ("kind", "status", "effect"),
    [
        ("error-before", 503, False),
        ("error-after", 503, True),
        ("lost-before", 0, False),
        ("lost-after", 0, True),
        ("hang-before", 0, False),
        ("hang-after", 0, True),
        ("slow", 200, True),
    ],
)
def test_fault_decides_answer_and_effect(kind: str, status: int, effect: bool) -> None:
    driver = with_fault(kind=kind)
    assert create(driver) == (status, effect, 1)
    assert (driver.qr_state("q") != "HTTP 404") == effect


def test_delays_are_told_to_the_face_and_nothing_waits_in_the_core() -> None:
    driver = with_fault(kind="hang-after", seconds="90s")
    response = driver.send("POST", f"{PARENT}/queuedResources?queuedResourceId=q", {})
    assert (response.delay_s, response.lost) == (90, True)


def test_repeat_after_a_lost_answer_finds_the_first_success() -> None:
    driver = with_fault(kind="lost-after")
    create(driver)
    status, operation = driver.create("q", request_id="one")
    assert (status, operation["metadata"]["verb"]) == (200, "create")
    assert [call.effect for call in driver.cloud.calls] == [True, False]


def test_fault_skips_then_fires_so_often_and_counts() -> None:
    driver = a_driver(faults=[{"kind": "error-before", "path": "nodes$", "skip": 1, "times": 2, "error": "internal"}])
    statuses = [driver.call("GET", f"{PARENT}/nodes")[0] for _ in range(5)]
    assert statuses == [200, 500, 500, 200, 200]
    (fault,) = driver.cloud.faults.all()
    assert (fault.matched, fault.fired) == (5, 2)


def test_chance_of_faults_depends_on_the_seed_alone() -> None:
    def pattern(seed: int) -> list[bool]:
        faults = Faults((FaultRule(kind="slow", times=None, probability=0.5),), seed)
        return [faults.meet(Request("GET", "/x")) is not None for _ in range(40)]

    assert pattern(1) == pattern(1)
    assert pattern(1) != pattern(2)
    assert 0 < sum(pattern(1)) < 40


def test_partial_list_names_the_zone_it_could_not_read_and_leaves_its_items_out() -> None:
    driver = a_driver(faults=[{"kind": "partial", "path": "/-/queuedResources", "unreachable": ["us-central2-b"]}])
    driver.create("q")
    _, partial = driver.call("GET", "/v2/projects/lab/locations/-/queuedResources")
    _, whole = driver.call("GET", "/v2/projects/lab/locations/-/queuedResources")
    assert (partial["queuedResources"], partial["unreachable"]) == ([], ["projects/lab/locations/us-central2-b"])
    assert len(whole["queuedResources"]) == 1
    assert "unreachable" not in whole


def test_request_that_fails_later_is_taken_first() -> None:
    driver = with_fault(kind="fail-later", error="quota-later")
    _, operation = driver.create("q")
    driver.pass_time(10)

    _, document = driver.call("GET", f"{PARENT}/queuedResources/q")
    assert document["state"]["state"] == "FAILED"
    assert document["state"]["failedData"]["error"]["code"] == 8
    _, operation = driver.call("GET", f"/v2/{operation['name']}")
    assert "exhausted. Limit 16" in operation["error"]["message"]


@pytest.mark.parametrize("name", ERRORS)
def test_every_named_error_is_an_error_body(name: str) -> None:
    driver = with_fault(kind="error-before", error=name)
    status, body = driver.create("q")
    assert status >= 400
    assert body["error"]["code"] == status
    assert body["error"]["message"]


def test_unknown_error_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="'boom' is unknown; known: unavailable"):
        a_driver(faults=[{"kind": "error-before", "error": "boom"}])


def test_scenario_names_every_mistake_at_once() -> None:
    with pytest.raises(UserError) as caught:
        parse_scenario(
            {"notise": 3, "capacity": [{"zone": "z", "type": "v9"}], "latencies": {"boot": "soon"}}, "s.yaml"
        )
    lines = str(caught.value).splitlines()
    assert lines[0] == "s.yaml: 3 mistake(s)"
    assert {line.split(":")[0].strip() for line in lines[1:]} == {"notise", "capacity.0.type", "latencies.boot"}
