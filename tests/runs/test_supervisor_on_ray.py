"""Whole attempts on a real Ray cluster with fake hosts: the supervisor as a process, orders and outcomes as files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tpuctl.base.ids import Epoch, PoolName, QrName, RunId, RunName, SliceName, Zone
from tpuctl.base.process import processes_with_environment
from tpuctl.base.units import Instant
from tpuctl.runs.model import Outcome
from tpuctl.runs.orders import Order, OrderedSlice, RunDocument, RunFolder, StopOrder

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(400)]

EPOCH = Epoch("t6m8gb")


def until(condition: Callable[[], Any], limit_s: float, what: str) -> Any:
    give_up_s = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < give_up_s, f"no {what} within {limit_s:.0f} s"
        time.sleep(0.05)
    return value


class Stage:
    """One run with its supervisor, on the lab's slices."""

    def __init__(self, lab: Any, path: Path, name: str, command: str | tuple[str, ...]) -> None:
        self.lab, self.folder, self.run_id = lab, RunFolder(path / name), f"{name}-{os.getpid()}"
        self.folder.create(
            RunDocument(
                RunName(name),
                RunId(self.run_id),
                EPOCH,
                command,
                (("MODE", "a=b=c=="),),
                str(path / "checkpoints"),
                5.0,
                "",
                5.0,
                10.0,
                PoolName("v4"),
            )
        )
        environment = {**lab.environment, "RAY_ADDRESS": lab.gcs, "TPUCTL_VM_DIR": str(lab.root / "head")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tpuctl.runs.supervisor", str(self.folder.path), "1"], env=environment
        )

    def order(self, attempt: int, *names: str) -> None:
        slices = tuple(
            OrderedSlice(SliceName(name), QrName(f"lab-{name}-{EPOCH}-1"), Zone("z"), PoolName("v4"), "v4-16", 2, 4)
            for name in names
        )
        self.folder.write_order(Order(attempt, EPOCH, 1, slices, Instant(time.time())))

    def outcome(self, attempt: int, limit_s: float = 90) -> Outcome:
        found: Outcome = until(lambda: self.folder.outcome(attempt), limit_s, f"outcome of attempt {attempt}")
        return found

    def log(self, attempt: int, rank: int) -> str:
        path = self.folder.log_path(attempt, rank)
        return path.read_text() if path.exists() else ""

    def living(self) -> list[Any]:
        return processes_with_environment(f"TPUCTL_RUN_ID={self.run_id}\0")

    def close(self) -> None:
        self.folder.end_activation(1, Instant(time.time()))
        assert self.process.wait(timeout=20) == 0


@pytest.fixture(scope="module")
def lab(ray_lab: Any) -> Any:
    ray_lab.add_slice("v4-0")
    ray_lab.add_slice("v4-1")
    return ray_lab


