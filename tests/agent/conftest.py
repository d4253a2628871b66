"""A served agent: the real service on a real store behind a real socket on loopback."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.agent.stage import DETECTION, ME, a_cluster_spec, a_ready_slice
from tpuctl.agent.folders import Folders
from tpuctl.agent.home import Bell, Home, Records, Scene
from tpuctl.agent.life import claim_store
from tpuctl.agent.passes import Passes, PassResult
from tpuctl.agent.places import Places
from tpuctl.agent.service import build_service
from tpuctl.base.chance import SeededChance
from tpuctl.base.web import Answer, call
from tpuctl.spec.document import dump
from tpuctl.store.database import Store
from tpuctl.testing.clock import FakeClock

TOKEN = "the-cluster's-secret"


class StubPasses(Passes):
    """Passes whose child is a number."""

    def __init__(self, clock: FakeClock) -> None:
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


@dataclass
class Served:
    """The service in a thread of its own, and calls to it from the test's."""

    root: str
    home: Home
    passes: StubPasses
    clock: FakeClock
    loop: asyncio.AbstractEventLoop

    def call(
        self,
        method: str,
        path: str,
        document: Any = None,
        *,
        token: str = TOKEN,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        return call(
            method, self.root + path, document=document, body=body, headers=headers, token=token, timeout_s=10.0
        )

    def ok(self, method: str, path: str, document: Any = None) -> Any:
        answer = self.call(method, path, document)
        assert answer.status == 200, answer.text()
        return answer.document()

    def refused(self, method: str, path: str, document: Any = None, **options: Any) -> tuple[int, str, str]:
        answer = self.call(method, path, document, **options)
        error = answer.document()["error"]
        assert set(error) == {"kind", "message"}
        return answer.status, error["kind"], error["message"]

    def store(self, work: Callable[[Store], Any]) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(self.home.records.do(work), self.loop)
        return future.result(10)

    def put_spec(self, slices: int = 2) -> Any:
        return self.ok("PUT", "/v1/spec", {"document": json.loads(dump(a_cluster_spec(slices))), "text": "…"})

    def make_slices(self, count: int) -> None:
        def work(store: Store) -> None:
            with store.transaction() as tx:
                for slot in range(count):
                    tx.put_incarnation(a_ready_slice(slot, self.clock.now()))

        self.store(work)

    def submit(self, name: str = "digits", request_id: str = "request-1", **fields: Any) -> Any:
        spec = {"name": name, "command": "python train.py", **fields}
        return self.ok("POST", "/v1/runs", {"spec": spec, "bundle": "", "user": "ada", "request_id": request_id})


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    clock, places = FakeClock(), Places(tmp_path)
    records = Records(lambda: Store.open(places.store, clock=clock, create=True))
    loop = asyncio.new_event_loop()
    ready: Future[str] = Future()
    stop = asyncio.Event()
    passes = StubPasses(clock)
    home = Home(
        ME, places, Folders(places, ME, DETECTION), records, Scene(), clock, SeededChance(1), Bell(), passes.ask
    )

    async def serve() -> None:
        await records.do(lambda store: claim_store(store, ME))
        runner = web.AppRunner(build_service(home, passes, TOKEN), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        ready.set_result(f"http://{host}:{port}")
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        yield Served(ready.result(10), home, passes, clock, loop)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        records.close()
        loop.close()


@pytest.fixture
def unused_tcp_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
