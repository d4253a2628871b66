"""The loop around the rounds: what it asks of Ray and the cloud, and what it does with answers that do not come."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.agent.serving import StubPasses
from tests.agent.stage import DETECTION, EPOCH, ME, Stage, exited
from tpuctl.agent.dispatch import Dispatch, World
from tpuctl.agent.home import Bell, Home, Records, Scene
from tpuctl.agent.life import settings_of
from tpuctl.agent.ray_head import RayHead
from tpuctl.agent.ray_jobs import RayJob, RayUnavailableError
from tpuctl.agent.round import Round, Supervise
from tpuctl.base.files import write_json_atomic
from tpuctl.base.ids import QrName, Zone
from tpuctl.cloud.model import Known, Unknown
from tpuctl.fleet.model import RayView
from tpuctl.runs.model import CloudWord
from tpuctl.store.database import Store


@dataclass
class Played:
    stage: Stage
    jobs_fail: bool = False
    starts_fail: int = 0
    jobs_asked: int = 0
    questions: list[QrName] = field(default_factory=list)
    may_answer: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.rows = self.stage.living_rows()  # the store's connection is of this thread, the loop's calls are not

    def world(self) -> World:
        return World(lambda _: self.table(), lambda _: self, self.cloud)

    def table(self) -> RayView:
        return Known(self.stage.table(self.rows), self.stage.clock.now(), self.stage.clock.monotonic())

    def list(self) -> tuple[RayJob, ...]:
        self.jobs_asked += 1
        if self.jobs_fail:
            raise RayUnavailableError("no answer", 2.0)
        for supervisor in self.stage.supervisors.values():
            supervisor.act(self.stage.clock.now())
        return tuple(RayJob(job, each.status) for job, each in self.stage.supervisors.items())

    def start(self, supervise: Supervise) -> None:
        if self.starts_fail:
            self.starts_fail -= 1
            raise RayUnavailableError("no agent available to submit job", 2.0)
        self.stage.start(supervise)

    def cloud(self, zone: Zone, name: QrName) -> CloudWord:
        self.questions.append(name)
        assert self.may_answer.wait(5)
        return CloudWord(name, "taken", "SUSPENDED", self.stage.clock.now())


def play(
    stage: Stage, played: Played, story: Callable[[Dispatch, Home, StubPasses], Coroutine[Any, Any, None]]
) -> None:
    """The stage's own connection reads what the loop's writes."""

    async def run() -> None:
        records = Records(lambda: Store.open(stage.places.store, clock=stage.clock, create=False))
        passes = StubPasses(stage.clock)
        home = Home(ME, stage.places, stage.folders, records, Scene(), stage.clock, stage.chance, Bell(), passes.ask)
        one_round = Round(stage.folders, EPOCH, settings_of(DETECTION))
        try:
            await story(Dispatch(home, one_round, played.world(), passes), home, passes)
        finally:
            records.close()

    asyncio.run(run())


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    write_json_atomic(
        stage.places.ray_json,
        RayHead("127.0.0.1:1", "http://127.0.0.1:2", "2.60.0", "3.11.7", stage.clock.now()).document(),
    )
    return stage


def test_submission_that_failed_is_repeated_under_the_same_id(stage: Stage) -> None:
    played = Played(stage, starts_fail=2)
    stage.submit("digits")

    async def story(dispatch: Dispatch, home: Home, passes: StubPasses) -> None:
        for _ in range(5):
            await dispatch.once()
            stage.clock.advance(1.0)

    play(stage, played, story)

    run = stage.run("digits")
    assert stage.submitted == [f"{run.id}-{EPOCH}-1"]
    assert (run.state.value, run.attempts) == ("RUNNING", 1)


def test_jobs_that_cannot_be_listed_end_no_attempt(stage: Stage) -> None:
    played = Played(stage)
    stage.submit("digits")

    async def story(dispatch: Dispatch, home: Home, passes: StubPasses) -> None:
        for number in range(40):
            played.jobs_fail = number > 5
            await dispatch.once()
            stage.clock.advance(1.0)

    play(stage, played, story)

    assert stage.run("digits").state.value == "RUNNING"
    assert stage.run("digits").attempts == 1


def test_ray_is_not_asked_for_jobs_while_no_run_could_have_one(stage: Stage) -> None:
    played = Played(stage)

    async def story(dispatch: Dispatch, home: Home, passes: StubPasses) -> None:
        for _ in range(3):
            await dispatch.once()

    play(stage, played, story)

    assert played.jobs_asked <= 1


def test_cloud_is_asked_in_the_background_once_and_its_word_rings(stage: Stage) -> None:
    played = Played(stage)
    stage.submit("digits")

    async def story(dispatch: Dispatch, home: Home, passes: StubPasses) -> None:
        for _ in range(3):
            await dispatch.once()
            stage.clock.advance(1.0)
        (supervisor,) = stage.supervisors.values()
        supervisor.end(1, stage.clock.now(), "exits", exited(supervisor.running[1], 134, stage.clock.now()))
        for _ in range(4):  # the cloud hangs: rounds go on, and it is not asked again meanwhile
            await dispatch.once()
            stage.clock.advance(1.0)
        assert stage.run("digits").state.value == "RUNNING"
        assert len(played.questions) == 1
        home.dispatch_bell.ring()
        await home.dispatch_bell.wait(0.0)
        played.may_answer.set()
        async with asyncio.timeout(5):
            await home.dispatch_bell.wait(5.0)
        await dispatch.once()
        assert any("the cloud took" in reason for reason in passes.asked)

    play(stage, played, story)

    run = stage.run("digits")
    assert (run.preemptions, run.failures) == (1, 0)


def test_joined_and_lost_hosts_ask_for_a_pass(stage: Stage) -> None:
    played = Played(stage)
    name = stage.slice_of(0).name

    async def story(dispatch: Dispatch, home: Home, passes: StubPasses) -> None:
        await dispatch.once()
        assert passes.asked == []
        stage.lost_hosts.add((name, 1))
        await dispatch.once()
        stage.lost_hosts.clear()
        await dispatch.once()
        assert passes.asked == ["hosts were lost", "hosts joined"]

    play(stage, played, story)


def test_without_a_ray_head_nothing_is_asked_and_the_scene_says_why(stage: Stage) -> None:
    played = Played(stage)
    stage.places.ray_json.unlink()
    stage.submit("digits")

    async def story(dispatch: Dispatch, home: Home, passes: StubPasses) -> None:
        await dispatch.once()
        assert isinstance(home.scene.ray, Unknown)
        assert home.scene.ray_head is None

    play(stage, played, story)

    assert played.jobs_asked == 0
    assert stage.run("digits").state.value == "QUEUED"
