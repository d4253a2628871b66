"""The life of a unit in init, without processes: Restart, KillMode, time limits."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tpuctl.emulator.image.systemctl import Refusal, define, seconds
from tpuctl.emulator.launch import expand, read_environment_file
from tpuctl.emulator.units import Unit

TERM, KILL = signal.SIGTERM, signal.SIGKILL


class FakeHost:
    """Processes are numbers; `rest` are the unit's processes beside the main one."""

    def __init__(self) -> None:
        self.spawned = 0
        self.rest: list[int] = []
        self.sent: list[tuple[int, int]] = []
        self.fails = False

    def spawn(self, definition: dict[str, Any], extra: dict[str, str]) -> int:
        if self.fails:
            raise FileNotFoundError("/no/such/env")
        self.spawned += 1
        return 100 * self.spawned

    def members(self, mark: str) -> list[int]:
        return list(self.rest)

    def send(self, pid: int, number: int) -> None:
        self.sent.append((pid, number))
        if number == KILL and pid in self.rest:
            self.rest.remove(pid)

    def log(self, text: str) -> None: ...


def a_unit(host: FakeHost, **keys: str) -> Unit:
    text = "[Service]\nExecStart=/bin/x\n" + "".join(f"{key}={value}\n" for key, value in keys.items())
    unit = Unit(define("x.service", text, "/dev/null"), host)
    unit.start(0.0)
    return unit


@pytest.mark.parametrize(
    ("policy", "result", "restarted"),
    [
        ("always", 0, True),
        ("always", 1, True),
        ("on-failure", 0, False),
        ("on-failure", 1, True),
        ("on-failure", -signal.SIGTERM, False),
        ("on-failure", -signal.SIGKILL, True),
        ("no", 1, False),
    ],
)
def test_restart_follows_the_policy_after_its_pause(policy: str, result: int, restarted: bool) -> None:
    host = FakeHost()
    unit = a_unit(host, Restart=policy, RestartSec="2")

    unit.main_ended(result, 10.0)
    unit.tick(11.9)
    assert host.spawned == 1
    unit.tick(12.0)

    assert host.spawned == (2 if restarted else 1)
    assert unit.state == ("active" if restarted else "inactive" if result in (0, -TERM) else "failed")


@pytest.mark.parametrize(
    ("mode", "at_stop", "after_main"),
    [
        ("control-group", [(100, TERM), (7, TERM)], []),
        ("mixed", [(100, TERM)], [(7, KILL)]),
        ("process", [(100, TERM)], []),
    ],
)
def test_stop_respects_kill_mode(mode: str, at_stop: list[tuple[int, int]], after_main: list[tuple[int, int]]) -> None:
    host = FakeHost()
    unit = a_unit(host, KillMode=mode, Restart="always")
    host.rest = [7]

    unit.stop(5.0)
    assert host.sent == at_stop
    host.sent.clear()
    unit.main_ended(0, 6.0)
    unit.tick(6.1)

    assert host.sent == after_main
    assert unit.state == ("cleaning" if mode == "control-group" else "inactive")
    assert host.spawned == 1


def test_what_ignores_sigterm_is_killed_after_the_time_limit() -> None:
    host = FakeHost()
    unit = a_unit(host, TimeoutStopSec="3s")
    host.rest = [7]
    unit.stop(0.0)
    unit.tick(2.9)
    assert KILL not in {number for _, number in host.sent}
    assert unit.next_due(2.9) == pytest.approx(0.1)
    unit.tick(3.0)
    assert host.sent[-2:] == [(100, KILL), (7, KILL)]


@pytest.mark.parametrize(("mode", "sent"), [("control-group", [(7, TERM)]), ("mixed", [(7, KILL)]), ("process", [])])
def test_rest_of_a_unit_is_ended_before_it_is_restarted(mode: str, sent: list[tuple[int, int]]) -> None:
    host = FakeHost()
    unit = a_unit(host, KillMode=mode, Restart="always", RestartSec="0")
    host.rest = [7]

    unit.main_ended(1, 0.0)
    assert host.sent == sent
    unit.tick(0.1)
    unit.tick(0.15)
    assert host.spawned == (1 if mode == "control-group" else 2)
    host.rest.clear()
    unit.tick(0.2)
    unit.tick(0.3)

    assert host.spawned == 2


