"""The loop: each second and on events look at Ray and the folders, plan, carry out, and leave the rest for next time.

The round itself runs on the thread of the records (agent/round.py). Here is what waits for others: Ray's tables, the
submission of supervisors, the cloud's word. None of them holds up the next round for longer than its own time limit,
and a failure of any is `unknown`, from which nothing follows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from tpuctl.agent.home import Home
from tpuctl.agent.passes import Passes, gap_for
from tpuctl.agent.ray_head import RayHead, read_ray_head
from tpuctl.agent.ray_jobs import RayJob
from tpuctl.agent.round import Question, Round, RoundResult, Supervise
from tpuctl.agent.views import Jobs, Seen
from tpuctl.base.errors import TpuctlError
from tpuctl.base.ids import QrName, RunId, Zone
from tpuctl.cloud.model import Known, Unknown
from tpuctl.fleet.model import RayView
from tpuctl.runs.model import CloudWord

PERIOD_S = 1.0
WORD_LIFE_S = 300.0  # older words are of no verdict that is still open
ASK_AGAIN_S = 2.0  # between two questions about one slice
CLOUD_THREADS = 8

log = logging.getLogger(__name__)


class JobService(Protocol):
    """Supervisors as Ray's jobs. Every call raises TpuctlError when Ray cannot be asked."""

    def list(self) -> tuple[RayJob, ...]: ...

    def start(self, supervise: Supervise) -> None:
        """Idempotent: the same job id runs once (A42)."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """What the loop asks, each with its own time limit. All are called on threads."""

    table: Callable[[RayHead], RayView]
    jobs: Callable[[RayHead], JobService]
    cloud: Callable[[Zone, QrName], CloudWord]


class Dispatch:
    def __init__(self, home: Home, one_round: Round, world: World, passes: Passes) -> None:
        self._home = home
        self._round = one_round
        self._world = world
        self._passes = passes
        self._words: dict[QrName, CloudWord] = {}
        self._asked_s: dict[QrName, float] = {}
        self._answers: dict[QrName, asyncio.Future[CloudWord]] = {}
        # Threads of their own: a cloud that hangs on many slices at once must not keep Ray from being asked.
        self._cloud_threads = ThreadPoolExecutor(CLOUD_THREADS, thread_name_prefix="cloud-word")
        self._supervised = 1  # until the first round has counted: ask for the jobs
        self._joined: frozenset[tuple[str, int]] | None = None
        self._demand: frozenset[RunId] = frozenset()

    async def loop(self) -> None:
        """For the service's life."""
        while True:
            result = await self.once()
            # A decision often opens the next one (a verdict frees slices): do not let a second pass in between.
            await self._home.dispatch_bell.wait(0.05 if result.changed else PERIOD_S)

    async def once(self) -> RoundResult:
        seen = await self._look()
        now = self._home.clock.now()
        result = await self._home.records.do(lambda store: self._round.carry_out(store, seen, now))
        self._home.scene.waits = result.waits
        self._supervised = result.supervised
        if result.demand - self._demand:
            self._passes.ask("new demand")
        self._demand = result.demand
        unsettled = result.unsettled_since
        self._passes.settle(gap_for(None if unsettled is None else max(0.0, now.since(unsettled))))
        for question in result.questions:
            self._ask(question)
        if result.supervise:
            await self._submit(result.supervise)
        return result

    async def _look(self) -> Seen:
        scene = self._home.scene
        scene.ray_head = head = await asyncio.to_thread(read_ray_head, self._home.places.ray_json)
        if head is None:
            scene.ray = Unknown("the Ray head is not up: there is no ray.json yet")
            return Seen(scene.ray, None, self._fresh_words())
        table = asyncio.to_thread(self._world.table, head)
        jobs = asyncio.to_thread(self._list_jobs, head)
        scene.ray, seen_jobs = await asyncio.gather(table, jobs)
        self._watch_hosts(scene.ray)
        return Seen(scene.ray, seen_jobs, self._fresh_words())

    def _list_jobs(self, head: RayHead) -> Jobs:
        if not self._supervised:
            return {}  # no supervisor's state matters: spare Ray the question each second
        try:
            return {job.submission_id: job for job in self._world.jobs(head).list()}
        except TpuctlError as error:
            log.debug("jobs unknown: %s", error)
            return None

    def _watch_hosts(self, ray: RayView) -> None:
        """A host that joined or was lost is news for the fleet: its slice's phase is a pass's to change."""
        if not isinstance(ray, Known):
            return
        joined = frozenset((host.incarnation, host.worker) for host in ray.value.hosts)
        if self._joined is not None and joined != self._joined:
            self._passes.ask("hosts joined" if joined > self._joined else "hosts were lost")
        self._joined = joined

    async def _submit(self, wanted: tuple[Supervise, ...]) -> None:
        head = self._home.scene.ray_head
        if head is None:
            return
        service = self._world.jobs(head)
        for supervise in wanted:
            try:
                await asyncio.to_thread(service.start, supervise)
            except TpuctlError as error:
                log.warning("supervisor %s not started yet: %s", supervise.job, error)

    def _fresh_words(self) -> tuple[CloudWord, ...]:
        for name, answer in list(self._answers.items()):
            if answer.done():
                self._words[name] = word = self._answers.pop(name).result()
                if word.state == "taken":
                    self._passes.ask(f"the cloud took {name}")
        now = self._home.clock.now()
        self._words = {name: word for name, word in self._words.items() if now.since(word.asked_at) < WORD_LIFE_S}
        return tuple(self._words.values())

    def _ask(self, question: Question) -> None:
        """In the background, one question a slice at a time; the answer rings the bell."""
        name, now_s = question.incarnation, self._home.clock.monotonic()
        if name in self._answers or now_s - self._asked_s.get(name, -ASK_AGAIN_S) < ASK_AGAIN_S:
            return
        self._asked_s[name] = now_s
        loop = asyncio.get_running_loop()
        answer = loop.run_in_executor(self._cloud_threads, self._world.cloud, question.zone, name)
        answer.add_done_callback(lambda _: self._home.dispatch_bell.ring())
        self._answers[name] = answer
