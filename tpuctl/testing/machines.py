"""A laboratory of emulated machines for tests: real processes on a short root of its own, nothing left afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tpuctl.base.clock import SystemClock
from tpuctl.emulator.events import GuestAttribute, VmBooted, VmDescription, VmReport, VmStart
from tpuctl.emulator.machines import ProcessMachines, VmStatus, leftovers

LOOK_AGAIN_S = 0.01


@dataclass
class MachineLab:
    root: Path
    machines: ProcessMachines
    reports: list[VmReport] = field(default_factory=list)
    started: int = 0

    async def vm(
        self,
        script: str | None = None,
        *,
        name: str = "vm",
        attributes: Mapping[str, str] | None = None,
        chips: int = 0,
        disks: tuple[str, ...] = (),
    ) -> VmStatus:
        """Start a machine that runs this startup script."""
        self.started += 1
        given = dict(attributes or {}) | ({} if script is None else {"startup-script": script})
        vm = VmDescription(
            name, lab_address(self.started), "project", "us-central2-b", 1000 + self.started, given, chips, disks, True
        )
        await self.machines.carry_out([VmStart(vm)])
        return self.status(name)

    def status(self, name: str = "vm") -> VmStatus:
        return next(status for status in self.machines.processes() if status.name == name)

    def booted(self) -> list[str]:
        return [report.name for report in self.reports if isinstance(report, VmBooted)]

    def guest_attributes(self) -> list[tuple[str, str, str]]:
        return [(r.namespace, r.key, r.value) for r in self.reports if isinstance(r, GuestAttribute)]

    async def text(self, path: Path, *, lines: int = 1) -> str:
        """The file's text as soon as it has that many whole lines."""
        await until(lambda: path.exists() and path.read_text().count("\n") >= lines, f"{lines} lines in {path}")
        return path.read_text()


def lab_address(number: int) -> str:
    """A loopback address of this process: labs of parallel test workers do not share one."""
    pid = os.getpid()
    return f"127.{64 + pid % 128}.{pid // 128 % 250 + 1}.{number}"


async def until(holds: Callable[[], bool], what: str, *, limit_s: float = 20.0) -> None:
    """Look again until it holds. Raises AssertionError, with what was awaited, when the time is over."""
    try:
        async with asyncio.timeout(limit_s):
            while not holds():  # noqa: ASYNC110  (what is awaited happens in other processes)
                await asyncio.sleep(LOOK_AGAIN_S)
    except TimeoutError:
        raise AssertionError(f"not within {limit_s} s: {what}") from None


@contextlib.asynccontextmanager
async def machine_lab() -> AsyncIterator[MachineLab]:
    root = Path(tempfile.mkdtemp(prefix="tpuemu-", dir="/tmp"))
    reports: list[VmReport] = []
    machines = ProcessMachines(root, Path(sys.executable), SystemClock(), reports.append, "http://127.0.0.1:9")
    try:
        await machines.start()
        try:
            yield MachineLab(root, machines, reports)
        finally:
            await machines.stop()
        assert leftovers(root) == []
    finally:
        shutil.rmtree(root)
