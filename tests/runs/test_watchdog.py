"""The watchdog with real processes: whatever happens, nothing of the program outlives its lease."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tpuctl.base.process import processes_with_environment, signal_all

WATCHDOG = Path(__file__).parents[2] / "tpuctl/runs/watchdog.py"


def boottime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Watched:
    """A program under a watchdog; `mark` in its environment finds all its processes."""

    def __init__(self, directory: Path, script: str, lease_s: float) -> None:
        self.mark, self.log = f"WATCHED={directory}", directory / "log"
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(WATCHDOG)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        name, value = self.mark.split("=", 1)
        order = {
            "argv": ["bash", "-c", script],
            "env": {"PATH": os.environ["PATH"], name: value},
            "cwd": str(directory),
            "log": str(self.log),
            "until": boottime_s() + lease_s,
        }
        self.say(json.dumps(order))

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")

    def hang_up(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def living(self) -> int:
        return len(processes_with_environment(self.mark))

    def await_output(self, text: str) -> None:
        give_up_s = time.monotonic() + 10
        while not self.log.exists() or text not in self.log.read_text():
            assert time.monotonic() < give_up_s, f"no {text!r}"
            time.sleep(0.01)

    def words(self) -> list[dict[str, Any]]:
        """All that it says until it is gone."""
        assert self.process.stdout is not None
        said = [json.loads(line) for line in self.process.stdout]
        self.process.wait(timeout=20)
        return said


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def start(script: str, lease_s: float = 60) -> Watched:
        made.append(Watched(tmp_path, script, lease_s))
        return made[-1]

    yield start
    for each in made:
        signal_all(processes_with_environment(each.mark), signal.SIGKILL)
        with contextlib.suppress(BrokenPipeError):
            each.hang_up()
        each.process.kill()
        each.process.wait()
        assert each.process.stdout is not None
        each.process.stdout.close()


FAMILY = "sleep 100 & setsid sleep 100 & (setsid nohup sleep 100 &) ; env -i sleep 100 & echo ready; "


def test_exit_status_is_told_and_what_the_program_left_behind_is_ended(watch: Any) -> None:
    watched = watch(FAMILY + "exit 3")

    words = watched.words()

    assert [word for word in words if "code" in word] == [{"code": 3, "signal": None}]
    assert words[-1] == {"clean": True, "left": [], "why": "exit"}
    assert watched.living() == 0


def test_end_by_a_signal_is_told_as_such(watch: Any) -> None:
    assert {"code": None, "signal": 9} in watch("kill -9 $$").words()


def test_command_that_does_not_exist_ends_with_127(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(WATCHDOG)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    order = {"argv": ["no-such"], "env": {}, "cwd": str(tmp_path), "log": f"{tmp_path}/log", "until": boottime_s() + 9}
    said, _ = process.communicate(json.dumps(order).encode() + b"\n", timeout=10)

    assert {"code": 127, "signal": None} in [json.loads(line) for line in said.splitlines()]
    assert "cannot start 'no-such'" in (tmp_path / "log").read_text()


def test_stop_gives_the_grace_to_every_process_and_then_kills(watch: Any) -> None:
    watched = watch("(trap '' TERM; echo deaf; sleep 100; sleep 100) & trap 'echo saved; exit 7' TERM; wait; sleep 100")
    watched.await_output("deaf")
    began_s = time.monotonic()

    watched.say("stop 0.5")
    words = watched.words()

    assert "saved" in watched.log.read_text()
    assert {"code": 7, "signal": None} in words
    assert words[-1] == {"clean": True, "left": [], "why": "stop"}
    assert 0.4 < time.monotonic() - began_s < 5
    assert watched.living() == 0


def test_stop_ends_as_soon_as_all_have_gone(watch: Any) -> None:
    watched = watch(FAMILY + "wait")
    watched.await_output("ready")
    began_s = time.monotonic()

    watched.say("stop 30")

    assert watched.words()[-1]["clean"] is True
    assert time.monotonic() - began_s < 5


def test_launchers_death_ends_the_program(watch: Any) -> None:
    watched = watch(FAMILY + "sleep 100")
    watched.await_output("ready")
    assert watched.living() >= 4

    watched.hang_up()

    assert watched.words()[-1] == {"clean": True, "left": [], "why": "launcher gone"}
    assert watched.living() == 0


def test_lease_that_is_not_renewed_kills_without_a_grace(watch: Any) -> None:
    watched = watch("trap 'echo told' TERM; " + FAMILY + "while :; do sleep 0.1; done", lease_s=0.6)

    words = watched.words()

    assert words[-1] == {"clean": True, "left": [], "why": "lease"}
    assert "told" not in watched.log.read_text()
    assert watched.living() == 0


def test_renewals_keep_the_program_alive_beyond_the_first_lease(watch: Any) -> None:
    watched = watch("sleep 1.2; echo through", lease_s=0.6)
    for _ in range(6):
        time.sleep(0.2)
        watched.say(f"until {boottime_s() + 0.6}")

    assert {"code": 0, "signal": None} in watched.words()
    assert "through" in watched.log.read_text()


def test_thawed_host_kills_first_although_renewals_wait_in_the_pipe(watch: Any) -> None:
    """Frozen as a whole, thawed after its lease: the renewals that arrived meanwhile must not save it."""
    watched = watch("while :; do date +%s.%N; sleep 0.05; done", lease_s=0.8)
    watched.await_output(".")
    everything = [*processes_with_environment(watched.mark)]
    os.kill(watched.process.pid, signal.SIGSTOP)
    signal_all(everything, signal.SIGSTOP)
    watched.say(f"until {boottime_s() + 100}")
    time.sleep(1.0)
    thawed_at_s = time.time()

    os.kill(watched.process.pid, signal.SIGCONT)
    signal_all(everything, signal.SIGCONT)
    words = watched.words()

    assert words[-1]["why"] == "lease"
    last_s = float(watched.log.read_text().split()[-1])
    assert last_s < thawed_at_s + 0.5
    assert watched.living() == 0


def test_programs_signals_are_not_altered(watch: Any) -> None:
    watched = watch("grep SigIgn /proc/$$/status")

    watched.words()

    ignored = int(watched.log.read_text().split()[1], 16)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        assert not ignored & (1 << (number - 1)), f"{number} is ignored in the program"
