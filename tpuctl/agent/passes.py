"""Passes on demand: `tpuctl reconcile` as a child process, one at a time, each minute and sooner when there is news.

A child, so that a pass can neither hold up nor take down the service, and so that cron can run the very same command.
Reasons to hurry coalesce: whatever is asked for while a pass runs is served by one pass that begins after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuctl.agent.answers import UnavailableError
from tpuctl.base.clock import Clock

PERIOD_S = 60.0
# Two seconds between passes that are asked for: a burst of reports (each host of a slice says `joined`) is one pass,
# and people do not notice two seconds in a matter of minutes. The first of a burst is served at once.
LEAST_GAP_S = 2.0
CHILD_LIMIT_S = 150.0  # reconcile's own deadline is 120 s; whoever overruns that hangs
PLAN_LIMIT_S = 90.0
KILL_AFTER_S = 5.0
LAST_OUTPUT_BYTES = 16 * 1024

EXIT_BUSY = 4

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PassResult:
    exit: int  # of the child; 1 also when it had to be killed
    summary: str


def gap_for(unchanged_s: float | None) -> float:
    """Seconds until the next pass while something is unfinished; None = nothing is.

    The cloud is only ever asked, so the wait should be in proportion to how long it has taken already: a slice that
    changed a moment ago is looked at every few seconds, one that has waited for an hour each minute.
    """
    if unchanged_s is None:
        return PERIOD_S
    return min(PERIOD_S, max(3.0, unchanged_s / 20.0))


def reconcile_command(python: str, data: Path, epoch: str, dashboard: str | None) -> tuple[str, ...]:
    ray = () if dashboard is None else ("--ray", dashboard)
    # -P: a directory named tpuctl below the current one must not be taken for the package.
    return (python, "-P", "-m", "tpuctl", "reconcile", "--store", str(data), "--epoch", epoch, *ray)


class Passes:
    def __init__(self, command: Callable[[], Sequence[str]], clock: Clock) -> None:
        self._command = command
        self._clock = clock
        self._asked = asyncio.Event()
        self._reasons: list[str] = []
        self._waiters: list[asyncio.Future[PassResult]] = []
        self._due_s = clock.monotonic()
        self._ended_s: float | None = None
        self.last: PassResult | None = None

    def ask(self, reason: str) -> None:
        """A pass soon, that begins after now."""
        if reason not in self._reasons:
            self._reasons.append(reason)
        self._asked.set()

    async def run(self, reason: str) -> PassResult:
        """The result of a pass that begins after now. Cancelling the wait leaves the pass alone."""
        future: asyncio.Future[PassResult] = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        self.ask(reason)
        return await future

    async def plan(self) -> dict[str, Any]:
        """What a pass that began now would do: the same planner, in a child of its own that takes no lock.

        Raises UnavailableError when the child fails or hangs.
        """
        child = await asyncio.create_subprocess_exec(
            *self._command(),
            "--dry-run",
            "--json",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(PLAN_LIMIT_S):
                output, errors = await child.communicate()
        except (TimeoutError, asyncio.CancelledError):
            await _end(child)
            raise
        try:
            document: dict[str, Any] = json.loads(output)
        except ValueError as error:
            raise UnavailableError(f"no plan could be made: {summary_of(errors, child.returncode or 1)}") from error
        return document

    def settle(self, gap_s: float) -> None:
        """The next pass is due no later than `gap_s` after the end of the last."""
        base_s = self._clock.monotonic() if self._ended_s is None else self._ended_s
        sooner_s = base_s + gap_s
        if sooner_s < self._due_s:
            self._due_s = sooner_s
            self._asked.set()  # look at the due time again

    async def loop(self) -> None:
        """For the service's life."""
        while True:
            await self._wait()
            await self._one()

    async def _wait(self) -> None:
        while True:
            now_s = self._clock.monotonic()
            earliest_s = now_s if self._ended_s is None else self._ended_s + LEAST_GAP_S
            due_s = earliest_s if self._reasons else max(self._due_s, earliest_s)
            if now_s >= due_s:
                return
            self._asked.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(due_s - now_s):
                    await self._asked.wait()

    async def _one(self) -> None:
        reasons, self._reasons = self._reasons, []
        waiters, self._waiters = self._waiters, []
        result = await self._child()
        self._ended_s = self._clock.monotonic()
        self._due_s = self._ended_s + PERIOD_S
        if result.exit == EXIT_BUSY:
            # Cron's pass holds the lock. Those who wait want one that begins later, so they stay and we ask again.
            self._waiters = waiters + self._waiters
            self._due_s = self._ended_s + LEAST_GAP_S
            return
        news, self.last = result != self.last, result
        if news:
            log.info("pass (%s): exit %d: %s", ", ".join(reasons) or "due", result.exit, result.summary)
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(result)

    async def _child(self) -> PassResult:
        child = await asyncio.create_subprocess_exec(
            *self._command(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(CHILD_LIMIT_S):
                output, _ = await child.communicate()
        except TimeoutError:
            await _end(child)
            return PassResult(1, f"the pass was killed: it took longer than {CHILD_LIMIT_S:g} s")
        except asyncio.CancelledError:
            await _end(child)
            raise
        status = child.returncode if child.returncode is not None else 1
        return PassResult(status if status >= 0 else 1, summary_of(output, status))


def summary_of(output: bytes, status: int) -> str:
    """The last line that says something: `reconcile` ends with its summary, or with what went wrong."""
    lines = output[-LAST_OUTPUT_BYTES:].decode("utf-8", "replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return last or f"no output; exit {status}"


async def _end(child: asyncio.subprocess.Process) -> None:
    """A pass that is killed is finished by the next one: that is its design."""
    if child.returncode is None:
        child.terminate()
    try:
        async with asyncio.timeout(KILL_AFTER_S):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()
