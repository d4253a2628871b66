"""Showing a run's logs attempt after attempt, and following them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from tpuctl.base.clock import Clock
from tpuctl.base.errors import RetryLaterError

POLL_S = 0.5
PATIENCE_S = 300.0  # how long following bears an agent that cannot be reached
OVER = ("SUCCEEDED", "FAILED", "CANCELLED")


T = TypeVar("T")


class Chunk(Protocol):
    @property
    def data(self) -> bytes: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def complete(self) -> bool: ...


class LogsApi(Protocol):
    """What of AgentClient is needed here."""

    def run(self, name: str) -> dict[str, Any]: ...

    def read_logs(self, name: str, *, attempt: int, rank: int, offset: int) -> Chunk: ...


class Tail:
    def __init__(
        self,
        client: LogsApi,
        name: str,
        rank: int,
        clock: Clock,
        write: Callable[[bytes], object],
        flush: Callable[[], object],
        say: Callable[[str], None],
    ) -> None:
        self._client = client
        self._name = name
        self._rank = rank
        self._clock = clock
        self._write = write
        self._flush = flush
        self._say = say

    def show(self, attempt: int | None, *, follow: bool) -> None:
        """One attempt, or all; with `follow` until that attempt (or the run) is over."""
        number = attempt or 1
        while True:
            run = self._patiently(lambda: self._client.run(self._name), follow)
            if number <= int(run["attempt"]):
                self._say(header(run, number, self._rank))
                self._copy(number, follow=follow)
                if attempt is not None:
                    return
                number += 1
            elif not follow or run["state"] in OVER:
                if attempt is not None or not run["attempt"]:
                    self._say(f"{run['name']} is {run['state']} and has {run['attempt']} attempts: {run['reason']}")
                return
            else:
                self._clock.sleep(POLL_S)

    def _copy(self, attempt: int, *, follow: bool) -> None:
        offset = 0
        while True:
            chunk = self._patiently(functools.partial(self._read, attempt, offset), follow)
            self._write(chunk.data)
            self._flush()
            offset = chunk.next_offset
            if chunk.complete or (not chunk.data and not follow):
                return
            if not chunk.data:
                self._clock.sleep(POLL_S)

    def _read(self, attempt: int, offset: int) -> Chunk:
        return self._client.read_logs(self._name, attempt=attempt, rank=self._rank, offset=offset)

    def _patiently(self, ask: Callable[[], T], follow: bool) -> T:
        began_s = self._clock.monotonic()
        while True:
            try:
                return ask()
            except RetryLaterError:
                if not follow or self._clock.monotonic() - began_s > PATIENCE_S:
                    raise
                self._clock.sleep(2.0)


def header(run: dict[str, Any], number: int, rank: int) -> str:
    attempt: dict[str, Any] = next((each for each in run.get("attempts", ()) if each["n"] == number), {})
    on = ", ".join(each["slice"] for each in attempt.get("slices", ()))
    verdict = attempt.get("verdict") or "open"
    return f"=== {run['name']} attempt {number} on {on or '?'}, rank {rank}, {verdict} ==="
