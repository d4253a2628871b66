"""The emulator's core with a hand on its clock, and a short way to call it: for tests that read its raw JSON."""

from __future__ import annotations

import json
from typing import Any

from tpuctl.base.units import Instant
from tpuctl.emulator.cloud import Cloud
from tpuctl.emulator.events import VmEvent
from tpuctl.emulator.scenario import Settings, parse_scenario
from tpuctl.emulator.wire import Request, Response

START = Instant(1_796_000_000.0)
ZONE = "us-central2-b"
PARENT = f"/v2/projects/lab/locations/{ZONE}"


class Driver:
    """The core with a hand on its clock."""

    def __init__(self, settings: Settings, seed: int = 1) -> None:
        self.now = START
        self.cloud = Cloud(settings, seed)
        self.events: list[VmEvent] = []
        self.pass_time(0)

    def pass_time(self, seconds: float) -> None:
        self.now = self.now.plus(seconds)
        self.events += self.cloud.advance(self.now)

    def send(self, method: str, url: str, body: dict[str, Any] | None = None) -> Response:
        data = b"" if body is None else json.dumps(body).encode()
        return self.cloud.handle(self.now, Request.from_url(method, url, {}, data))

    def call(self, method: str, url: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        response = self.send(method, url, body)
        return response.status, json.loads(response.body)

    def create(
        self, name: str, kind: str = "v4-8", *, zone: str = ZONE, request_id: str = "", **fields: Any
    ) -> tuple[int, dict[str, Any]]:
        body = qr_body(name, kind, zone, **fields)
        url = f"/v2/projects/lab/locations/{zone}/queuedResources?queuedResourceId={name}&requestId={request_id}"
        return self.call("POST", url, body)

    def create_node(
        self, name: str, kind: str = "v4-8", *, zone: str = ZONE, **fields: Any
    ) -> tuple[int, dict[str, Any]]:
        body = {"acceleratorType": kind, "runtimeVersion": "tpu-ubuntu2204-base"} | fields
        return self.call("POST", f"/v2/projects/lab/locations/{zone}/nodes?nodeId={name}", body)

    def operation(self, name: str) -> dict[str, Any]:
        """As it is now; `name` is what the call that began it answered."""
        status, document = self.call("GET", f"/v2/{name}")
        assert status == 200, document
        return document

    def qr_state(self, name: str) -> str:
        status, document = self.call("GET", f"{PARENT}/queuedResources/{name}")
        return str(document["state"]["state"]) if status == 200 else f"HTTP {status}"

    def node_state(self, name: str) -> str:
        status, document = self.call("GET", f"{PARENT}/nodes/{name}")
        return str(document["state"]) if status == 200 else f"HTTP {status}"

    def active(self, name: str, kind: str = "v4-8") -> None:
        """Create it and let it become ACTIVE with a READY node."""
        status, answer = self.create(name, kind)
        assert status == 200, answer
        self.pass_time(60)
        assert (self.qr_state(name), self.node_state(name)) == ("ACTIVE", "READY")


def qr_body(name: str, kind: str, zone: str, **fields: Any) -> dict[str, Any]:
    node = {
        "acceleratorType": kind,
        "runtimeVersion": "tpu-ubuntu2204-base",
        "labels": {"owner": name},
        "metadata": {"startup-script": "true"},
    } | fields.pop("node", {})
    spec = {"parent": f"projects/lab/locations/{zone}", "nodeId": name, "node": node}
    return {"spot": {}, "tpu": {"nodeSpec": [spec]}} | fields


def a_driver(**scenario: Any) -> Driver:
    return Driver(parse_scenario(scenario))
