"""The user's crontab through the program `crontab` of PATH: the one way that is the same with every cron."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tpuctl.base.errors import TpuctlError, UserError
from tpuctl.base.process import exchange

LIMIT_S = 20.0
_NONE_YET = (b"no crontab for", b"can't open", b"no such file or directory")


class NoCrontabError(UserError):
    """This machine has no cron."""


class CrontabError(TpuctlError):
    """`crontab` refused."""


class Crontab:
    """Of the user of this process. `lock`: a file that keeps two of our commands from each other."""

    def __init__(self, lock: Path) -> None:
        self._lock = lock

    def read(self) -> bytes:
        """Empty when the user has none. Raises NoCrontabError, CrontabError: what cannot be read is not empty."""
        done = self._call("-l")
        if done.returncode == 0:
            return done.stdout
        if any(words in done.stderr.lower() for words in _NONE_YET):
            return b""
        raise CrontabError(f"'crontab -l' failed ({done.returncode}): {_said(done)}; nothing was changed")

    def change(self, edit: Callable[[bytes], bytes]) -> bool:
        """Replace the table by `edit` of it; False when that is the same. Raises NoCrontabError, CrontabError."""
        with self._alone():
            before = self.read()
            after = edit(before)
            if after == before:
                return False
            done = self._call("-", given=after)
            if done.returncode != 0:
                raise CrontabError(f"'crontab -' refused the new table ({done.returncode}): {_said(done)}")
            if self.read() != after:
                raise CrontabError("'crontab -l' does not show what was written: look at it with 'crontab -l'")
            return True

    def _call(self, argument: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        program = shutil.which("crontab")
        if program is None:
            raise NoCrontabError(
                "there is no 'crontab' on PATH: install cron (on Debian and Ubuntu: apt-get install cron), "
                "or use --systemd"
            )
        try:
            return exchange((program, argument), given, timeout_s=LIMIT_S, environment={**os.environ, "LC_ALL": "C"})
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CrontabError(f"'{program} {argument}' cannot be run: {error}") from error

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with self._lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    text = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
    return " ".join(text.split()) or "no reason given"
