"""`tpuctl cron … --here` as a user meets it, on a stand-in of `crontab` and of `systemctl`."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.cron.conftest import Machine
from tpuctl.cli.main import app, register_all
from tpuctl.cron.crontab import CrontabError, NoCrontabError
from tpuctl.cron.systemd import ForeignUnitError, service_text, timer_text
from tpuctl.cron.table import block_in
from tpuctl.cron.tick import TickFiles, tick
from tpuctl.testing.clock import FakeClock

SYSTEMD_ANALYZE = shutil.which("systemd-analyze") or ""
FOREIGN = "MAILTO=ada\n# >>> tpuctl other: x\n* * * * * true\n# <<< tpuctl other\n\t0 3 * * * büro % \\\n".encode()
SPEC = """\
version: 1
cluster: lab
project: p
backend: emulator
head: {zone: us-central1-a}
pools: [{name: v4, accelerator: v4-16, zones: [us-central2-b], slices: 1}]
"""


@pytest.fixture
def spec(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = machine.path / "lab 100%.yaml"
    path.write_text(SPEC)
    monkeypatch.setenv("TPUCTL_SPEC", str(path))
    monkeypatch.setenv("TPUCTL_HOME", str(machine.path / "state"))
    monkeypatch.setenv("TPUCTL_EMULATOR", "http://127.0.0.1:9")
    return path


def run(*arguments: str) -> Result:
    if not app.registered_commands:
        register_all()
    return CliRunner().invoke(app, ["cron", *arguments])


def test_install_show_and_remove_are_repeatable_and_leave_the_rest_alone(machine: Machine, spec: Path) -> None:
    machine.table.write_bytes(FOREIGN)

    first, again = run("install", "--here", "--every", "5"), run("install", "--here", "--every", "5")
    table = machine.table.read_bytes()
    shown = json.loads(run("show", "--here", "--json").stdout)
    removed, twice = run("remove", "--here"), run("remove", "--here")

    assert [each.exit_code for each in (first, again, removed, twice)] == [0, 0, 0, 0]
    assert "has the line now" in first.stderr
    assert "nothing was changed" in again.stderr
    assert machine.calls("crontab").count("-") == 2  # written once, removed once
    assert table.startswith(FOREIGN)
    assert (shown["version"], shown["cluster"], shown["crontab"]["every_min"]) == (1, "lab", 5)
    assert (shown["crontab"]["installed"], shown["systemd"]["installed"], shown["last"]) == (True, False, None)
    assert machine.table.read_bytes() == FOREIGN
    assert "nothing of this cluster" in twice.stderr


def test_the_line_has_absolute_paths_and_what_a_pass_needs_of_the_environment(machine: Machine, spec: Path) -> None:
    run("install", "--here")

    entry = block_in(machine.table.read_bytes(), "lab")
    assert entry is not None
    words = shlex.split(entry.command)
    assert "TPUCTL_EMULATOR=http://127.0.0.1:9" in words
    assert words.count(sys.executable) == 2
    for option, value in (("--file", str(spec)), ("--state-dir", str(machine.path / "state"))):
        assert words[words.index(option) + 1] == value
    assert all(Path(word).is_absolute() for word in words if "/" in word and "=" not in word)


def test_what_the_line_runs_is_logged_and_shown(machine: Machine, spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The very words of the crontab, given to a shell as cron does; the pass finds no head, and that is its exit."""
    run("install", "--here")
    entry = block_in(machine.table.read_bytes(), "lab")
    assert entry is not None

    done = subprocess.run(
        ["/bin/sh", "-c", entry.command.replace(str(spec), str(spec) + ".gone")],
        env={"PATH": "/usr/bin:/bin", "HOME": str(machine.home)},
        capture_output=True,
        check=False,
        timeout=60,
    )

    log = machine.path / "state" / "cron" / "lab.log"
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")  # cron would mail what it prints
    assert "lab 100%.yaml.gone" in log.read_text().splitlines()[1]
    assert log.stat().st_mode & 0o077 == 0
    shown = run("show", "--here")
    assert "every 1 min; last ran" in shown.stdout
    assert "exit 2" in shown.stdout


def test_missing_crontab_is_one_clear_message(machine: Machine, spec: Path) -> None:
    (machine.path / "bin" / "crontab").unlink()

    result = run("install", "--here")

    assert isinstance(result.exception, NoCrontabError)
    assert (result.exception.exit_code, "install cron" in str(result.exception)) == (2, True)
    assert run("show", "--here").exit_code == 0


