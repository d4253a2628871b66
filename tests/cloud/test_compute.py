"""The real Compute and Secret Manager clients on scripted answers: what is sent, and what becomes of the answers."""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import Any

import httplib2
import pytest

from tpuctl.base.ids import Zone
from tpuctl.base.units import Instant
from tpuctl.cloud.compute import OPERATION_LIMIT_S, RestCompute
from tpuctl.cloud.errors import AlreadyExistsError, NoCapacityError, NotFoundError, TransientError
from tpuctl.cloud.model import InstanceRequest
from tpuctl.cloud.secrets import RestSecrets
from tpuctl.testing.clock import FakeClock

ZONE = Zone("us-central1-a")
URL = "https://www.googleapis.com/compute/v1/projects/p"
REQUEST = InstanceRequest(
    "tpuctl-lab-head", ZONE, "e2-standard-4", {"tpuctl-cluster": "lab"}, {"k": "v"}, "tpuctl-lab-data", subnetwork="s"
)

Answer = tuple[int, Any] | Exception


class StubHttp:
    """Answers in order; the last one again and again."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[str, str, Any]] = []

    def request(self, uri: str, method: str = "GET", body: Any = None, **_: Any) -> tuple[httplib2.Response, bytes]:
        self.sent.append((method, uri, json.loads(body) if body else None))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, document = answer
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        return httplib2.Response({"status": str(status), "content-type": "application/json"}), content

    def close(self) -> None: ...


@cache
def compute_client() -> RestCompute:
    return RestCompute("http://cloud.test:1", "p", FakeClock())


@cache
def secrets_client() -> RestSecrets:
    return RestSecrets("http://cloud.test:1", "p")


def compute(*answers: Answer) -> tuple[RestCompute, StubHttp, FakeClock]:
    client, http, clock = compute_client(), StubHttp(*answers), FakeClock()
    client._http, client._clock = http, clock
    return client, http, clock


def secrets(*answers: Answer) -> tuple[RestSecrets, StubHttp]:
    client, http = secrets_client(), StubHttp(*answers)
    client._http, client._clock = http, FakeClock()
    return client, http


def an_instance(name: str = "tpuctl-lab-head") -> dict[str, Any]:
    return {
        "name": name,
        "zone": f"{URL}/zones/{ZONE}",
        "status": "RUNNING",
        "networkInterfaces": [{"networkIP": "10.0.0.2"}],
        "creationTimestamp": "2026-12-01T02:00:00.000-08:00",
        "labels": {"tpuctl-cluster": "lab"},
        "metadata": {"items": [{"key": "tpuctl-config", "value": "{}"}]},
    }


RUNNING = {"name": "op-1", "status": "RUNNING"}
DONE = {"name": "op-1", "status": "DONE"}


def failed(code: str, status: int = 400) -> dict[str, Any]:
    return DONE | {"error": {"errors": [{"code": code, "message": "no"}]}, "httpErrorStatusCode": status}


def test_instance_is_read_whole() -> None:
    client, http, _ = compute((200, an_instance()))

    found = client.get_instance(ZONE, "tpuctl-lab-head")

    assert (found.zone, found.status, found.address) == (ZONE, "RUNNING", "10.0.0.2")
    assert found.created == Instant.parse("2026-12-01T10:00:00Z")
    assert (found.labels, found.metadata) == ({"tpuctl-cluster": "lab"}, {"tpuctl-config": "{}"})
    assert "/compute/v1/projects/p/zones/us-central1-a/instances/tpuctl-lab-head" in http.sent[0][1]


def test_instances_of_all_zones_and_pages_are_found_by_label() -> None:
    first = {"items": {"zones/a": {"instances": [an_instance("a")]}, "zones/b": {}}, "nextPageToken": "2"}
    client, http, _ = compute((200, first), (200, {"items": {"zones/c": {"instances": [an_instance("c")]}}}))

    listing = client.find_instances("tpuctl-cluster", "lab")

    assert [item.name for item in listing.items] == ["a", "c"]
    assert listing.complete
    assert "filter=labels.tpuctl-cluster%3Dlab" in http.sent[0][1]
    assert "pageToken=2" in http.sent[1][1]


@pytest.mark.parametrize(
    "page",
    [
        {"items": {}, "unreachables": ["projects/p/zones/a"]},
        {"items": {"zones/a": {"warning": {"code": "UNREACHABLE"}}}},
        {"warning": {"code": "UNREACHABLE"}},
    ],
)
def test_unreachable_zone_makes_the_listing_incomplete(page: dict[str, Any]) -> None:
    instances, _, _ = compute((200, page))

    assert not instances.find_instances("a", "b").complete
    assert not instances.find_disks("a", "b").complete


def test_empty_zones_are_no_reason_to_doubt_the_listing() -> None:
    client, _, _ = compute((200, {"items": {"zones/a": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}}}))

    assert client.find_instances("a", "b").complete


def test_every_effect_carries_its_request_id() -> None:
    client, http, _ = compute((200, DONE))

    client.insert_instance(REQUEST, "request-1")
    client.delete_instance(ZONE, "head", "request-2")
    client.insert_disk(ZONE, "data", 10, {}, "request-3")
    client.delete_disk(ZONE, "data", "request-4")

    effects = [(method, uri) for method, uri, _ in http.sent if method != "GET" and "/wait" not in uri]
    assert [method for method, _ in effects] == ["POST", "DELETE", "POST", "DELETE"]
    assert [f"requestId=request-{number}" in uri for number, (_, uri) in enumerate(effects, 1)] == [True] * 4


def test_insert_sends_an_on_demand_vm_with_its_kept_data_disk() -> None:
    client, http, _ = compute((200, DONE))

    client.insert_instance(REQUEST, "request-1")

    method, uri, body = http.sent[0]
    assert (method, "requestId=request-1" in uri) == ("POST", True)
    assert body["scheduling"]["provisioningModel"] == "STANDARD"
    boot, data = body["disks"]
    assert (boot["boot"], boot["autoDelete"]) == (True, True)
    assert (data["deviceName"], data["autoDelete"]) == ("tpuctl-data", False)
    assert body["networkInterfaces"][0]["subnetwork"] == "projects/p/regions/us-central1/subnetworks/s"
    assert body["metadata"] == {"items": [{"key": "k", "value": "v"}]}


def test_operation_is_waited_for_until_it_is_done() -> None:
    client, http, clock = compute((200, RUNNING), (200, RUNNING), (200, RUNNING), (200, DONE))
    began_s = clock.monotonic()

    client.delete_instance(ZONE, "tpuctl-lab-head", "r")

    assert [uri.split("?")[0].rsplit("/", 1)[1] for _, uri, _ in http.sent[1:]] == ["wait"] * 3
    assert clock.monotonic() - began_s == pytest.approx(2.0)


def test_operation_that_is_done_and_has_failed_is_an_error() -> None:
    full, _, _ = compute((200, RUNNING), (200, failed("ZONE_RESOURCE_POOL_EXHAUSTED", 503)))
    with pytest.raises(NoCapacityError, match="tpuctl-lab-head"):
        full.insert_instance(REQUEST, "r")

    taken, _, _ = compute((200, failed("RESOURCE_ALREADY_EXISTS", 409)))
    with pytest.raises(AlreadyExistsError):
        taken.insert_instance(REQUEST, "r")


def test_operation_without_end_is_given_up_with_unknown_effect() -> None:
    client, _, clock = compute((200, RUNNING))
    began_s = clock.monotonic()

    with pytest.raises(TransientError) as caught:
        client.insert_disk(ZONE, "d", 20, {}, "r")

    assert caught.value.effect_unknown
    assert OPERATION_LIMIT_S < clock.monotonic() - began_s < OPERATION_LIMIT_S + 5


@pytest.mark.parametrize(
    ("failure", "effect_unknown"),
    [
        (ConnectionRefusedError("no"), False),
        (httplib2.ServerNotFoundError("no"), False),
        (TimeoutError("slow"), True),
        (ConnectionResetError("reset"), True),
    ],
)
def test_network_failure_says_whether_the_call_may_have_got_through(failure: Exception, effect_unknown: bool) -> None:
    client, http, _ = compute(failure)

    with pytest.raises(TransientError) as caught:
        client.insert_disk(ZONE, "d", 20, {}, "r")

    assert caught.value.effect_unknown is effect_unknown
    assert len(http.sent) == 1


def test_read_is_tried_again_and_not_found_is_not() -> None:
    client, http, _ = compute((503, {"error": {"code": 503, "message": "x"}}), (200, an_instance()))
    assert client.get_instance(ZONE, "a").name == "tpuctl-lab-head"
    assert len(http.sent) == 2

    gone, http, _ = compute((404, {"error": {"code": 404, "message": "x", "errors": [{"reason": "notFound"}]}}))
    with pytest.raises(NotFoundError):
        gone.get_instance(ZONE, "a")
    assert len(http.sent) == 1


def test_secret_travels_as_base64_and_comes_back() -> None:
    client, http = secrets((200, {}))
    client.create_secret("s", "value-1", {"a": "b"})
    assert http.sent[0][2] == {"replication": {"automatic": {}}, "labels": {"a": "b"}}
    assert base64.b64decode(http.sent[1][2]["payload"]["data"]) == b"value-1"

    reader, http = secrets((200, {"payload": {"data": base64.b64encode(b"value-1").decode()}}))
    assert reader.read_secret("s") == "value-1"
    assert "/v1/projects/p/secrets/s/versions/latest:access" in http.sent[0][1]


def test_taken_name_of_a_secret_adds_no_version() -> None:
    client, http = secrets((409, {"error": {"code": 409, "status": "ALREADY_EXISTS", "message": "exists"}}))

    with pytest.raises(AlreadyExistsError):
        client.create_secret("s", "value-1", {})

    assert len(http.sent) == 1


def test_secrets_value_is_in_no_error() -> None:
    client, _ = secrets((200, {}), (400, {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "bad"}}))
    with pytest.raises(Exception, match="version of secret 's'") as caught:
        client.create_secret("s", "hush-hush", {})
    broken, _ = secrets((200, {"payload": {"data": "aHVzaC1odXNo!"}}))
    with pytest.raises(TransientError) as unreadable:
        broken.read_secret("s")

    told = f"{caught.value!r} {caught.value} {unreadable.value!r} {unreadable.value.__cause__!r}"
    assert "hush" not in told
    assert "aHVzaC1odXNo" not in told


@pytest.mark.parametrize("answer", [(404, {"error": {"code": 404, "status": "NOT_FOUND", "message": "x"}}), (200, {})])
def test_secret_without_a_version_still_is_one(answer: Answer) -> None:
    client, _ = secrets(answer)

    assert client.has_secret("s") is (answer == (200, {}))
