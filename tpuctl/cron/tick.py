"""What the crontab's line or the timer runs: the command, alone, with its output in a log that stays small.

The note beside the log says when it last ran and how it ended; `tpuctl cron show` reads it.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuctl.base.clock import Clock
from tpuctl.base.errors import BusyError
from tpuctl.base.files import read_json, write_json_atomic
from tpuctl.base.process import run_into
from tpuctl.base.units import Instant

LOG_BYTES = 512 * 1024  # and as much again in the former log
COMMAND_LIMIT_S = 1800.0  # a lost head is rebuilt within 15 minutes, or not at all
KILLED_EXIT = 1
BUSY_EXIT = 4


@dataclass(frozen=True, slots=True)
class TickFiles:
    log: Path

    @property
    def former_log(self) -> Path:
        return self.log.with_name(self.log.name + ".1")

    @property
    def note(self) -> Path:
        return self.log.with_suffix(".json")

    @property
    def lock(self) -> Path:
        return self.log.with_suffix(".lock")


@dataclass(frozen=True, slots=True)
class LastTick:
    at: Instant  # when it ended
    exit: int

    def document(self) -> dict[str, Any]:
        return {"at": self.at.iso(), "exit": self.exit}


def tick(files: TickFiles, command: Sequence[str], clock: Clock, before: Callable[[], str] = lambda: "") -> int:
    """The command's exit status; 4 and no effect while an earlier one runs.

    `before` runs first; what it says goes to the log.
    """
    try:
        with _alone(files.lock):
            return _run(files, command, clock, before)
    except BusyError:
        return BUSY_EXIT


def last_tick(files: TickFiles) -> LastTick | None:
    """None when it never ran, or its note does not read."""
    try:
        document = read_json(files.note)
        return None if document is None else LastTick(Instant.parse(document["at"]), int(document["exit"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _run(files: TickFiles, command: Sequence[str], clock: Clock, before: Callable[[], str]) -> int:
    rotate(files)
    with files.log.open("ab", buffering=0) as log:
        log.write(f"{clock.now().iso()} {json.dumps(list(command), ensure_ascii=False)}\n".encode("utf-8", "replace"))
        if said := before():
            log.write(f"{said}\n".encode())
        try:
            status = run_into(command, log, timeout_s=COMMAND_LIMIT_S)
        except subprocess.TimeoutExpired:
            status = KILLED_EXIT
            log.write(f"killed: it took longer than {COMMAND_LIMIT_S:g} s\n".encode())
        except OSError as error:
            status = 127
            log.write(f"cannot be run: {error}\n".encode())
        end = clock.now()
        log.write(f"{end.iso()} exit {status}\n".encode())
    write_json_atomic(files.note, LastTick(end, status).document())
    return status


def rotate(files: TickFiles) -> None:
    """The log becomes the former log when it is large: the two together stay below a megabyte and one run's output."""
    files.log.parent.mkdir(parents=True, exist_ok=True)
    if files.log.exists() and files.log.stat().st_size >= LOG_BYTES:
        files.log.replace(files.former_log)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(f"{path} is held: an earlier run goes on") from error
        yield
