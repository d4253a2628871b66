"""Passes are children: one at a time, coalesced, each asked for served by one that begins afterwards."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tpuctl.agent import passes as module
from tpuctl.agent.answers import UnavailableError
from tpuctl.agent.passes import PERIOD_S, Passes, PassResult, gap_for, reconcile_command, summary_of
from tpuctl.base.clock import SystemClock
from tpuctl.testing.clock import FakeClock

COUNTING = """
import pathlib, sys
log = pathlib.Path(sys.argv[1])
log.open("a").write("begin\\n")
print("noise")
print("nothing to do")
log.open("a").write("end\\n")
sys.exit(int(sys.argv[2]))
"""


def counting(tmp_path: Path, exit_code: int = 0) -> tuple[str, ...]:
    return (sys.executable, "-S", "-E", "-c", COUNTING, str(tmp_path / "log"), str(exit_code))


async def with_loop(passes: Passes, *waits: asyncio.Future[PassResult] | asyncio.Task[PassResult]) -> list[PassResult]:
    loop = asyncio.create_task(passes.loop())
    try:
        async with asyncio.timeout(20):
            return list(await asyncio.gather(*waits))
    finally:
        loop.cancel()


@pytest.fixture(autouse=True)
def no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_GAP_S", 0.0)


def test_result_is_exit_and_last_line(tmp_path: Path) -> None:
    async def story() -> PassResult:
        passes = Passes(lambda: counting(tmp_path, 3), SystemClock())
        return (await with_loop(passes, asyncio.create_task(passes.run("test"))))[0]

    assert asyncio.run(story()) == PassResult(3, "nothing to do")


def test_reasons_before_a_pass_share_it_and_passes_never_overlap(tmp_path: Path) -> None:
    async def story() -> None:
        passes = Passes(lambda: counting(tmp_path), SystemClock())
        await with_loop(passes, *(asyncio.create_task(passes.run(f"reason {number}")) for number in range(5)))

    asyncio.run(story())

    lines = (tmp_path / "log").read_text().split()
    assert lines == ["begin", "end"] * (len(lines) // 2)
    assert len(lines) in (2, 4)  # the first tick may begin before all five have asked


def test_busy_pass_is_asked_again_until_one_of_ours_ran(tmp_path: Path) -> None:
    commands = iter([counting(tmp_path, 4), counting(tmp_path, 4), counting(tmp_path, 0)])

    async def story() -> PassResult:
        passes = Passes(lambda: next(commands), SystemClock())
        return (await with_loop(passes, asyncio.create_task(passes.run("test"))))[0]

    assert asyncio.run(story()).exit == 0
    assert (tmp_path / "log").read_text().count("begin") == 3


def test_pass_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHILD_LIMIT_S", 0.3)
    hangs = (sys.executable, "-S", "-E", "-c", "import time; time.sleep(60)")

    async def story() -> PassResult:
        passes = Passes(lambda: hangs, SystemClock())
        return (await with_loop(passes, asyncio.create_task(passes.run("test"))))[0]

    result = asyncio.run(story())
    assert result.exit == 1
    assert "killed" in result.summary


def test_settling_sooner_brings_the_next_pass_forward(tmp_path: Path) -> None:
    async def story() -> None:
        passes = Passes(lambda: counting(tmp_path), SystemClock())
        await with_loop(passes, asyncio.create_task(passes.run("first")))
        loop = asyncio.create_task(passes.loop())
        passes.settle(0.05)
        async with asyncio.timeout(10):
            while (tmp_path / "log").read_text().count("end") < 2:  # noqa: ASYNC110  # a file rings no bell
                await asyncio.sleep(0.02)
        loop.cancel()

    asyncio.run(story())


def test_patience_grows_with_the_wait() -> None:
    assert gap_for(None) == PERIOD_S
    assert gap_for(0.0) == 3.0
    assert gap_for(600.0) == 30.0
    assert gap_for(86400.0) == PERIOD_S


def test_command_names_ray_only_when_it_is_known() -> None:
    data = Path("/data")
    assert reconcile_command("python", data, "t6m8gb", None) == (
        *("python", "-P", "-m", "tpuctl", "reconcile", "--store", "/data", "--epoch", "t6m8gb"),
    )
    assert reconcile_command("python", data, "t6m8gb", "http://127.0.0.1:1")[-2:] == ("--ray", "http://127.0.0.1:1")


def test_output_that_is_no_text_still_gives_a_summary() -> None:
    assert summary_of(b"\xff\xfe\n\n", 1) == "\ufffd\ufffd"
    assert summary_of(b"", 3) == "no output; exit 3"


def test_a_plan_is_what_its_child_prints_and_a_child_without_one_is_told() -> None:
    clock = FakeClock()
    plain = Passes(lambda: ("/bin/sh", "-c", 'test "$1 $2" = "--dry-run --json" && echo \'{"exit": 3}\'', "sh"), clock)
    broken = Passes(lambda: ("/bin/sh", "-c", "echo tpuctl: no spec >&2; exit 2", "sh"), clock)

    assert asyncio.run(plain.plan()) == {"exit": 3}
    with pytest.raises(UnavailableError, match="no spec"):
        asyncio.run(broken.plan())