def test_a_crontab_that_cannot_be_read_is_not_taken_for_an_empty_one(machine: Machine, spec: Path) -> None:
    machine.table.write_bytes(FOREIGN)
    machine.refuse()

    result = run("install", "--here")

    assert isinstance(result.exception, CrontabError)
    assert "not allowed" in str(result.exception)
    assert machine.calls("crontab") == ["-l"]
    assert machine.table.read_bytes() == FOREIGN
    assert "unknown: 'crontab -l' failed" in run("show", "--here").stdout


def test_systemd_timer_is_written_enabled_shown_and_removed(machine: Machine, spec: Path) -> None:
    first = run("install", "--here", "--systemd", "--every", "15")
    again = run("install", "--here", "--systemd", "--every", "15")
    units = machine.home / ".config" / "systemd" / "user"
    shown = json.loads(run("show", "--here", "--json").stdout)
    names = sorted(path.name for path in units.iterdir())
    removed = run("remove", "--here")

    assert [each.exit_code for each in (first, again, removed)] == [0, 0, 0]
    assert "nothing was changed" in again.stderr
    assert names == ["tpuctl-lab.service", "tpuctl-lab.timer"]
    assert shown["systemd"]["every_min"] == 15
    assert set(machine.calls("crontab")) == {"-l"}  # looked at, and nothing was written
    assert list(units.iterdir()) == []
    enable = "--user enable --now tpuctl-lab.timer"
    assert [call for call in machine.calls("systemctl") if call != "--user --version"] == [
        "--user daemon-reload", enable, enable, "--user disable --now tpuctl-lab.timer", "--user daemon-reload",
    ]  # fmt: skip


def test_units_of_others_are_left_alone(machine: Machine, spec: Path) -> None:
    units = machine.home / ".config" / "systemd" / "user"
    units.mkdir(parents=True)
    (units / "tpuctl-lab.service").write_text("[Service]\nExecStart=/bin/mine\n")

    result = run("install", "--here", "--systemd")
    run("remove", "--here")

    assert isinstance(result.exception, ForeignUnitError)
    assert [path.name for path in units.iterdir()] == ["tpuctl-lab.service"]


if SYSTEMD_ANALYZE:  # nothing else can say what systemd thinks of a unit

    def test_systemd_itself_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
        command = ("/usr/bin/env", "A=50% $HOME", "a \"b\" 'c'", "back\\slash", "ümlaut")
        (tmp_path / "tpuctl-lab.service").write_text(service_text("lab", command))
        (tmp_path / "tpuctl-lab.timer").write_text(timer_text("lab", 15))

        done = subprocess.run(
            [SYSTEMD_ANALYZE, "verify", "--user", "--man=no", str(tmp_path / "tpuctl-lab.timer")],
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

        assert (done.returncode, [line for line in done.stderr.splitlines() if "tpuctl-lab" in line]) == (0, [])


def test_a_run_while_an_earlier_one_goes_on_ends_with_4_and_leaves_no_trace(tmp_path: Path) -> None:
    files, inner = TickFiles(tmp_path / "lab.log"), list[int]()

    def meanwhile() -> str:
        inner.append(tick(files, ("/bin/echo", "second"), FakeClock()))
        return "began"

    assert tick(files, ("/bin/echo", "first"), FakeClock(), meanwhile) == 0
    assert inner == [4]
    text = files.log.read_text()
    assert ("first" in text, "began" in text, "second" in text) == (True, True, False)


def test_log_is_turned_over_and_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuctl.cron.tick.LOG_BYTES", 200)
    files = TickFiles(tmp_path / "lab.log")

    statuses = [tick(files, ("/bin/sh", "-c", f"echo {n}; exit {n}"), FakeClock()) for n in range(8)]

    assert statuses == list(range(8))
    sizes = [path.stat().st_size for path in tmp_path.glob("lab.log*")]
    assert (len(sizes), max(sizes) < 400) == (2, True)
    assert "exit 7" in files.log.read_text()


def test_a_command_that_is_not_there_and_one_that_is_killed_are_told_in_the_log(tmp_path: Path) -> None:
    files = TickFiles(tmp_path / "lab.log")

    assert tick(files, (str(tmp_path / "none"),), FakeClock()) == 127
    assert tick(files, ("/bin/sh", "-c", "kill -9 $$"), FakeClock()) == 137
    assert "cannot be run" in files.log.read_text()


def test_systemd_is_for_this_machine_only(spec: Path) -> None:
    result = run("install", "--systemd")

    assert result.exception is not None
    assert "--here" in str(result.exception)
