"""The process table as `init` reads it.

`base.process` says the same with dataclasses, pathlib and subprocess, which would cost each emulated machine 4 MB; this
module imports os and signal alone.
"""

from __future__ import annotations

import os
import signal


class Row:
    """One living process: fields of proc(5), /proc/PID/stat."""

    __slots__ = ("parent", "pid", "state")

    def __init__(self, pid: int, parent: int, state: str) -> None:
        self.pid = pid
        self.parent = parent
        self.state = state


def read_table() -> dict[int, Row]:
    rows: dict[int, Row] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  (pathlib is one of the imports that init cannot afford)
        if not name.isdigit():
            continue
        stat = _read(f"/proc/{name}/stat")
        if stat:
            # The command may hold spaces and parentheses: the fields begin after the last one.
            fields = stat[stat.rindex(b")") + 2 :].split(None, 2)
            rows[int(name)] = Row(int(name), int(fields[1]), fields[0].decode())
    return rows


def descendants(root: int) -> list[Row]:
    """Everything below `root`, parents before children, zombies left out."""
    children: dict[int, list[Row]] = {}
    for row in read_table().values():
        children.setdefault(row.parent, []).append(row)
    found, queue = [], [root]
    while queue:
        for row in children.get(queue.pop(0), []):
            queue.append(row.pid)
            if row.state not in "ZX":
                found.append(row)
    return found


def marked(rows: list[Row], mark: str) -> list[int]:
    """Pids of those rows whose environment has `mark`, and of their descendants. Parents must come before children."""
    found: set[int] = set()
    needle = mark.encode()
    for row in rows:
        if row.parent in found or needle in _read(f"/proc/{row.pid}/environ"):
            found.add(row.pid)
    return [row.pid for row in rows if row.pid in found]


def send(pid: int, number: int) -> None:
    """A signal to a process that may be gone already."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def stop_below(root: int) -> list[int]:
    """SIGSTOP everything below `root`, looked for again until nothing new is found; returns what ran before.

    A tree that forks cannot outrun it: a stopped parent has no further children.
    """
    seen: set[int] = set()
    stopped: list[int] = []
    while fresh := [row for row in descendants(root) if row.pid not in seen]:
        for row in fresh:
            seen.add(row.pid)
            if row.state != "T":
                send(row.pid, signal.SIGSTOP)
                stopped.append(row.pid)
    return stopped


def kill_below(root: int) -> None:
    """SIGKILL everything below `root`, without a moment in which part of it could react to the rest's death."""
    stop_below(root)
    for row in descendants(root):
        send(row.pid, signal.SIGKILL)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
