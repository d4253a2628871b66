"""The real service of an agent, on a real store, behind a real socket on loopback, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

from aiohttp import web

from tests.agent.stage import DETECTION, ME
from tpuctl.agent.folders import Folders
from tpuctl.agent.home import Bell, Home, Records, Scene
from tpuctl.agent.life import claim_store
from tpuctl.agent.passes import Passes, PassResult
from tpuctl.agent.places import Places
from tpuctl.agent.service import build_service
from tpuctl.base.chance import SeededChance
from tpuctl.base.clock import Clock
from tpuctl.store.database import Store

TOKEN = "the-cluster's-secret"


class StubPasses(Passes):
    """Passes whose child is a number."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(lambda: (), clock)
        self.asked: list[str] = []
        self.result: PassResult | None = PassResult(0, "nothing to do")

    def ask(self, reason: str) -> None:
        self.asked.append(reason)

    async def run(self, reason: str) -> PassResult:
        self.ask(reason)
        if self.result is None:
            await asyncio.sleep(3600)
        assert self.result is not None
        return self.result


@dataclass(frozen=True, slots=True)
class Service:
    root: str  # URL
    home: Home
    passes: StubPasses
    loop: asyncio.AbstractEventLoop


@contextmanager
def serve(places: Places, clock: Clock, address: str = "127.0.0.1", port: int = 0) -> Iterator[Service]:
    """`port` 0: any that is free."""
    records = Records(lambda: Store.open(places.store, clock=clock, create=True))
    loop = asyncio.new_event_loop()
    ready: Future[str] = Future()
    stop = asyncio.Event()
    passes = StubPasses(clock)
    home = Home(
        ME, places, Folders(places, ME, DETECTION), records, Scene(), clock, SeededChance(1), Bell(), passes.ask
    )

    async def work() -> None:
        await records.do(lambda store: claim_store(store, ME))
        runner = web.AppRunner(build_service(home, passes, TOKEN), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, address, port).start()
        host, bound = runner.addresses[0][:2]
        ready.set_result(f"http://{host}:{bound}")
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(work()))
    thread.start()
    try:
        yield Service(ready.result(10), home, passes, loop)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        records.close()
        loop.close()
