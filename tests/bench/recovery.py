"""How long a run stands still: from a notice, and from a silent death, to the first step of the next attempt.

Two slices on the emulator, the second READY and free. Split into detection and verdict (up to the verdict's event),
launch (up to the moment when all ranks' processes exist) and the program's own start (up to its first step); beside it
a bare start of the same program on the same machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from statistics import median

from tests.scenarios import ledger
from tests.scenarios.stories import WORKER, World, a_world, attempts, held_by, state, steps_of, submit, write_cluster
from tpuctl.base.units import Instant
from tpuctl.emulator import remote
from tpuctl.emulator.state_file import running

STEP_S = 0.1


@dataclass(frozen=True)
class Split:
    verdict_s: float
    launch_s: float
    program_s: float

    @property
    def total_s(self) -> float:
        return self.verdict_s + self.launch_s + self.program_s


def wall_of(boottime_s: float) -> float:
    return boottime_s + time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def bare_start(world: World) -> float:
    """The program alone: from its start to its first step, in seconds, without the step's own pause."""
    own = world.storage / "bare"
    dev = own / "dev"
    dev.mkdir(parents=True, exist_ok=True)
    names = {"TPU_DEV_ROOT": str(dev), "TPUCTL_CHECKPOINT_DIR": str(own), "TPUCTL_RANK": "0", "TPUCTL_WORLD_SIZE": "1"}
    (own / "step").unlink(missing_ok=True)
    book = own / "ledger"
    book.unlink(missing_ok=True)
    began = time.time()
    argv = [sys.executable, str(WORKER), "--ledger", str(book), "--steps", "1", "--pause", str(STEP_S)]
    subprocess.run(argv, env=dict(os.environ) | names, check=True, stdout=subprocess.DEVNULL)
    (first,) = [line for line in ledger.read(book) if line["event"] == "step"]
    return wall_of(first["at"]) - began - STEP_S


def one_round(world: World, name: str, verb: str) -> Split:
    world.wait("both slices", lambda: all(row["phase"] == "READY" for row in world.slices().values()), 150)
    submit(world, name, "--steps", "100000", "--pause", str(STEP_S))
    world.wait("steps", lambda: steps_of(world, name) > 10)
    (place,) = held_by(world, name)
    node = world.slices()[place]["queued_resource"]
    emulator = running(world.home, "default")
    assert emulator is not None
    began = time.time()
    if verb == "preempt":
        remote.ask(emulator, "preempt", {"node": node})
    else:
        remote.ask(emulator, "kill-host", {"node": node, "worker": 1})
    book = world.storage / "ledger"

    def first_step() -> float | None:
        steps = [line for line in ledger.read(book) if line["TPUCTL_RUN"] == name and line["event"] == "step"]
        return next((wall_of(line["at"]) for line in steps if line["TPUCTL_ATTEMPT"] == "2"), None)

    stepped = world.wait("the next attempt's first step", first_step, 90)
    events = world.agent().events()["events"]
    verdict = next(row for row in events if row["kind"] == "verdict" and row["subject"] == name)
    judged = Instant.parse(verdict["at"]).unix_s
    started = Instant.parse(attempts(world, name)[1]["started_at"]).unix_s
    world.run("cancel", name)
    world.wait("the end", lambda: state(world, name) == "CANCELLED")
    return Split(judged - began, started - judged, stepped - started - STEP_S)


def bench(rounds: int) -> None:
    with a_world() as world:
        write_cluster(world)
        world.run("up", "--wait", "all", timeout_s=200)
        seen: dict[str, list[Split]] = {"notice": [], "silent death": []}
        bare: list[float] = []
        for turn in range(rounds):
            bare.append(bare_start(world))
            seen["notice"].append(one_round(world, f"notice-{turn}", "preempt"))
            seen["silent death"].append(one_round(world, f"death-{turn}", "kill-host"))
            print(
                f"  round {turn + 1}: " + ", ".join(f"{rows[-1].total_s:.1f} s" for rows in seen.values()), flush=True
            )
        world.run("down", "--yes", timeout_s=150)
    base = median(bare)
    print(f"  {'to first step':<14} {'total':>7} {'verdict':>8} {'launch':>7} {'program':>8}   bare start {base:.2f} s")
    for name, rows in seen.items():
        parts = [
            median(getattr(row, part) for row in rows) for part in ("total_s", "verdict_s", "launch_s", "program_s")
        ]
        shown = f"{parts[0]:6.1f}s {parts[1]:7.1f}s {parts[2]:6.1f}s {parts[3]:7.2f}s"
        print(f"  {name:<14} {shown}   program {parts[3] / base:.1f} x bare")
