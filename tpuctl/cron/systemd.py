"""The same as a service and a timer of the user's systemd. Only files with our mark are ever replaced or removed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpuctl.base.errors import TpuctlError, UserError
from tpuctl.base.files import write_atomic
from tpuctl.base.process import run

LIMIT_S = 30.0


class NoSystemdError(UserError):
    """This machine, or this user's session, has no systemd."""


class ForeignUnitError(TpuctlError):
    """A unit of that name is there and is not ours."""


def mark_of(name: str) -> str:
    return f"# tpuctl {name}: written by 'tpuctl cron install --systemd', removed by 'tpuctl cron remove'"


def service_text(name: str, command: Sequence[str]) -> str:
    return f"""{mark_of(name)}
[Unit]
Description=One pass of tpuctl for cluster {name}
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
ExecStart={" ".join(quoted(word) for word in command)}
SuccessExitStatus=3 4
"""


def timer_text(name: str, every_min: int) -> str:
    minutes = "00" if every_min == 60 else f"00/{every_min}"
    return f"""{mark_of(name)}
[Unit]
Description=Passes of tpuctl for cluster {name}

[Timer]
OnCalendar=*-*-* *:{minutes}:00
AccuracySec=1s
Persistent=true

[Install]
WantedBy=timers.target
"""


def quoted(word: str) -> str:
    """One word of ExecStart: systemd.service(5), "Command lines". Raises UserError for what cannot stand there."""
    if any(ord(letter) < 32 for letter in word):
        raise UserError(f"a path with a control character cannot stand in a unit: {word!r}")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def user_directory(environment: Mapping[str, str]) -> Path:
    config = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME") or Path.home()) / ".config")
    return Path(config) / "systemd" / "user"


@dataclass(frozen=True, slots=True)
class UserTimer:
    """The pair of units `tpuctl-<name>.service` and `.timer`."""

    name: str
    directory: Path

    @property
    def service(self) -> Path:
        return self.directory / f"tpuctl-{self.name}.service"

    @property
    def timer(self) -> Path:
        return self.directory / f"tpuctl-{self.name}.timer"

    def installed(self) -> bool:
        return self._is_ours(self.timer)

    def every_min(self) -> int:
        """0 when the timer does not say it in our words."""
        text = self.timer.read_text() if self.installed() else ""
        _, _, after = text.partition("OnCalendar=*-*-* *:")
        minutes = after.partition(":00\n")[0]
        return 60 if minutes == "00" else int(minutes.partition("/")[2] or 0)

    def install(self, every_min: int, command: Sequence[str]) -> bool:
        """False when it stood like that already. Raises NoSystemdError, ForeignUnitError, TpuctlError."""
        wanted = {self.service: service_text(self.name, command), self.timer: timer_text(self.name, every_min)}
        _systemctl("--version")
        for path in wanted:
            self._refuse_foreign(path)
        changed = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
        self.directory.mkdir(parents=True, exist_ok=True)
        for path in changed:
            write_atomic(path, wanted[path].encode())
        if changed:
            _systemctl("daemon-reload")
        # Repeated although nothing changed: somebody may have stopped it.
        _systemctl("enable", "--now", self.timer.name)
        return bool(changed)

    def remove(self) -> bool:
        """False when there was nothing of ours."""
        ours = [path for path in (self.timer, self.service) if self._is_ours(path)]
        if self.timer in ours:
            _systemctl("disable", "--now", self.timer.name)
        for path in ours:
            path.unlink()
        if ours:
            _systemctl("daemon-reload")
        return bool(ours)

    def _is_ours(self, path: Path) -> bool:
        try:
            return path.read_text().startswith(mark_of(self.name) + "\n")
        except (FileNotFoundError, UnicodeDecodeError):
            return False

    def _refuse_foreign(self, path: Path) -> None:
        if path.exists() and not self._is_ours(path):
            raise ForeignUnitError(f"{path} is not ours and is left alone: move it away first")


def _systemctl(*words: str) -> None:
    program = shutil.which("systemctl")
    if program is None:
        raise NoSystemdError("there is no 'systemctl' on PATH: leave out --systemd to use cron")
    try:
        done = run((program, "--user", *words), timeout_s=LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TpuctlError(f"'systemctl --user {' '.join(words)}' cannot be run: {error}") from error
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())
        raise TpuctlError(f"'systemctl --user {' '.join(words)}' failed ({done.returncode}): {said}")
