"""Starts one program and ends it with all its descendants. A script of its own: stdlib only, no import of tpuctl.

The launcher starts it with `setsid -f`, so that nothing that befalls a Ray worker or its raylet reaches it. It is the
program's parent and a child subreaper: whatever the program starts, in sessions of its own or not, stays below it, and
"no child left" from the kernel is the proof that nothing of the attempt lives.

stdin, the lifeline, in lines:

    {"argv": […], "env": {…}, "cwd": …, "log": …, "until": …}   first, once: what to start
    until SECONDS                                                the lease: a moment of CLOCK_BOOTTIME of this machine
    stop GRACE                                                   SIGTERM to all, SIGKILL after the grace

stdout, in JSON lines: `{"pid"}`; `{"code", "signal"}` when the program itself ended; last `{"clean", "left", "why"}`.

When the lease is over everything is killed at once. The clock is looked at before anything is read, so a machine that
was suspended or stopped for too long kills first, whatever renewals wait in the pipe. At end of file (the launcher
died) the program gets SIGTERM and a short grace.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
EOF_GRACE_S = 5.0
LOOK_S = 0.25  # how often the lease is looked at; a fence margin must be larger
SETTLE_S = 10.0  # how long killed processes may take to vanish before they are reported as left


def now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def descendants() -> list[int]:
    """Living processes below this one, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                stat = (entry / "stat").read_text(errors="replace")
                fields = stat[stat.rindex(")") + 2 :].split()
                if fields[0] not in "ZX":
                    children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = [], [os.getpid()]
    while queue:
        for pid in children.get(queue.pop(0), []):
            found.append(pid)
            queue.append(pid)
    return found


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_all() -> None:
    """SIGKILL to all descendants. Stopped first and looked for again, so that a tree that forks cannot outrun it."""
    stopped: list[int] = []
    while fresh := [pid for pid in descendants() if pid not in stopped]:
        signal_all(fresh, signal.SIGSTOP)
        stopped += fresh
    signal_all(stopped, signal.SIGKILL)


class Watchdog:
    def __init__(self, waker: int) -> None:
        self.waker = waker  # readable after a signal, so that a child's end is seen at once
        self.buffer = b""
        self.open = True  # the lifeline
        self.until_s = 0.0
        self.main = 0  # pid of the program
        self.ended = False  # the program itself
        self.childless = False
        self.kill_at_s: float | None = None  # set while a grace runs
        self.why = "exit"

    def tell(self, **fields: Any) -> None:
        """To the launcher, if it still listens."""
        with contextlib.suppress(BrokenPipeError):
            os.write(1, json.dumps(fields).encode() + b"\n")

    def lines(self) -> list[bytes]:
        """Whole lines that have come. At end of file `open` becomes false."""
        data = os.read(0, 65536)
        if not data:
            self.open = False
        *whole, self.buffer = (self.buffer + data).split(b"\n")
        return whole

    def start(self) -> None:
        lines: list[bytes] = []
        while self.open and not lines:
            lines = self.lines()
        if not lines:
            sys.exit(0)  # the launcher died before it had said anything
        order = json.loads(lines[0])
        self.until_s = order["until"]
        died_with_us = ctypes.CDLL(None).prctl

        def in_child() -> None:
            # If this watchdog is killed, the program goes too; its descendants are then found by their environment.
            died_with_us(PR_SET_PDEATHSIG, signal.SIGKILL)

        with Path(order["log"]).open("ab") as log:
            try:
                program = subprocess.Popen(
                    order["argv"],
                    env=order["env"],
                    cwd=order["cwd"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=in_child,
                )
            except OSError as error:
                # As a shell does: 127 for a command that is not there, 126 for one that cannot be run.
                log.write(f"tpuctl: cannot start {order['argv'][0]!r}: {error.strerror}\n".encode())
                self.ended = True
                self.tell(pid=0)
                self.tell(code=127 if isinstance(error, FileNotFoundError) else 126, signal=None)
                return
        self.main = program.pid
        program.returncode = 0  # reaped here, not by Popen
        self.tell(pid=self.main)
        for line in lines[1:]:
            self.obey(line)

    def obey(self, line: bytes) -> None:
        word, _, value = line.partition(b" ")
        if word == b"until":
            self.until_s = max(self.until_s, float(value))
        elif word == b"stop":
            self.stop(float(value), "stop")

    def stop(self, grace_s: float, why: str) -> None:
        """A second stop may shorten the grace, never lengthen it."""
        if self.kill_at_s is None:
            self.why = why
            signal_all(descendants(), signal.SIGTERM)
        kill_at_s = now_s() + grace_s
        self.kill_at_s = kill_at_s if self.kill_at_s is None else min(self.kill_at_s, kill_at_s)

    def reap(self) -> None:
        """Collect what has ended. As a subreaper this process gets every orphan below it."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.main:
                    self.ended = True
                    code = os.waitstatus_to_exitcode(status)
                    self.tell(code=None if code < 0 else code, signal=-code if code < 0 else None)
        self.childless = True

    def watch(self) -> None:
        """Until nothing is left, or something must be killed."""
        while True:
            self.reap()
            if self.childless:
                return
            if now_s() >= self.until_s:
                self.why = "lease"
                return
            if self.kill_at_s is not None and now_s() >= self.kill_at_s:
                return
            if self.ended and self.kill_at_s is None:
                return  # the program ended by itself: what it left behind has no claim to go on
            pause_s = LOOK_S if self.kill_at_s is None else 0.02
            ready = select.select([self.waker, *([0] if self.open else [])], [], [], pause_s)[0]
            if self.waker in ready:
                os.read(self.waker, 4096)
            if 0 in ready and now_s() < self.until_s:
                for line in self.lines():
                    self.obey(line)
                if not self.open:
                    self.stop(EOF_GRACE_S, "launcher gone")

    def finish(self) -> None:
        give_up_s = now_s() + SETTLE_S
        while not self.childless and now_s() < give_up_s:
            kill_all()
            self.reap()
            if not self.childless:
                time.sleep(0.01)
        self.tell(clean=self.childless, left=descendants(), why=self.why)


def shed_ray_handicaps() -> None:
    """Ray's workers run at nice 15 and first in line for the kernel's OOM killer; a program must not inherit that."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("0")
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)


def main() -> None:
    # Handlers, not SIG_IGN: an ignored signal would stay ignored in the program.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    waker, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    shed_ray_handicaps()
    watchdog = Watchdog(waker)
    watchdog.start()
    watchdog.watch()
    watchdog.finish()


if __name__ == "__main__":
    main()
