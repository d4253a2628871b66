"""Nothing survives the emulator, whoever runs it and however it ends."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from tpuctl.base import process
from tpuctl.emulator.machines import leftovers
from tpuctl.testing.machines import until

# An emulator in small: machines with daemons of every kind, one of them frozen.
EMULATOR = """
import asyncio, sys
from pathlib import Path
from tpuctl.base.clock import SystemClock
from tpuctl.emulator.events import *
from tpuctl.emulator.machines import ProcessMachines

SCRIPT = "setsid -f sleep 1000; setsid -f env -i sleep 1000; echo up > $HOME/up; exec sleep 1000"

async def main():
    root = Path(sys.argv[1])
    machines = ProcessMachines(root, Path(sys.executable), SystemClock(), lambda report: None, "http://127.0.0.1:9")
    await machines.start()
    for n in (1, 2):
        address = f"127.{sys.argv[2]}.{n}"
        vm = VmDescription(f"vm{n}", address, "p", "z", n, {"startup-script": SCRIPT})
        await machines.carry_out([VmStart(vm)])
    while not all((root / f"v{n}" / "home" / "up").exists() for n in (1, 2)):
        await asyncio.sleep(0.01)
    await machines.carry_out([VmFreeze("vm2")])
    for status in machines.processes():
        print(*(one.pid for one in status.processes), flush=True)
    print("ready", flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


# An ordinary user's uid, who may still read this environment where that lies in root's own home.
AS_NOBODY = (
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"),
    *("--bounding-set=-all,+dac_read_search", "--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search"),
)


async def story(root: Path, uid: int, prefix: tuple[str, ...] = ()) -> None:
    network = f"{64 + os.getpid() % 128}.{os.getpid() // 128 % 250 + 1}"
    argv = (*prefix, sys.executable, "-c", EMULATOR, str(root), network)
    emulator = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    assert emulator.stdout is not None
    try:
        pids: list[int] = []
        while (line := (await emulator.stdout.readline()).decode().strip()) != "ready":
            assert line, "the emulator ended early"
            pids += [int(pid) for pid in line.split()]
        machines = [one for pid in pids if (one := process.identify(pid)) is not None]
        assert {Path(f"/proc/{pid}").stat().st_uid for pid in pids} == {uid}
        assert len(machines) >= 8  # per machine: init, the script, two daemons
        assert len(leftovers(root)) >= 6  # one daemon of each has cleared its environment
    finally:
        emulator.kill()
        await emulator.wait()
    await until(lambda: not any(map(process.is_alive, machines)), "the machines to end with the emulator", limit_s=3)
    assert leftovers(root) == []


@pytest.mark.scenario
def test_machines_end_when_the_emulator_is_killed() -> None:
    root = Path(tempfile.mkdtemp(prefix="tpuemu-", dir="/tmp"))
    try:
        asyncio.run(story(root, os.getuid()))
    finally:
        shutil.rmtree(root)


@pytest.mark.root
def test_everything_works_for_an_ordinary_user() -> None:
    root = Path(tempfile.mkdtemp(prefix="tpuemu-", dir="/tmp"))
    os.chown(root, 65534, 65534)
    try:
        asyncio.run(story(root, 65534, AS_NOBODY))
    finally:
        for one in leftovers(root):
            process.send_signal(one, signal.SIGKILL)
        shutil.rmtree(root)