@pytest.fixture
def stage(lab: Any, tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    made: list[Stage] = []

    def make(name: str, command: str | tuple[str, ...]) -> Stage:
        made.append(Stage(lab, tmp_path, name, command))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_gang_of_two_hosts_runs_to_its_end_with_its_environment_and_logs(stage: Any) -> None:
    run = stage(
        "ok", 'echo "$TPUCTL_RANK of $TPUCTL_WORLD_SIZE $MODE $TPUCTL_COORDINATOR"; env | grep -c ^RAY_ || true'
    )
    run.order(1, "v4-0")

    outcome = run.outcome(1)

    assert (outcome.kind, outcome.losses, outcome.fence_until) == ("done", (), None)
    assert [(each.rank, each.code, each.before_stop) for each in outcome.exits] == [(0, 0, True), (1, 0, True)]
    coordinator = f"{run.lab.hosts[0].address}:"
    for rank in (0, 1):
        first, ray_names = run.log(1, rank).splitlines()
        assert first.startswith(f"{rank} of 2 a=b=c== {coordinator}")
        assert ray_names == "0"
    events, _ = run.folder.journal(1)
    assert [each.event for each in events] == ["ordered", "gang-up", "started", "rank-exit", "rank-exit"]


def test_own_failure_of_one_rank_ends_the_gang_and_the_next_attempt_runs(stage: Any) -> None:
    run = stage(
        "exit3",
        "echo up; if [ $TPUCTL_ATTEMPT = 1 ]; then [ $TPUCTL_RANK = 1 ] && { echo Traceback; exit 3; }; sleep 600; fi",
    )
    run.order(1, "v4-0")
    outcome = run.outcome(1)
    run.order(2, "v4-0")

    assert outcome.kind == "exits"
    assert (outcome.exits[1].code, outcome.exits[1].before_stop, outcome.losses) == (3, True, ())
    assert (outcome.exits[0].signal, outcome.exits[0].before_stop) == (15, False)
    assert run.log(1, 1).endswith("Traceback\n")
    assert run.outcome(2).kind == "done"
    assert run.living() == []


def test_stop_order_gives_the_grace_and_leaves_no_descendant(stage: Any) -> None:
    run = stage(
        "stop",
        "trap 'echo saved; exit 0' TERM; setsid sleep 600 & nohup sleep 600 & echo ready; while :; do sleep 0.1; done",
    )
    run.order(1, "v4-1")
    until(lambda: "ready" in run.log(1, 0) and "ready" in run.log(1, 1), 40, "ready")
    assert len(run.living()) >= 6

    run.folder.write_stop(1, StopOrder("cancelled", 3.0, Instant(time.time())))
    outcome = run.outcome(1, 20)

    assert (outcome.kind, outcome.detail, outcome.fence_until) == ("stopped", "cancelled", None)
    assert "saved" in run.log(1, 0)
    assert run.living() == []


def test_killed_host_ends_the_gang_and_the_other_slice_takes_the_run(stage: Any) -> None:
    run = stage("lost", "echo attempt $TPUCTL_ATTEMPT; [ $TPUCTL_ATTEMPT = 2 ] || sleep 600")
    run.order(1, "v4-0", "v4-1")
    until(lambda: all("attempt" in run.log(1, rank) for rank in range(4)), 40, "four ranks")

    victim = run.lab.hosts[3]
    killed_s = time.monotonic()
    victim.kill()
    outcome = run.outcome(1, 30)
    detected_s = time.monotonic() - killed_s
    run.order(2, "v4-0")

    assert outcome.kind == "hosts-lost"
    assert [(loss.rank, loss.slice, loss.worker) for loss in outcome.losses] == [(3, "v4-1", 1)]
    assert outcome.losses[0].kind in ("unreachable", "dead")
    assert outcome.fence_until is not None
    assert detected_s < 12
    assert run.outcome(2).kind == "done"
    print(f"killed host: outcome after {detected_s:.1f} s, by {outcome.losses[0].kind}")


def test_frozen_host_is_fenced_and_kills_its_program_when_it_thaws(stage: Any) -> None:
    run = stage("frozen", "echo up; while :; do date +%s.%N >> beats; sleep 0.05; done")
    run.order(1, "v4-0")
    until(lambda: all("up" in run.log(1, rank) for rank in (0, 1)), 40, "both ranks")
    victim = run.lab.hosts[1]
    frozen_s = time.monotonic()
    victim.freeze()

    outcome = run.outcome(1, 40)
    detected_s = time.monotonic() - frozen_s
    frozen = run.living()
    until(lambda: time.time() > outcome.fence_until.unix_s, 30, "end of the fence")
    victim.thaw()
    thawed_at_s = time.time()
    until(lambda: run.living() == [], 5, "end of the frozen program")

    assert [(loss.rank, loss.worker) for loss in outcome.losses] == [(1, 1)]
    assert frozen != [], "the frozen host's program cannot have ended before it thawed"
    beats = (victim.vm / f"attempts/{run.run_id}/1/beats").read_text().split()
    assert float(beats[-1]) < thawed_at_s + 0.5, "it hardly ran on after the thaw"
    print(f"frozen host: outcome after {detected_s:.1f} s, by {outcome.losses[0].kind}")
