"""What the TPU service refuses, and in which words; request ids; pages."""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.testing.core_driver import PARENT, a_driver


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"acceleratorType": "v5p-8"}, 'accelerator type, "v5p-8", could not be found in the zonal'),
        ({"acceleratorType": "v4-9"}, 'accelerator type, "v4-9", could not be found in the zonal'),
        ({"runtimeVersion": "windows"}, 'runtime version "windows" was not found'),
        ({"labels": {"Big": "x"}}, 'invalid label "Big"'),
        ({"metadata": {"k": "x" * 262_145}}, "more than 262144 bytes"),
        ({"metadata": {"bad key": "x"}}, 'invalid metadata key "bad key"'),
        ({"networkConfig": {"a": 1}, "networkConfigs": [{}]}, "only one of network_config"),
    ],
)
def test_bad_node_is_refused_and_nothing_is_made(change: dict[str, Any], text: str) -> None:
    driver = a_driver()

    status, body = driver.create("q", node=change)

    assert (status, body["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert text in body["error"]["message"]
    assert driver.qr_state("q") == "HTTP 404"


@pytest.mark.parametrize("name", ["Big", "9q", "a_b", "a" * 64, "q-", ""])
def test_bad_ids_are_refused(name: str) -> None:
    assert a_driver().create(name)[0] == 400


def test_two_tiers_are_refused() -> None:
    status, body = a_driver().create("q", guaranteed={})
    assert status == 400
    assert "oneof field 'tier' is already set" in body["error"]["message"]


def test_node_spec_of_another_zone_is_refused() -> None:
    spec = {
        "parent": "projects/lab/locations/us-east5-a",
        "nodeId": "q",
        "node": {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"},
    }
    status, body = a_driver().create("q", tpu={"nodeSpec": [spec]})
    assert status == 400
    assert "is not in the location" in body["error"]["message"]


def test_zone_without_tpus_is_refused_in_the_services_words() -> None:
    status, body = a_driver().create("q", zone="asia-south1-a")
    assert status == 400
    assert body["error"]["message"].startswith(
        'Cloud TPU received a bad request. The requested zone "asia-south1-a" is not supported. [EID: 0x'
    )


def test_zone_that_was_not_granted_names_the_location_policy() -> None:
    status, body = a_driver(denied_zones=["us-central2-b"]).create("q")
    assert status == 403
    assert body["error"]["message"] == "Permission denied on 'locations/us-central2-b' (or it may not exist)."
    assert body["error"]["details"][0]["reason"] == "LOCATION_POLICY_VIOLATED"


def test_api_that_is_off_says_how_to_switch_it_on() -> None:
    status, body = a_driver(disabled_apis=["tpu"]).create("q")
    assert status == 403
    assert "has not been used in project lab before or it is disabled" in body["error"]["message"]
    assert body["error"]["details"][0]["reason"] == "SERVICE_DISABLED"


def test_missing_permission_names_itself() -> None:
    driver = a_driver(denied_permissions=["tpu.nodes.list"])
    status, body = driver.call("GET", f"{PARENT}/nodes")
    assert (status, body["error"]["status"]) == (403, "PERMISSION_DENIED")
    assert "'tpu.nodes.list' denied" in body["error"]["message"]
    assert driver.call("GET", f"{PARENT}/queuedResources")[0] == 200


def test_too_many_creates_a_minute_are_refused_until_the_minute_is_over() -> None:
    driver = a_driver(creates_per_minute=2)
    assert [driver.create(name)[0] for name in ("a", "b", "c")] == [200, 200, 429]
    driver.pass_time(60)
    assert driver.create("c")[0] == 200


def test_same_request_id_is_the_same_operation_and_has_one_effect() -> None:
    driver = a_driver()
    first = driver.create("q", request_id="one")
    driver.pass_time(60)
    again = driver.create("q", request_id="one")

    assert (again[0], again[1]["name"]) == (200, first[1]["name"])
    assert [call.effect for call in driver.cloud.calls] == [True, False]


def test_other_request_id_meets_a_taken_name() -> None:
    driver = a_driver()
    driver.create("q", request_id="one")
    status, body = driver.create("q", request_id="two")
    assert (status, body["error"]["status"]) == (409, "ALREADY_EXISTS")


def test_node_name_of_another_request_is_taken() -> None:
    driver = a_driver()
    driver.create("q")
    node = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
    status, body = driver.create("r", tpu={"nodeSpec": [{"nodeId": "q", "node": node}]})
    assert status == 409
    assert body["error"]["message"].endswith("nodes/q' already exists")


def test_output_only_fields_of_a_body_are_ignored() -> None:
    driver = a_driver()
    driver.create("q", state={"state": "ACTIVE"}, createTime="1970-01-01T00:00:00Z", node={"state": "READY", "id": "7"})
    assert driver.qr_state("q") == "CREATING"


def test_pages_hold_everything_once_while_names_come_and_go() -> None:
    driver = a_driver()
    for index in range(7):
        driver.create(f"q{index}")
    seen, token = [], ""
    while True:
        _, page = driver.call("GET", f"{PARENT}/queuedResources?pageSize=3&pageToken={token}")
        seen += [item["name"].rsplit("/", 1)[1] for item in page["queuedResources"]]
        token = page["nextPageToken"]
        if not token:
            break
        driver.create("a-first")  # sorts before the page that was read
    assert seen == [f"q{index}" for index in range(7)]


def test_wildcard_location_lists_all_zones_of_the_project_only() -> None:
    driver = a_driver()
    driver.create("a")
    driver.create("b", "v6e-4", zone="us-east5-a", node={"runtimeVersion": "v2-alpha-tpuv6e"})
    _, mine = driver.call("GET", "/v2/projects/lab/locations/-/queuedResources")
    _, strangers = driver.call("GET", "/v2/projects/other/locations/-/queuedResources")
    assert [item["name"].split("/")[3] for item in mine["queuedResources"]] == ["us-central2-b", "us-east5-a"]
    assert strangers["queuedResources"] == []


def test_enums_are_words_or_numbers_as_asked() -> None:
    driver = a_driver()
    driver.active("q")
    numbers = "?$alt=json;enum-encoding=int"
    _, words = driver.call("GET", f"{PARENT}/nodes/q?alt=json")
    _, node = driver.call("GET", f"{PARENT}/nodes/q{numbers}")
    _, queued = driver.call("GET", f"{PARENT}/queuedResources/q{numbers}")

    assert (words["state"], words["health"], words["apiVersion"]) == ("READY", "HEALTHY", "V2")
    assert (node["state"], node["health"], node["apiVersion"], node["acceleratorConfig"]["type"]) == (2, 1, 4, 7)
    assert queued["state"]["state"] == 6


def test_override_shows_raw_values_for_a_while() -> None:
    resource = {"resource": "us-central2-b/nodes/q", "fields": {"state": 99, "health": None}, "seconds": 100}
    driver = a_driver(overrides=[resource, {"resource": "us-central2-b/queuedResources/gone", "hidden": True}])
    driver.create("q")
    driver.create("gone")
    driver.pass_time(60)

    _, node = driver.call("GET", f"{PARENT}/nodes/q")
    assert node["state"] == 99
    assert "health" not in node
    assert driver.qr_state("gone") == "HTTP 404"
    _, listed = driver.call("GET", f"{PARENT}/queuedResources")
    assert [item["name"].rsplit("/", 1)[1] for item in listed["queuedResources"]] == ["q"]

    driver.pass_time(100)
    assert driver.node_state("q") == "READY"


@pytest.mark.parametrize(
    ("path", "first"),
    [("acceleratorTypes", "v4-1024"), ("runtimeVersions", "tpu-ubuntu2204-base")],
)
def test_catalogues_list_what_the_zone_offers(path: str, first: str) -> None:
    driver = a_driver()
    _, listed = driver.call("GET", f"{PARENT}/{path}")
    names = [item["name"].rsplit("/", 1)[1] for item in listed[path]]
    assert names[0] == first
    assert driver.call("GET", f"{PARENT}/{path}/{first}")[0] == 200
    assert driver.call("GET", f"{PARENT}/{path}/v3-8")[0] == 404


def test_unknown_paths_and_verbs_are_not_answered_as_something_else() -> None:
    driver = a_driver()
    assert driver.call("GET", "/v9/anything")[0] == 404
    assert driver.call("POST", f"{PARENT}/queuedResources/q:reimage", {})[0] == 501
