"""The real Cloud TPU client on a stub adapter: what it sends, and what becomes of what it gets."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
import urllib3
from requests.adapters import BaseAdapter

from tpuctl.base.ids import QrName, Zone
from tpuctl.base.units import Instant
from tpuctl.cloud.errors import AlreadyExistsError, BadRequestError, NotFoundError, TransientError
from tpuctl.cloud.model import Initiator, NodeHealth, NodeState, QrRequest, QrState, UnrecognisedState
from tpuctl.cloud.tpu import RestTpu
from tpuctl.testing.clock import FakeClock

ZONE = Zone("us-central2-b")
PARENT = f"projects/p/locations/{ZONE}"
NAME = QrName("lab-v4-0-t6m8gb-1")

Answer = tuple[int, Any] | Exception


class StubAdapter(BaseAdapter):
    """Answers in order; the last one again and again."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__()
        self.answers = list(answers)
        self.sent: list[requests.PreparedRequest] = []
        self.timeouts: list[Any] = []

    def send(  # type: ignore[override]  # requests passes these by keyword
        self, request: requests.PreparedRequest, *, timeout: Any = None, **_: Any
    ) -> requests.Response:
        self.sent.append(request)
        self.timeouts.append(timeout)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        response = requests.Response()
        response.status_code, body = answer
        response.raw = BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        response.request = request
        response.url = request.url or ""
        return response

    def close(self) -> None: ...

    def query(self, index: int) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.sent[index].url or "").query)


def api(*answers: Answer) -> tuple[RestTpu, StubAdapter, FakeClock]:
    adapter, clock = StubAdapter(*answers), FakeClock()
    return RestTpu("http://cloud.test:1", "p", clock, adapter=adapter), adapter, clock


def error(status: int, code: str, message: str = "no") -> Answer:
    return status, {"error": {"code": status, "status": code, "message": message}}


def a_qr(name: str = NAME, **changes: Any) -> dict[str, Any]:
    node = {"acceleratorType": "v4-16", "runtimeVersion": "r", "labels": {"tpuctl-cluster": "lab"}}
    return {
        "name": f"{PARENT}/queuedResources/{name}",
        "createTime": "2026-12-01T10:00:00.123456789Z",
        "spot": {},
        "tpu": {"nodeSpec": [{"parent": PARENT, "nodeId": name, "node": node}]},
        "state": {"state": 6},
    } | changes


REQUEST = QrRequest(
    NAME, ZONE, "v4-16", "tpu-ubuntu2204-base", {"tpuctl-cluster": "lab"}, {"startup-script": "#!"}, tags=("t",)
)


def test_every_page_is_read_and_joined() -> None:
    tpu, adapter, _ = api(
        (200, {"queuedResources": [a_qr("a")], "nextPageToken": "2"}), (200, {"queuedResources": [a_qr("b")]})
    )

    listing = tpu.list_queued_resources(ZONE)

    assert [item.name for item in listing.items] == ["a", "b"]
    assert listing.complete
    assert adapter.query(1)["pageToken"] == ["2"]


def test_unreachable_on_any_page_makes_the_listing_incomplete() -> None:
    tpu, _, _ = api((200, {"nodes": [], "nextPageToken": "2", "unreachable": [PARENT]}), (200, {"nodes": []}))

    assert not tpu.list_nodes(ZONE).complete


def test_queued_resource_is_read_whole() -> None:
    tpu, _, _ = api((200, a_qr(state={"state": 8, "stateInitiator": 2})))

    queued = tpu.get_queued_resource(ZONE, NAME)

    assert (queued.name, queued.zone, queued.state) == (NAME, ZONE, QrState.SUSPENDED)
    assert queued.initiator is Initiator.SERVICE
    assert (queued.node_ids, queued.accelerator_type, queued.spot) == ((NAME,), "v4-16", True)
    assert queued.labels == {"tpuctl-cluster": "lab"}
    assert queued.created is not None
    assert queued.created.since(Instant.parse("2026-12-01T10:00:00.123Z")) == pytest.approx(0.0, abs=0.001)
    assert queued.error is None


