"""A whole life of the agent in process: loops, service and end, with a Ray and a cloud that the test plays."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agent.serving import TOKEN
from tests.agent.stage import CLUSTER, DETECTION, EPOCH, ME, Stage, a_cluster_spec, a_ready_slice, exited
from tpuctl.agent.dispatch import World
from tpuctl.agent.life import Parts, claim_store, live, only_agent
from tpuctl.agent.places import Places
from tpuctl.agent.ray_head import RayHead, read_ray_head
from tpuctl.agent.ray_jobs import RayJob
from tpuctl.agent.round import Supervise
from tpuctl.base.chance import SeededChance
from tpuctl.base.clock import SystemClock
from tpuctl.base.errors import BusyError, StaleError, UserError
from tpuctl.base.files import write_json_atomic
from tpuctl.base.ids import ClusterName, Epoch, QrName, Zone
from tpuctl.client import AgentClient
from tpuctl.cloud.model import Known
from tpuctl.fleet.model import RayHost, RayTable, RayView
from tpuctl.runs.model import CloudWord
from tpuctl.runs.orders import RunFolder
from tpuctl.spec.document import dump
from tpuctl.store.database import Store
from tpuctl.testing.clock import FakeClock

CLOCK = SystemClock()
ADDRESS = "127.0.0.1"


class PlayedRay:
    """Ray's jobs and table; each supervisor acts whenever somebody looks."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def list(self) -> tuple[RayJob, ...]:
        for supervisor in self.stage.supervisors.values():
            supervisor.act(CLOCK.now())
        return tuple(RayJob(job, each.status) for job, each in self.stage.supervisors.items())

    def start(self, supervise: Supervise) -> None:
        self.stage.start(supervise)


def table(store: Path) -> RayView:
    hosts = tuple(
        RayHost(f"n{slot}{worker}", row.slice_name, row.name, worker, "boot", ADDRESS, 4)
        for slot in (0, 1)
        for row in [a_ready_slice(slot, CLOCK.now())]
        for worker in (0, 1)
    )
    return Known(RayTable(hosts, None), CLOCK.now(), CLOCK.monotonic())


def pass_command(_: str | None) -> Sequence[str]:
    return (sys.executable, "-S", "-E", "-c", "print('nothing to do')")


def parts_of(stage: Stage, port: int) -> Parts:
    def cloud(_: Zone, name: QrName) -> CloudWord:
        return CloudWord(name, "healthy", "ACTIVE", CLOCK.now())

    places = stage.places
    world = World(lambda _: table(places.store), lambda _: PlayedRay(stage), cloud)
    return Parts(
        identity=replace(ME, address=ADDRESS),
        places=places,
        open_store=lambda: Store.open(places.store, clock=CLOCK, create=True),
        world=world,
        pass_command=pass_command,
        detection=DETECTION,
        secret=TOKEN,
        port=port,
        clock=CLOCK,
        chance=SeededChance(3),
    )


async def until(client: AgentClient, name: str, state: str) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while (run := await asyncio.to_thread(client.run, name))["state"] != state:  # noqa: ASYNC110  # a real service
            await asyncio.sleep(0.05)
    return run


def in_a_life(stage: Stage, port: int, story: Callable[[AgentClient], Awaitable[None]]) -> None:
    async def both() -> None:
        end = asyncio.Event()
        life = asyncio.create_task(live(parts_of(stage, port), until=end))
        client = AgentClient(f"http://{ADDRESS}:{port}", TOKEN)
        try:
            async with asyncio.timeout(10):
                while not life.done() and not await asyncio.to_thread(_answers, client):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            await story(client)
        finally:
            end.set()
            await life

    asyncio.run(both())


def _answers(client: AgentClient) -> bool:
    from tpuctl.client import AgentUnreachableError

    try:
        return bool(client.health()["ok"])
    except AgentUnreachableError:
        return False


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    stage.store.close()
    write_json_atomic(
        stage.places.ray_json,
        {
            "address": "127.0.0.1:1",
            "dashboard": "http://127.0.0.1:2",
            "version": "2.60.0",
            "python": "3.11.7",
            "started_at": 1796000000.5,
        },
    )
    return stage


def test_run_is_dispatched_survives_an_agent_and_succeeds(stage: Stage, unused_tcp_port: int) -> None:
    async def first(client: AgentClient) -> None:
        await asyncio.to_thread(client.put_spec, json.loads(dump(a_cluster_spec())), "")
        await asyncio.to_thread(client.submit, {"name": "digits", "command": "x"}, "", "ada", "request-1")
        await until(client, "digits", "RUNNING")
        assert (await asyncio.to_thread(client.start_pass, wait=True))["summary"] == "nothing to do"
        assert (await asyncio.to_thread(client.head))["ray"]["address"] == "127.0.0.1:1"

    async def second(client: AgentClient) -> None:
        run = await until(client, "digits", "RUNNING")
        folder = RunFolder(stage.places.runs / run["id"])
        order = folder.order(1)
        assert order is not None
        (supervisor,) = stage.supervisors.values()
        supervisor.end(1, CLOCK.now(), "done", exited(order, 0, CLOCK.now()))
        run = await until(client, "digits", "SUCCEEDED")
        assert [attempt["verdict"] for attempt in run["attempts"]] == ["succeeded"]

    in_a_life(stage, unused_tcp_port, first)
    in_a_life(stage, unused_tcp_port, second)

    assert len(stage.submitted) == 1


def test_agent_listens_on_its_own_address_only(stage: Stage, unused_tcp_port: int) -> None:
    parts = replace(parts_of(stage, unused_tcp_port), identity=replace(ME, address="0.0.0.0"))

    with pytest.raises(UserError, match="one address"):
        asyncio.run(live(parts))


def test_there_is_one_agent_on_a_head(tmp_path: Path) -> None:
    lock = Places(tmp_path).lock
    with only_agent(lock), pytest.raises(BusyError), only_agent(lock):
        raise AssertionError("two agents hold the lock")
    with only_agent(lock):
        pass


def test_records_of_another_cluster_or_a_newer_head_are_left_alone(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.sqlite3", clock=FakeClock(), create=True)
    claim_store(store, ME)

    with pytest.raises(UserError, match="holds cluster"):
        claim_store(store, replace(ME, cluster=ClusterName("other")))
    with pytest.raises(StaleError, match="newer"):
        claim_store(store, replace(ME, epoch=Epoch("t6m8ga")))
    claim_store(store, replace(ME, epoch=Epoch("t6m8gc")))

    with store.snapshot() as tx:
        assert (tx.meta("cluster"), tx.meta("epoch")) == (CLUSTER, "t6m8gc")
        assert [event.kind for _, event in tx.events_since(0, 10)] == ["epoch", "epoch"]
    assert EPOCH == "t6m8gb"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"address": "x"}'])
def test_ray_json_that_does_not_read_means_that_ray_is_not_up(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ray.json"
    assert read_ray_head(path) is None
    path.write_text(text)

    head: RayHead | None = read_ray_head(path)

    assert head is None
