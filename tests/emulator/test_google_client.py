"""One contract, two faces: google-cloud-tpu's REST client on the core in process and on the loopback port."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuRestTransport

from tpuctl.base.clock import SystemClock
from tpuctl.emulator import remote
from tpuctl.emulator.options import ServerOptions
from tpuctl.emulator.scenario import Latencies, Settings
from tpuctl.testing.clock import FakeClock
from tpuctl.testing.in_process import EmulatedCloud

PARENT = "projects/lab/locations/us-central2-b"
QUICK = {"accepted": 0.1, "waiting": 0.1, "provisioning": 0.1, "boot": 0.1, "suspending": 0.1, "deleting": 0.2}


@dataclass(frozen=True)
class Face:
    client: tpu_v2.TpuClient
    pause: Callable[[], None]

    def until(self, holds: Callable[[], bool]) -> None:
        """Let time pass until it holds; at most 200 short pauses."""
        for _ in range(200):
            if holds():
                return
            self.pause()
        raise AssertionError("it did not come to hold")

    def qr(self, name: str) -> Any:
        return self.client.get_queued_resource(name=f"{PARENT}/queuedResources/{name}", timeout=5)

    def is_gone(self, name: str) -> bool:
        try:
            self.qr(name)
        except exceptions.NotFound:
            return True
        return False


def in_process(_: Path) -> Iterator[Face]:
    clock = FakeClock()
    cloud = EmulatedCloud(clock, Settings(latencies=Latencies(**QUICK)))
    transport = TpuRestTransport(host="emulated.invalid", credentials=AnonymousCredentials(), url_scheme="http")
    transport._session.mount("http://", cloud.adapter())
    yield Face(tpu_v2.TpuClient(transport=transport), lambda: cloud.pass_time(0.05))


def over_rest(home: Path) -> Iterator[Face]:
    scenario = home / "quick.yaml"
    scenario.write_text(f"latencies: {QUICK}\n")
    state, _ = remote.start(ServerOptions(home, "contract", scenario=scenario, machines="none"), SystemClock())
    try:
        transport = TpuRestTransport(
            host=f"127.0.0.1:{state.port}", credentials=AnonymousCredentials(), url_scheme="http"
        )
        yield Face(tpu_v2.TpuClient(transport=transport), lambda: time.sleep(0.05))
        transport.close()
    finally:
        remote.stop(home, "contract", SystemClock())


@pytest.fixture(scope="module", params=[in_process, pytest.param(over_rest, marks=pytest.mark.scenario)])
def face(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    yield from request.param(tmp_path_factory.mktemp("face"))


def request_for(name: str, request_id: str) -> tpu_v2.CreateQueuedResourceRequest:
    node = {
        "accelerator_type": "v4-16",
        "runtime_version": "tpu-ubuntu2204-base",
        "labels": {"tpuctl-cluster": "lab"},
        "network_config": {"enable_external_ips": True},
    }
    tpu = {"node_spec": [{"parent": PARENT, "node_id": name, "node": node}]}
    return tpu_v2.CreateQueuedResourceRequest(
        parent=PARENT,
        queued_resource_id=name,
        request_id=f"00000000-0000-4000-8000-{request_id:>012}",
        queued_resource=tpu_v2.QueuedResource(spot={}, tpu=tpu),
    )


def test_slice_comes_is_described_and_goes(face: Face) -> None:
    face.client.create_queued_resource(request_for("whole", "1"), timeout=5)
    face.until(lambda: face.qr("whole").state.state.name == "ACTIVE")
    name = f"{PARENT}/nodes/whole"
    face.until(lambda: face.client.get_node(name=name, timeout=5).state.name == "READY")

    node, queued = face.client.get_node(name=name, timeout=5), face.qr("whole")
    assert node.queued_resource == queued.name
    assert dict(node.labels) == {"tpuctl-cluster": "lab"}
    assert len({endpoint.ip_address for endpoint in node.network_endpoints}) == 2
    assert node.network_endpoints[0].access_config.external_ip.startswith("203.0.113.")
    assert node.accelerator_config.type_.name == "V4"
    assert node.health.name == "HEALTHY"
    assert "spot" in queued
    assert queued.tpu.node_spec[0].node_id == "whole"

    with pytest.raises(exceptions.BadRequest, match="state ACTIVE"):
        face.client.delete_queued_resource(name=queued.name, timeout=5)
    delete = tpu_v2.DeleteQueuedResourceRequest(name=queued.name, force=True)
    face.client.delete_queued_resource(delete, timeout=5)
    face.until(lambda: face.is_gone("whole"))


def test_repeated_create_is_the_same_operation_and_a_stranger_meets_409(face: Face) -> None:
    first = face.client.create_queued_resource(request_for("twice", "7"), timeout=5)
    again = face.client.create_queued_resource(request_for("twice", "7"), timeout=5)
    assert again.operation.name == first.operation.name
    with pytest.raises(exceptions.Conflict, match="already exists"):
        face.client.create_queued_resource(request_for("twice", "8"), timeout=5)


def test_lists_are_read_over_pages_and_by_wildcard(face: Face) -> None:
    for index in range(5):
        face.client.create_queued_resource(request_for(f"page-{index}", f"2{index}"), timeout=5)
    asked = tpu_v2.ListQueuedResourcesRequest(parent="projects/lab/locations/-", page_size=2)
    names = [item.name.rsplit("/", 1)[1] for item in face.client.list_queued_resources(asked, timeout=5)]
    assert [name for name in names if name.startswith("page-")] == [f"page-{index}" for index in range(5)]


def test_errors_arrive_as_the_clients_classes(face: Face) -> None:
    with pytest.raises(exceptions.NotFound, match="was not found"):
        face.qr("nobody")
    wrong = request_for("wrong", "9")
    wrong.queued_resource.tpu.node_spec[0].node.accelerator_type = "v5p-8"
    with pytest.raises(exceptions.BadRequest, match="zonal accelerator configurations"):
        face.client.create_queued_resource(wrong, timeout=5)


def test_catalogue_and_locations_are_listed(face: Face) -> None:
    types = [item.type_ for item in face.client.list_accelerator_types(parent=PARENT, timeout=5)]
    versions = [item.version for item in face.client.list_runtime_versions(parent=PARENT, timeout=5)]
    assert "v4-16" in types
    assert "tpu-ubuntu2204-base" in versions
    locations = face.client.list_locations({"name": "projects/lab"}, timeout=5).locations
    assert "us-central2-b" in [location.location_id for location in locations]


def test_planted_faults_reach_the_caller_of_the_in_process_client() -> None:
    clock = FakeClock()
    cloud = EmulatedCloud(clock)
    transport = TpuRestTransport(host="emulated.invalid", credentials=AnonymousCredentials(), url_scheme="http")
    transport._session.mount("http://", cloud.adapter())
    client = tpu_v2.TpuClient(transport=transport)
    cloud.plant("lost-after", method="POST")
    cloud.plant("hang-before", method="GET", seconds=100)
    cloud.plant("slow", method="GET", seconds=3)
    before = clock.now()

    with pytest.raises(requests.exceptions.ConnectionError):
        client.create_queued_resource(request_for("q", "1"), timeout=5)
    with pytest.raises(requests.exceptions.ReadTimeout):
        client.get_queued_resource(name=f"{PARENT}/queuedResources/q", timeout=5)
    assert client.get_queued_resource(name=f"{PARENT}/queuedResources/q", timeout=5).name.endswith("/q")

    assert clock.now().since(before) == 5 + 3
    assert cloud.fired() == 3