def test_reason_of_a_failed_request_is_kept() -> None:
    failed = {"state": 4, "failedData": {"error": {"code": 8, "message": "Quota 'X' exhausted. Limit 4 in zone z"}}}
    tpu, _, _ = api((200, a_qr(state=failed)))

    assert tpu.get_queued_resource(ZONE, NAME).error == "Quota 'X' exhausted. Limit 4 in zone z"


@pytest.mark.parametrize(("sent", "raw"), [(99, "99"), ("WHATEVER_NEW", "STATE_UNSPECIFIED"), (0, "STATE_UNSPECIFIED")])
def test_state_unknown_to_the_client_is_unrecognised_and_no_crash(sent: int | str, raw: str) -> None:
    tpu, _, _ = api((200, {"queuedResources": [a_qr(state={"state": sent})]}))
    nodes, _, _ = api((200, {"nodes": [{"name": f"{PARENT}/nodes/n", "state": sent}]}))

    assert tpu.list_queued_resources(ZONE).items[0].state == UnrecognisedState(raw)
    assert nodes.list_nodes(ZONE).items[0].state == UnrecognisedState(raw)


def test_queued_resource_without_state_is_unrecognised() -> None:
    document = a_qr()
    del document["state"]
    tpu, _, _ = api((200, document))

    assert tpu.get_queued_resource(ZONE, NAME).state == UnrecognisedState("STATE_UNSPECIFIED")


def test_node_is_read_whole_with_the_addresses_of_its_workers() -> None:
    document = {
        "name": f"{PARENT}/nodes/{NAME}",
        "state": "PREEMPTED",
        "health": "UNHEALTHY_MAINTENANCE",
        "healthDescription": "maintenance",
        "queuedResource": f"{PARENT}/queuedResources/{NAME}",
        "acceleratorType": "v4-16",
        "labels": {"tpuctl-n": "1"},
        "networkConfigs": [{"network": "a"}, {"network": "b"}],
        "networkEndpoints": [{"ipAddress": f"10.0.0.{n}"} for n in range(4)],
    }
    tpu, _, _ = api((200, document))

    node = tpu.get_node(ZONE, NAME)

    assert (node.state, node.health) == (NodeState.PREEMPTED, NodeHealth.UNHEALTHY_MAINTENANCE)
    assert (node.queued_resource, node.labels) == (NAME, {"tpuctl-n": "1"})
    assert node.addresses == ("10.0.0.0", "10.0.0.2")


def test_node_without_health_says_nothing_of_it() -> None:
    tpu, _, _ = api((200, {"name": f"{PARENT}/nodes/n", "state": 2}))

    assert tpu.get_node(ZONE, "n").health is None


def test_create_sends_one_spot_slice_under_its_request_id_and_a_time_limit() -> None:
    tpu, adapter, _ = api((200, {"name": f"{PARENT}/operations/op1"}))

    tpu.create_queued_resource(REQUEST, "11111111-2222-4333-8444-555555555555")

    sent = json.loads(adapter.sent[0].body or b"")
    assert adapter.query(0)["queuedResourceId"] == [NAME]
    assert adapter.query(0)["requestId"] == ["11111111-2222-4333-8444-555555555555"]
    assert sent["spot"] == {}
    assert sent["tpu"]["nodeSpec"][0]["nodeId"] == NAME
    node = sent["tpu"]["nodeSpec"][0]["node"]
    assert node["networkConfig"] == {"network": "default", "enableExternalIps": True}
    assert (node["labels"], node["tags"]) == ({"tpuctl-cluster": "lab"}, ["t"])
    assert adapter.timeouts == [20.0]


def test_no_token_travels_over_plain_http() -> None:
    tpu, adapter, _ = api((200, {"nodes": []}))

    tpu.list_nodes(ZONE)

    assert "authorization" not in {header.lower() for header in adapter.sent[0].headers}


def test_finished_operation_with_a_result_of_another_type_is_no_error() -> None:
    wrong = {"@type": "type.googleapis.com/google.cloud.tpu.v2.QueuedResource", "name": "x"}
    tpu, adapter, _ = api((200, {"name": "op", "done": True, "response": wrong}))

    tpu.delete_queued_resource(ZONE, NAME, "11111111-2222-4333-8444-555555555555")

    assert adapter.query(0)["force"] in (["True"], ["true"])
    assert adapter.query(0)["requestId"] == ["11111111-2222-4333-8444-555555555555"]