def test_restart_waits_for_the_end_of_the_old_main_process() -> None:
    host = FakeHost()
    unit = a_unit(host)
    unit.restart(1.0)
    assert (host.spawned, unit.settled) == (1, False)
    unit.main_ended(-TERM, 2.0)
    assert (host.spawned, unit.state) == (2, "active")


def test_stop_cancels_a_restart_that_is_due() -> None:
    host = FakeHost()
    unit = a_unit(host, Restart="always", RestartSec="5")
    unit.main_ended(1, 0.0)
    unit.stop(1.0)
    unit.tick(9.0)
    assert (host.spawned, unit.state, unit.next_due(9.0)) == (1, "inactive", None)


def test_a_unit_that_cannot_be_started_is_tried_again() -> None:
    host = FakeHost()
    host.fails = True
    unit = a_unit(host, Restart="on-failure", RestartSec="1")
    assert unit.state == "activating"
    host.fails = False
    unit.tick(1.0)
    assert unit.state == "active"


def test_unit_file_is_read_as_systemd_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    unit = define(
        "host.service",
        "[Unit]\nDescription=a=b\n[Service]\n# comment\nType=simple\n"
        "ExecStart=-/usr/bin/env python -m x \\\n  'two words'\n"
        'Environment=A=1 "B=two words"\nEnvironment=C=x=y\nEnvironmentFile=-/etc/none\nWorkingDirectory=/srv\n'
        "Restart=always\nRestartSec=500ms\nKillMode=mixed\nTimeoutStopSec=1min 30s\nStandardOutput=append:/log\n"
        "WatchdogSec=3\n[Install]\nWantedBy=multi-user.target\n",
        "/default.log",
    )
    assert unit == {
        "name": "host.service",
        "argv": ["/usr/bin/env", "python", "-m", "x", "two words"],
        "environment": {"A": "1", "B": "two words", "C": "x=y"},
        "environment_files": ["-/etc/none"],
        "directory": "/srv",
        "restart": "always",
        "restart_s": 0.5,
        "kill_mode": "mixed",
        "stop_s": 90.0,
        "output": "/log",
    }
    assert "'WatchdogSec'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Restart=sometimes", "Restart=sometimes is not emulated"),
        ("KillMode=all", "KillMode=all is not emulated"),
        ("Type=forking", "Type=forking is not emulated"),
        ("RestartSec=soon", "not a time span"),
        ("ExecStart=", "no ExecStart="),
    ],
)
def test_unit_that_cannot_be_kept_is_refused(line: str, message: str) -> None:
    with pytest.raises(Refusal, match=message):
        define("x.service", f"[Service]\nExecStart=/bin/true\n{line}\n", "/dev/null")


def test_time_spans() -> None:
    assert [seconds(text) for text in ("2", "2s", "250ms", "1min 30s", "1h")] == [2, 2, 0.25, 90, 3600]


def test_command_line_is_expanded_from_the_units_environment() -> None:
    environment = {"ONE": "1", "MANY": "a b"}
    assert expand(["x", "${ONE}-${MISSING}", "$MANY", "100%%", "$$5", "${open"], environment) == [
        "x",
        "1-",
        "a",
        "b",
        "100%",
        "$5",
        "${open",
    ]


def test_environment_file(tmp_path: Any) -> None:
    path = tmp_path / "env"
    path.write_text("# no\n\nA=1\nB = 'two words'\n; no\nC=\"x=y\"\n")
    assert read_environment_file(str(path)) == {"A": "1", "B": "two words", "C": "x=y"}
    assert read_environment_file(f"-{path}.none") == {}
    with pytest.raises(FileNotFoundError):
        read_environment_file(f"{path}.none")
