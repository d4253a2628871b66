"""What the cloud says of a slice for a verdict, asked of the emulated cloud by Google's real client."""

from __future__ import annotations

import pytest

from tpuctl.agent.cloud_words import ask_cloud
from tpuctl.base.ids import QrName, Zone
from tpuctl.cloud.errors import CredentialsError, NotFoundError
from tpuctl.cloud.model import Node, QrRequest, TpuApi
from tpuctl.cloud.tpu import RestTpu
from tpuctl.testing.clock import FakeClock
from tpuctl.testing.in_process import EmulatedCloud

ZONE, NAME = Zone("us-central2-b"), QrName("lab-v4-0-t6m8gb-1")


class WithoutNodes(RestTpu):
    def get_node(self, zone: Zone, node_id: str) -> Node:
        raise NotFoundError(f"get node {node_id!r} in {zone}: not found")


@pytest.fixture
def emulated() -> EmulatedCloud:
    return EmulatedCloud(FakeClock())


def a_slice(emulated: EmulatedCloud, kind: type[RestTpu] = RestTpu) -> RestTpu:
    tpu = kind(EmulatedCloud.ENDPOINT, "p", emulated.clock, adapter=emulated.adapter())
    request = QrRequest(NAME, ZONE, "v4-16", "tpu-ubuntu2204-base", {"tpuctl-cluster": "lab"}, {})
    tpu.create_queued_resource(request, "1c3a4a39-8a4a-4b0c-9f5d-1d1f6f7a1a11")
    emulated.pass_time(300.0)
    return tpu


def test_slice_that_works_is_healthy(emulated: EmulatedCloud) -> None:
    tpu = a_slice(emulated)

    word = ask_cloud(lambda: tpu, ZONE, NAME, emulated.clock)

    assert (word.state, word.node_gone) == ("healthy", False)


def test_queued_resource_that_is_not_there_is_taken_but_proves_nothing_of_its_node(emulated: EmulatedCloud) -> None:
    tpu = a_slice(emulated)

    word = ask_cloud(lambda: tpu, ZONE, QrName("lab-v4-7-t6m8gb-1"), emulated.clock)

    assert (word.state, word.node_gone) == ("taken", False)


def test_node_that_is_not_there_needs_no_fence(emulated: EmulatedCloud) -> None:
    tpu = a_slice(emulated, WithoutNodes)

    word = ask_cloud(lambda: tpu, ZONE, NAME, emulated.clock)

    assert (word.state, word.node_gone) == ("taken", True)


def test_client_without_credentials_is_an_unknown_and_not_the_agents_end(emulated: EmulatedCloud) -> None:
    def client() -> TpuApi:
        raise CredentialsError("use https://tpu.googleapis.com: no usable credentials")

    word = ask_cloud(client, ZONE, NAME, emulated.clock)

    assert word.state == "unknown"
    assert "no usable credentials" in word.text