Call = Callable[[RestTpu], object]
CREATE: Call = lambda tpu: tpu.create_queued_resource(REQUEST, "id")  # noqa: E731  a table of calls
DELETE: Call = lambda tpu: tpu.delete_queued_resource(ZONE, NAME, "id")  # noqa: E731
GET: Call = lambda tpu: tpu.get_queued_resource(ZONE, NAME)  # noqa: E731


@pytest.mark.parametrize(
    ("call", "answer", "kind"),
    [
        (CREATE, error(409, "ALREADY_EXISTS"), AlreadyExistsError),
        (DELETE, error(404, "NOT_FOUND"), NotFoundError),
        (GET, error(404, "NOT_FOUND"), NotFoundError),
        (GET, error(400, "INVALID_ARGUMENT"), BadRequestError),
    ],
)
def test_refusal_is_raised_as_its_kind_after_one_call(call: Call, answer: Answer, kind: type[Exception]) -> None:
    tpu, adapter, _ = api(answer)

    with pytest.raises(kind, match=NAME):
        call(tpu)

    assert len(adapter.sent) == 1


def test_read_is_tried_three_times_on_the_clock_it_was_given() -> None:
    tpu, adapter, clock = api(error(503, "UNAVAILABLE"), error(500, "INTERNAL"), (200, a_qr()))
    began_s = clock.monotonic()

    assert tpu.get_queued_resource(ZONE, NAME).state is QrState.ACTIVE

    assert len(adapter.sent) == 3
    assert 0.0 < clock.monotonic() - began_s <= 5.0


def test_read_that_keeps_failing_is_reported() -> None:
    tpu, adapter, _ = api(error(503, "UNAVAILABLE"))

    with pytest.raises(TransientError):
        tpu.list_nodes(ZONE)

    assert len(adapter.sent) == 3


@pytest.mark.parametrize("call", [CREATE, DELETE])
def test_effect_is_never_repeated_by_the_client(call: Call) -> None:
    tpu, adapter, _ = api(error(503, "UNAVAILABLE"))

    with pytest.raises(TransientError) as caught:
        call(tpu)

    assert len(adapter.sent) == 1
    assert caught.value.effect_unknown


REFUSED = requests.ConnectionError(
    urllib3.exceptions.MaxRetryError(
        urllib3.HTTPConnectionPool("h"),
        "/",
        urllib3.exceptions.NewConnectionError(urllib3.connection.HTTPConnection("h"), "refused"),
    )
)


@pytest.mark.parametrize(
    ("failure", "effect_unknown"),
    [
        (REFUSED, False),
        (requests.ConnectTimeout("no route"), False),
        (requests.ReadTimeout("slow"), True),
        (requests.ConnectionError("reset by peer"), True),
        (requests.exceptions.ChunkedEncodingError("half an answer"), True),
    ],
)
def test_network_failure_says_whether_the_call_may_have_got_through(failure: Exception, effect_unknown: bool) -> None:
    tpu, _, _ = api(failure)

    with pytest.raises(TransientError) as caught:
        CREATE(tpu)

    assert caught.value.effect_unknown is effect_unknown
    assert ("may have taken effect" in str(caught.value)) is effect_unknown


@pytest.mark.parametrize("body", [b"<html>captive portal</html>", b'{"name": '])
def test_answer_that_is_not_json_is_transient_with_unknown_effect(body: bytes) -> None:
    tpu, _, _ = api((200, body))

    with pytest.raises(TransientError) as caught:
        CREATE(tpu)

    assert caught.value.effect_unknown


def test_real_refused_connection_has_no_effect() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        tpu = RestTpu(f"http://127.0.0.1:{taken.getsockname()[1]}", "p", FakeClock())

        with pytest.raises(TransientError, match="no connection") as caught:
            CREATE(tpu)

    assert not caught.value.effect_unknown
