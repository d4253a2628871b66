"""Reports to the agent, the watch for the notice, and the metadata client below them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tpuctl.base.clock import SystemClock
from tpuctl.base.ids import Epoch, PoolName, QrName, SliceName, Zone
from tpuctl.hosts.config import HostConfig
from tpuctl.hosts.identity import HostIdentity
from tpuctl.hosts.metadata import Metadata, MetadataError
from tpuctl.hosts.notice import NoticeWatch
from tpuctl.hosts.reports import Reports
from tpuctl.testing.web import Asked, Reply, ScriptedServer

HOST = HostConfig(
    PoolName("v4"), 0, Epoch("t6m8gb"), QrName("lab-v4-0-t6m8gb-1"), SliceName("v4-0"), Zone("z"), "v4-16", 2, 4
)
IDENTITY = HostIdentity(HOST, 1, "boot-1", "10.0.0.3")


class World:
    """One server that plays metadata server and agent. `agent_status` is what reports are answered with."""

    def __init__(self) -> None:
        self.agent_status = 200
        self.values: dict[str, str] = {}
        self.metadata_status = 200
        self.server = ScriptedServer(self._answer)
        self.metadata = Metadata(self.server.host)
        self.reports = Reports(IDENTITY, self.metadata, lambda: "secret")
        self.reports.agent = self.server.url

    def _answer(self, asked: Asked) -> Reply:
        if asked.path == "/v1/hosts/report":
            return Reply({}, status=self.agent_status)
        key = asked.path.removeprefix("/computeMetadata/v1/instance/").split("?")[0]
        if self.metadata_status != 200:
            return Reply(status=self.metadata_status)
        if asked.method == "PUT":
            return Reply()
        return Reply(self.values[key], headers={"ETag": "e1"}) if key in self.values else Reply(status=404)

    def told(self) -> list[dict[str, Any]]:
        return [asked.document() for asked in self.server.asked if asked.method == "POST"]

    def written(self) -> list[str]:
        return [asked.body.decode() for asked in self.server.asked if asked.method == "PUT"]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.server.close()


def test_a_report_says_who_and_is_told_once(world: World) -> None:
    assert world.reports.tell("joined") is True
    assert world.reports.tell("joined") is True

    assert world.told() == [
        {"incarnation": "lab-v4-0-t6m8gb-1", "worker": 1, "boot_id": "boot-1", "stage": "joined", "detail": ""}
    ]
    assert world.server.asked[0].headers["authorization"] == "Bearer secret"
    assert world.written() == ["joined"]


@pytest.mark.parametrize("status", [401, 403, 503])
def test_a_report_that_was_not_taken_is_sent_again(world: World, status: int) -> None:
    world.agent_status = status
    assert world.reports.tell("notice", "soon gone") is False

    world.agent_status = 200
    assert world.reports.tell("notice", "soon gone") is True

    assert [told["stage"] for told in world.told()] == ["notice", "notice"]
    assert world.written() == ["notice: soon gone"]


def test_a_report_that_the_agent_calls_wrong_is_not_repeated_for_ever(world: World) -> None:
    world.agent_status = 400
    world.reports.tell("joined")
    world.reports.tell("joined")

    assert len(world.told()) == 1


def test_before_the_head_is_known_a_stage_can_be_read_from_outside(world: World) -> None:
    world.reports.agent = ""

    assert world.reports.tell("booting") is False
    assert (world.told(), world.written()) == ([], ["booting"])

    world.reports.agent = world.server.url
    assert world.reports.deliver() is True
    assert [told["stage"] for told in world.told()] == ["booting"]


def test_guest_attributes_that_are_switched_off_harm_nothing(world: World) -> None:
    world.metadata_status = 403

    assert world.reports.tell("joined") is True


def test_the_notice_is_given_once_when_the_flag_turns(world: World) -> None:
    noticed = threading.Event()
    world.values["preempted"] = "FALSE"
    NoticeWatch(world.metadata, SystemClock(), noticed.set).start()
    assert not noticed.wait(0.05)

    world.values["preempted"] = "TRUE"

    assert noticed.wait(2)
    assert "wait_for_change=true" in world.server.asked[0].path
    assert "last_etag=e1" in world.server.asked[-1].path


def test_a_metadata_server_that_fails_is_an_error_and_a_missing_key_is_none(world: World) -> None:
    assert world.metadata.attribute("agent-worker-number") is None
    assert world.metadata.is_preempted() is False

    world.metadata_status = 503
    with pytest.raises(MetadataError, match="503"):
        world.metadata.is_preempted()

    world.metadata_status = 200
    with pytest.raises(MetadataError, match="no address"):
        world.metadata.own_address()
