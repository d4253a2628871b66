"""Processes of this machine: start them, find a tree, end it. Never by name, always by id and start time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A pid with its start time in clock ticks since boot, so that a re-used pid is not taken for the old process."""

    pid: int
    started: int


@dataclass(frozen=True, slots=True)
class ProcessRow:
    id: ProcessId
    parent: int
    group: int
    session: int
    state: str  # R, S, D, T (stopped), Z (zombie) …


def read_process(pid: int) -> ProcessRow | None:
    """None when there is no such process. Source: proc(5), /proc/PID/stat."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command may hold spaces and parentheses: the fields begin after the last one.
    fields = stat[stat.rindex(")") + 2 :].split()
    return ProcessRow(ProcessId(pid, int(fields[19])), int(fields[1]), int(fields[2]), int(fields[3]), fields[0])


def is_alive(process: ProcessId) -> bool:
    """True while that very process exists and is not a zombie."""
    row = read_process(process.pid)
    return row is not None and row.id == process and row.state not in "ZX"


def all_processes() -> list[ProcessRow]:
    rows = (read_process(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [row for row in rows if row is not None]


def tree_of(root: ProcessId) -> list[ProcessId]:
    """The process and all its descendants, root first; empty when the root is gone."""
    children: dict[int, list[ProcessRow]] = {}
    rows = {row.id.pid: row for row in all_processes()}
    for row in rows.values():
        children.setdefault(row.parent, []).append(row)
    if root.pid not in rows or rows[root.pid].id != root:
        return []
    found, queue = [root], [root.pid]
    while queue:
        for row in children.get(queue.pop(0), []):
            found.append(row.id)
            queue.append(row.id.pid)
    return found


def send_signal(process: ProcessId, number: signal.Signals) -> bool:
    """True when it was sent; False when that process is gone."""
    if not is_alive(process):
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def signal_all(processes: Iterable[ProcessId], number: signal.Signals) -> None:
    for process in processes:
        send_signal(process, number)


def kill_tree(root: ProcessId) -> int:
    """SIGKILL the whole tree; returns how many processes were killed.

    Everything is stopped first, and looked for again until nothing new is found: a tree that forks cannot outrun it.
    """
    stopped: list[ProcessId] = []
    while fresh := [process for process in tree_of(root) if process not in stopped]:
        for process in fresh:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGSTOP)
            stopped.append(process)
    signal_all(reversed(stopped), signal.SIGKILL)
    return len(stopped)


def processes_with_environment(text: str) -> list[ProcessId]:
    """Processes of this user whose environment contains `text` (e.g. a directory): how leftovers are found.

    This process itself, kernel threads, zombies and other users' processes (which cannot be read) are passed over.
    """
    needle = text.encode()
    return [process for process, environment in _environments() if needle in environment]


def processes_with_entries(*entries: str) -> list[ProcessId]:
    """Likewise, those whose environment has all these entries, each whole: `NAME=value`."""
    wanted = {entry.encode() for entry in entries}
    return [process for process, environment in _environments() if wanted <= set(environment.split(b"\0"))]


def _environments() -> Iterator[tuple[ProcessId, bytes]]:
    for row in all_processes():
        try:
            environment = Path(f"/proc/{row.id.pid}/environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if row.id.pid != os.getpid():
            yield row.id, environment


def spawn(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    output: IO[bytes] | int = subprocess.DEVNULL,
    new_session: bool = True,
) -> subprocess.Popen[bytes]:
    """Start a program with stdin closed and stdout and stderr together in `output`; by default in its own session."""
    return subprocess.Popen(
        list(argv),
        env=None if environment is None else dict(environment),
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=new_session,
    )


def identify(pid: int) -> ProcessId | None:
    row = read_process(pid)
    return None if row is None else row.id


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run to the end and capture text. Raises subprocess.TimeoutExpired; a non-zero status is the caller's to judge."""
    return subprocess.run(
        list(argv),
        env=None if environment is None else dict(environment),
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )


def exchange(
    argv: Sequence[str], given: bytes, *, timeout_s: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run to the end with `given` as its input, and capture bytes. Raises subprocess.TimeoutExpired, OSError."""
    env = None if environment is None else dict(environment)
    return subprocess.run(list(argv), env=env, input=given, capture_output=True, timeout=timeout_s, check=False)


def run_into(argv: Sequence[str], output: IO[bytes], *, timeout_s: float) -> int:
    """Run to the end with stdin closed and all output in `output`; its status, 128 + n for signal n.

    Past the time limit it gets SIGTERM, and ten seconds later the whole tree is killed; raises TimeoutExpired then.
    """
    child = spawn(argv, output=output.fileno())
    try:
        status = child.wait(timeout_s)
    except BaseException:
        known = identify(child.pid)
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(10.0)
        if known is not None and child.returncode is None:
            kill_tree(known)
        child.wait()
        raise
    return status if status >= 0 else 128 - status
