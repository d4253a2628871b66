"""`tpuctl emulator …` as people run it: background process, state file, clean end."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuctl.base.clock import SystemClock
from tpuctl.base.process import is_alive
from tpuctl.emulator import remote
from tpuctl.emulator.state_file import read_state

pytestmark = pytest.mark.scenario
ENTRY = (sys.executable, "-c", "from tpuctl.cli.main import main; main()")


def tpuctl(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ENTRY, "emulator", *words],
        env={**os.environ, "TPUCTL_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    remote.stop(tmp_path, "default", SystemClock())


def test_start_prints_only_the_export_line_and_starting_twice_the_same(home: Path) -> None:
    first = tpuctl(home, "start", "--machines", "none")
    second = tpuctl(home, "start", "--machines", "none")

    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("export TPUCTL_EMULATOR=http://127.0.0.1:")
    assert first.stdout.count("\n") == 1
    assert second.stdout == first.stdout
    assert "is running already" in second.stderr


def test_state_file_is_for_its_owner_alone_and_gone_with_the_emulator(home: Path) -> None:
    tpuctl(home, "start", "--machines", "none")
    directory = home / "emulators" / "default"
    state = read_state(directory)
    assert state is not None
    assert stat.S_IMODE((directory / "state.json").stat().st_mode) == 0o600
    assert is_alive(state.process)
    assert Path(state.root).is_dir()
    log_and_argv = (directory / "log").read_text() + Path(f"/proc/{state.pid}/cmdline").read_text()
    assert "serving" in log_and_argv
    assert state.token not in log_and_argv

    stopped = tpuctl(home, "stop")

    assert (stopped.returncode, stopped.stdout) == (0, "")
    assert not is_alive(state.process)
    assert not (directory / "state.json").exists()
    assert not Path(state.root).exists()
    assert "was not running" in tpuctl(home, "stop").stderr


def test_killed_emulator_is_started_anew_and_its_directory_removed_at_stop(home: Path) -> None:
    tpuctl(home, "start", "--machines", "none")
    state = read_state(home / "emulators" / "default")
    assert state is not None
    os.kill(state.pid, signal.SIGKILL)
    while is_alive(state.process):
        SystemClock().sleep(0.01)
    assert tpuctl(home, "status").returncode == 1

    assert tpuctl(home, "stop").returncode == 0

    assert not Path(state.root).exists()
    assert tpuctl(home, "start", "--machines", "none").returncode == 0


def test_commands_say_what_is_wrong_and_how_to_go_on(home: Path) -> None:
    absent = tpuctl(home, "status")
    assert (absent.returncode, absent.stdout) == (1, "")
    assert "start it with `tpuctl emulator start`" in absent.stderr

    scenario = home / "bad.yaml"
    scenario.write_text("notise: 3\n")
    refused = tpuctl(home, "start", "--scenario", str(scenario))
    assert refused.returncode == 2
    assert "bad.yaml:1:1: notise: unknown key 'notise'; did you mean 'notice'?" in refused.stderr

    assert tpuctl(home, "status", "--name", "../other").returncode == 2
    taken = tpuctl(home, "start", "--machines", "none", "--root", str(home))
    assert taken.returncode == 1
    assert "exists already" in taken.stderr
    assert scenario.exists()

    tpuctl(home, "start", "--machines", "none")
    assert "write NODE:WORKER" in tpuctl(home, "kill-host", "q").stderr
    assert "there is no node 'q'" in tpuctl(home, "preempt", "q").stderr


def test_faults_capacity_and_calls_are_set_and_shown(home: Path) -> None:
    tpuctl(home, "start", "--machines", "none")
    assert tpuctl(home, "fault", "add", "error-before", "--path", "nodes$", "--error", "internal").stdout == "1\n"
    assert "error-before" in tpuctl(home, "fault", "list").stdout
    assert "8 chips" in tpuctl(home, "capacity", "us-central2-b", "v4", "8").stdout
    assert tpuctl(home, "fault", "clear").returncode == 0
    document = json.loads(tpuctl(home, "status", "--json").stdout)
    assert (document["version"], document["faults"]) == (1, [])
    assert json.loads(tpuctl(home, "calls", "--json").stdout)["calls"] == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("fault", "add", "unheard-of"), "kind: Input should be"),
        (("fault", "add", "error-before", "--path", "("), "is no pattern"),
        (("override", "us-central2-b/nodes/n", "--fields", "[1]"), "write a JSON object"),
        (("kill-host", "n:²"), "write NODE:WORKER"),
        (("capacity", "us-central2-b", "v4", "²"), "CHIPS (a number"),
        (("preempt", "nobody"), "there is no node 'nobody'"),
        (("start", "--port", "65536"), "65535"),
    ],
)
def test_what_the_caller_must_mend_exits_2(home: Path, words: tuple[str, ...], told: str) -> None:
    tpuctl(home, "start", "--machines", "none")

    done = tpuctl(home, *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


@pytest.mark.parametrize("verb", ["start", "status", "stop"])
def test_home_that_is_no_directory_is_told(tmp_path: Path, verb: str) -> None:
    (tmp_path / "file").write_text("")

    done = tpuctl(tmp_path / "file", verb)

    assert (done.returncode, done.stdout) == (2, "")
    assert "Not a directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_stop_removes_no_directory_that_it_did_not_make(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A state file that somebody wrote in may name any directory."""
    precious = tmp_path_factory.mktemp("precious")
    (precious / "thesis.tex").write_text("mine")
    tpuctl(home, "start", "--machines", "none")
    path = home / "emulators" / "default" / "state.json"
    document = json.loads(path.read_text())
    os.kill(document["pid"], signal.SIGKILL)
    path.write_text(json.dumps(document | {"root": str(precious)}))

    stopped = tpuctl(home, "stop")

    assert stopped.returncode == 0, stopped.stderr
    assert (precious / "thesis.tex").read_text() == "mine"
    assert remote.stop(home, "default", SystemClock()) is False
    for left in Path(document["root"]).glob(".tpuemu"):
        left.unlink()
        Path(document["root"]).rmdir()
