"""The loopback face: who may call, what a lost or slow answer does to others, the control API, the machines' seam."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tpuctl.base.clock import SystemClock
from tpuctl.base.errors import TpuctlError
from tpuctl.emulator.cloud import Cloud
from tpuctl.emulator.control import Control
from tpuctl.emulator.events import VmBooted, VmEvent, VmKill, VmStart
from tpuctl.emulator.scenario import parse_scenario
from tpuctl.emulator.service import Service, is_local_host
from tpuctl.testing.core_driver import PARENT, qr_body

TOKEN = "the-token"
QUICK = {"accepted": 0.01, "waiting": 0.02, "provisioning": 0.01, "suspending": 0.05, "deleting": 0.01}


class RecordingMachines:
    """Notes what it is told and reports each started machine as booted."""

    def __init__(self) -> None:
        self.seen: list[VmEvent] = []
        self.ended = False
        self.failing = False
        self.service: Service | None = None

    async def start(self) -> None:
        return

    async def carry_out(self, events: Sequence[VmEvent]) -> None:
        self.seen += events
        if self.failing:
            self.failing = False
            raise TpuctlError("no room for the machine")
        for event in events:
            if isinstance(event, VmStart) and self.service is not None:
                self.service.report(VmBooted(event.vm.name))

    async def stop(self) -> None:
        self.ended = True


class Running:
    def __init__(self, url: str, session: aiohttp.ClientSession, machines: RecordingMachines, service: Service) -> None:
        self.url, self.session, self.machines, self.service = url, session, machines, service

    async def control(self, verb: str, document: dict[str, Any] | None = None, token: str = TOKEN) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        async with self.session.post(f"{self.url}/emulator/v1/{verb}", json=document or {}, headers=headers) as answer:
            return answer.status, await answer.json()

    async def create(self, name: str, kind: str = "v4-8") -> None:
        url = f"{self.url}{PARENT}/queuedResources?queuedResourceId={name}"
        async with self.session.post(url, json=qr_body(name, kind, "us-central2-b")) as answer:
            assert answer.status == 200, await answer.text()

    async def node_state(self, name: str) -> str:
        async with self.session.get(f"{self.url}{PARENT}/nodes/{name}") as answer:
            return str((await answer.json()).get("state", answer.status))

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        for _ in range(200):
            if await holds():
                return
            await asyncio.sleep(0.02)
        raise AssertionError("it did not come to hold")

    async def ready(self, name: str, kind: str = "v4-8") -> None:
        async def is_ready() -> bool:
            return await self.node_state(name) == "READY"

        await self.create(name, kind)
        await self.until(is_ready)


@asynccontextmanager
async def running(**scenario: Any) -> AsyncIterator[Running]:
    settings = parse_scenario({"latencies": QUICK, "boot_by_themselves": False, **scenario})
    service = Service(Cloud(settings), SystemClock(), lambda line: None)
    control = Control(service, TOKEN, {"id": "x", "name": "test"})
    runner = web.AppRunner(service.app(control.add_routes), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    machines = RecordingMachines()
    machines.service = service
    task = asyncio.create_task(service.run(machines))
    try:
        async with aiohttp.ClientSession() as session:
            yield Running(f"http://127.0.0.1:{runner.addresses[0][1]}", session, machines, service)
    finally:
        service.stop()
        await task
        await runner.cleanup()
    assert machines.ended


def test_machines_are_started_and_their_report_makes_the_node_ready() -> None:
    async def story() -> None:
        async with running() as here:
            await here.ready("q", "v4-16")
            assert [e.vm.name for e in here.machines.seen if isinstance(e, VmStart)] == ["q-w-0", "q-w-1"]

    asyncio.run(story())


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://127.0.0.1"}, {"Host": "10.0.0.1:80"}])
def test_foreign_host_and_any_origin_are_refused(headers: dict[str, str]) -> None:
    async def story() -> None:
        async with running() as here, here.session.get(f"{here.url}{PARENT}/nodes", headers=headers) as answer:
            assert answer.status == 403

    asyncio.run(story())


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1:80", True),
        ("127.9.8.7", True),
        ("localhost:1", True),
        ("example.org", False),
        ("127.0.0.1.evil.org", False),
        ("", False),
        ("[::1]:80", False),
    ],
)
def test_local_names(host: str, local: bool) -> None:
    assert is_local_host(host) == local


def test_control_api_wants_the_token() -> None:
    async def story() -> None:
        async with running() as here:
            assert (await here.control("status", token="wrong"))[0] == 401
            status, document = await here.control("status")
            assert (status, document["nodes"]) == (200, [])

    asyncio.run(story())


def test_slow_and_hanging_calls_hold_up_nobody() -> None:
    async def story() -> None:
        async with running(faults=[{"kind": "hang-before", "path": "nodes$", "seconds": 30}]) as here:
            hanging = asyncio.create_task(here.session.get(f"{here.url}{PARENT}/nodes").__aenter__())
            await asyncio.sleep(0)
            async with asyncio.timeout(5):
                await here.ready("q")
            assert not hanging.done()
            hanging.cancel()

    asyncio.run(story())


def test_lost_answer_closes_the_connection_after_the_effect() -> None:
    async def story() -> None:
        async with running(faults=[{"kind": "lost-after", "method": "POST", "path": "queuedResources"}]) as here:
            with pytest.raises(aiohttp.ClientError):
                await here.create("q")
            async with here.session.get(f"{here.url}{PARENT}/queuedResources/q") as answer:
                assert answer.status == 200

    asyncio.run(story())


def test_control_verbs_reach_machines_nodes_capacity_and_faults() -> None:
    async def story() -> None:
        async with running() as here:
            await here.ready("q", "v4-16")
            assert await here.control("kill-host", {"node": "q", "worker": 1}) == (200, {"vm": "q-w-1"})

            async def killed() -> bool:
                return VmKill("q-w-1") in here.machines.seen

            await here.until(killed)
            assert await here.node_state("q") == "READY"  # the cloud does not notice

            rule = {"zone": "us-central2-b", "type": "v4", "chips": 8}
            _, table = await here.control("set-capacity", rule)
            assert table["capacity"] == [{"zone": "us-central2-b", "type": "v4", "chips": 8, "used": 8}]
            _, fault = await here.control("add-fault", {"kind": "error-before", "path": "nodes$"})
            async with here.session.get(f"{here.url}{PARENT}/nodes") as answer:
                assert answer.status == 503
            _, faults = await here.control("faults")
            assert [(each["id"], each["fired"]) for each in faults["faults"]] == [(fault["id"], 1)]

            await here.control("preempt", {"node": "q", "notice_s": 0})

            async def taken() -> bool:
                return await here.node_state("q") in ("PREEMPTED", "404")

            await here.until(taken)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("verb", "document", "text"),
    [
        ("preempt", {"node": "nobody"}, "there is no node 'nobody'; nodes: q"),
        ("kill-host", {"node": "q", "worker": 5}, "there is no worker 5"),
        ("reset-head", {"instance": "head"}, "no running instance 'head'; instances: none"),
        ("set-capacity", {"zone": "z", "type": "v9", "chips": 1}, "type 'v9' is no accelerator type"),
        ("add-fault", {"kind": "explode"}, "kind: Input should be"),
        ("add-fault", {"kind": "slow", "path": "("}, "is no pattern"),
    ],
)
def test_wrong_control_calls_say_what_is_wrong(verb: str, document: dict[str, Any], text: str) -> None:
    async def story() -> None:
        async with running() as here:
            await here.ready("q")
            status, body = await here.control(verb, document)
            assert status == 400
            assert text in body["error"]["message"]

    asyncio.run(story())


def test_call_log_and_history_tell_effects_and_labels() -> None:
    async def story() -> None:
        async with running() as here:
            await here.ready("q")
            _, log = await here.control("calls")
            _, history = await here.control("history")
            first = log["calls"][0]
            assert (first["method"], first["status"], first["effect"]) == ("POST", 200, True)
            assert first["labels"] == {"owner": "q"}
            assert first["resource"].endswith("queuedResources/q")
            assert not any(call["effect"] for call in log["calls"][1:])
            states = [change["state"] for change in history["history"] if "/nodes/" in change["resource"]]
            assert states == ["CREATING", "READY"]
            assert json.dumps(log)

    asyncio.run(story())


def test_machine_that_cannot_be_started_is_that_nodes_trouble_alone() -> None:
    async def story() -> None:
        async with running() as here:
            here.machines.failing = True
            await here.create("unlucky")

            async def tried() -> bool:
                return not here.machines.failing

            await here.until(tried)
            await here.ready("q")
            assert await here.node_state("unlucky") == "CREATING"

    asyncio.run(story())
