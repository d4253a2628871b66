"""A served agent: the real service on a real store behind a real socket on loopback."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agent.serving import TOKEN, StubPasses, serve
from tests.agent.stage import a_cluster_spec, a_ready_slice
from tpuctl.agent.home import Home
from tpuctl.agent.places import Places
from tpuctl.base.web import Answer, call
from tpuctl.spec.document import dump
from tpuctl.store.database import Store
from tpuctl.testing.clock import FakeClock


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
    clock = FakeClock()
    with serve(Places(tmp_path), clock) as service:
        yield Served(service.root, service.home, service.passes, clock, service.loop)


@pytest.fixture
def unused_tcp_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
