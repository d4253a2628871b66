"""Planted faults: which calls they meet, what the caller gets, and whether the call took effect."""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.base.errors import UserError
from tpuctl.emulator.fault_errors import ERRORS
from tpuctl.emulator.faults import Faults, call_name
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


# Patterns.


@pytest.mark.parametrize(
    ("rule", "statuses"),
    [
        ({"every": 3, "times": None}, [200, 200, 503, 200, 200, 503]),
        ({"every": 2, "skip": 1, "times": 2}, [200, 200, 503, 200, 503, 200]),
        ({"times": 4}, [503, 503, 503, 503, 200, 200]),
        ({"after": 2, "until": 4, "times": None}, [200, 200, 503, 503, 200, 200]),
        ({"call": "nodes.list", "times": None}, [503] * 6),
        ({"call": "queuedResources.list", "times": None}, [200] * 6),
        ({"zone": "us-central2-b", "times": None}, [503] * 6),
        ({"zone": "us-central2", "times": None}, [200] * 6),
        ({"method": "POST", "times": None}, [200] * 6),
    ],
)
def test_fault_meets_calls_in_a_pattern(rule: dict[str, Any], statuses: list[int]) -> None:
    driver = a_driver(faults=[{"kind": "error-before", **rule}])
    seen = []
    for _ in range(6):
        seen.append(driver.call("GET", f"{PARENT}/nodes")[0])
        driver.pass_time(1)
    assert seen == statuses


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", "/v2/projects/p/locations/z/nodes", "nodes.list"),
        ("GET", "/v2/projects/p/locations/z/nodes/n", "nodes.get"),
        ("POST", "/v2/projects/p/locations/z/queuedResources", "queuedResources.create"),
        ("DELETE", "/v2/projects/p/locations/z/queuedResources/q", "queuedResources.delete"),
        ("POST", "/v2alpha1/projects/p/locations/z/queuedResources/q:reset", "queuedResources.reset"),
        ("PATCH", "/v2/projects/p/locations/z/nodes/n", "nodes.update"),
        ("GET", "/v2/projects/p/locations", "locations.list"),
        ("POST", "/compute/v1/projects/p/zones/z/instances", "instances.create"),
        ("POST", "/compute/v1/projects/p/zones/z/instances/i/stop", "instances.stop"),
        ("GET", "/compute/v1/projects/p/zones/z/instances/i", "instances.get"),
        ("POST", "/compute/v1/projects/p/zones/z/operations/o/wait", "operations.wait"),
        ("POST", "/v1/projects/p/secrets/s:addVersion", "secrets.addVersion"),
        ("GET", "/v1/projects/p/secrets/s/versions/latest:access", "versions.access"),
    ],
)
def test_call_has_the_name_of_its_collection_and_deed(method: str, path: str, name: str) -> None:
    assert call_name(Request(method, path)) == name


# Operations and effects that come late.


@pytest.mark.parametrize(
    ("kind", "seen"),
    [("operation-slow", [False, True]), ("operation-never", [False, False]), ("operation-lost", [404])],
)
def test_operation_goes_wrong_while_its_work_goes_on(kind: str, seen: list[Any]) -> None:
    driver = with_fault(kind=kind, seconds="10m")
    _, operation = driver.create("q")
    found: list[Any] = []
    for _ in range(len(seen)):
        driver.pass_time(400)
        status, document = driver.call("GET", f"/v2/{operation['name']}")
        found.append(document["done"] if status == 200 else status)
    assert found == seen
    assert driver.qr_state("q") == "ACTIVE"


def test_compute_operation_goes_wrong_while_its_work_goes_on() -> None:
    base = "/compute/v1/projects/lab/zones/us-central1-a"
    for kind, answers in (("operation-slow", ["RUNNING", "DONE"]), ("operation-lost", [404, 404])):
        driver = a_driver(faults=[{"kind": kind, "call": "disks.create", "seconds": 100}])
        _, operation = driver.call("POST", f"{base}/disks", {"name": "d", "sizeGb": "10"})
        found: list[Any] = []
        for _ in answers:
            driver.pass_time(60)
            status, document = driver.call("GET", f"{base}/operations/{operation['name']}")
            found.append(document["status"] if status == 200 else status)
        assert found == answers
        assert driver.call("GET", f"{base}/disks/d")[0] == 200


def test_repeated_delete_is_harmless_when_its_operation_was_lost() -> None:
    driver = a_driver(faults=[{"kind": "operation-lost", "method": "DELETE"}])
    driver.active("q")
    url = f"{PARENT}/queuedResources/q?force=true"
    assert [driver.call("DELETE", url)[0] for _ in range(2)] == [200, 200]
    driver.pass_time(60)
    assert driver.qr_state("q") == "HTTP 404"


def test_call_whose_sender_gave_up_takes_effect_later() -> None:
    driver = with_fault(kind="lost-late", seconds="5m")
    driver.create("q")
    assert driver.qr_state("q") == "HTTP 404"
    driver.pass_time(299)
    assert driver.qr_state("q") == "HTTP 404"

    driver.pass_time(60)

    assert driver.qr_state("q") == "ACTIVE"
    creates = [call for call in driver.cloud.calls if call.method == "POST"]
    assert [(call.status, call.effect) for call in creates] == [(0, False), (0, True)]
    assert creates[1].at.since(creates[0].at) == 300


def test_request_is_granted_just_as_it_is_deleted() -> None:
    driver = a_driver(
        stalls=[{"stage": "WAITING_FOR_RESOURCES", "times": None}],
        faults=[{"kind": "grant-first", "call": "queuedResources.delete", "times": None}],
    )
    for name in ("plain", "forced"):
        driver.create(name)
    driver.pass_time(3600)
    assert driver.qr_state("plain") == "WAITING_FOR_RESOURCES"

    status, body = driver.call("DELETE", f"{PARENT}/queuedResources/plain")

    assert (status, body["error"]["status"]) == (400, "FAILED_PRECONDITION")
    assert driver.qr_state("plain") == "ACTIVE"
    assert driver.call("DELETE", f"{PARENT}/queuedResources/forced?force=true")[0] == 200
    states = [t.state for t in driver.cloud.history if t.resource.endswith("queuedResources/forced")]
    assert states[-3:] == ["PROVISIONING", "ACTIVE", "DELETING"]


def test_deletion_that_fails_later_leaves_the_slice_as_it_was() -> None:
    driver = a_driver(faults=[{"kind": "fail-later", "call": "queuedResources.delete", "error": "internal"}])
    driver.active("q")
    _, operation = driver.call("DELETE", f"{PARENT}/queuedResources/q?force=true")
    driver.pass_time(60)
    assert driver.call("GET", f"/v2/{operation['name']}")[1]["error"]["code"] == 13
    assert (driver.qr_state("q"), driver.node_state("q")) == ("ACTIVE", "READY")
