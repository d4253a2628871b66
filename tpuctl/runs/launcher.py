"""One a host of an attempt, inside a Ray actor: prepares, starts the program under its watchdog, reports, ends it.

The class is plain; runs/gang.py makes the actor of it. Its methods are called from several threads at once: `wait`
blocks until the program and all its descendants are gone, the others return soon. Values, no exceptions, cross the
wire: what this host refuses is a `Refused` with its reason.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuctl.base.clock import Clock
from tpuctl.base.files import read_json, write_atomic
from tpuctl.base.ids import epoch_order
from tpuctl.base.process import ProcessId, processes_with_entries, send_signal
from tpuctl.base.units import show_duration
from tpuctl.base.web import NoAnswerError, call
from tpuctl.hosts.chips import ChipPlaces, find_holders
from tpuctl.hosts.config import VmPlaces
from tpuctl.runs.bundle import LIMIT_BYTES, BadBundleError, unpack
from tpuctl.runs.orders import Order, RunDocument
from tpuctl.runs.program import Coordinator, Place, argv_of, environment_of

CHUNK_BYTES = 1024 * 1024
FETCH_TRIES = 5
CHIPS_PATIENCE_S = 5.0  # a former attempt's processes were killed just now and may take a moment to vanish
# Below Ray's range and beside the ports that JAX and libtpu take by themselves (8471 to 8482).
PORTS = range(8500, 9500)


@dataclass(frozen=True, slots=True)
class Refused:
    reason: str


@dataclass(frozen=True, slots=True)
class Prepared:
    now_s: float  # this host's CLOCK_BOOTTIME: leases are given as moments of it
    coordinator: Coordinator  # used if this is rank 0


@dataclass(frozen=True, slots=True)
class Beat:
    now_s: float
    log: bytes  # the program's output from the offset on, at most CHUNK_BYTES


@dataclass(frozen=True, slots=True)
class Ended:
    """The program is over and so is everything that it started (`left` lists pids that would not die)."""

    code: int | None
    signal: int | None
    why: str  # "exit", "stop", "lease", "launcher gone", "watchdog gone"
    left: tuple[int, ...]


class Launcher:
    def __init__(self, clock: Clock, environment: Mapping[str, str] | None = None) -> None:
        self._clock = clock
        self._environment = dict(os.environ if environment is None else environment)
        self._vm = Path(self._environment["TPUCTL_VM_DIR"])
        self._finished = threading.Event()
        self._ended: Ended | None = None
        self._lifeline = -1  # write end; -1 = not yet, or the watchdog is gone
        self._until_s = 0.0  # the latest end of the lease that was heard of
        self._lifeline_lock = threading.Lock()
        self._job: tuple[RunDocument, Order, Place] | None = None

    # Preparing.

    def prepare(self, document: RunDocument, order: Order, place: Place) -> Prepared | Refused:
        """Everything that can be done before the gang is complete. Nothing runs yet."""
        host = read_json(self._vm / "host.json") or {}
        refusal = self._identity(host, order, place) or self._chips_busy()
        if refusal:
            return Refused(refusal)
        self._job = (document, order, place)
        work = self._work
        work.mkdir(parents=True, exist_ok=True)
        if document.bundle:
            try:
                shutil.copytree(self._bundle(document.bundle, host["agent"]), work, symlinks=True, dirs_exist_ok=True)
            except (NoAnswerError, BadBundleError) as error:
                return Refused(f"the working directory could not be fetched from {host['agent']}: {error}")
        address = host["address"]
        first = order.attempt * 7 + sum(document.id.encode())  # spread, so that a port is seldom used twice in a row
        ports = _free_ports(address, first)
        return Prepared(self._clock.monotonic(), Coordinator(address, *ports))

    def _identity(self, host: Mapping[str, Any], order: Order, place: Place) -> str:
        here = (host.get("incarnation"), host.get("worker"))
        if here != (place.slice.incarnation, place.worker):
            return f"this host is worker {here[1]} of {here[0]}, not {place.worker} of {place.slice.incarnation}"
        path = self._vm / "epoch"
        newest = path.read_text().strip() if path.exists() else ""
        if newest and epoch_order(order.epoch) < epoch_order(type(order.epoch)(newest)):
            return f"the order is of epoch {order.epoch}, this host has heard of {newest}"
        if newest != order.epoch:
            write_atomic(path, f"{order.epoch}\n".encode())
        return ""

    def _chips_busy(self) -> str:
        """ "" when no process has a chip open, else who. Nothing is killed here: it may be a user's own (A44)."""
        chips, vm = ChipPlaces.from_environment(self._environment), VmPlaces.from_environment(self._environment)
        give_up_s = self._clock.monotonic() + CHIPS_PATIENCE_S
        while found := find_holders(chips.chips(), vm):
            if self._clock.monotonic() >= give_up_s:
                listed = ", ".join(f"{holder.path} by process {holder.process.pid}" for holder in found)
                return f"its chips are in use after {show_duration(CHIPS_PATIENCE_S)}: {listed}"
            self._clock.sleep(0.1)
        return ""

    def _bundle(self, digest: str, agent: str) -> Path:
        """The unpacked working directory, fetched once a VM."""
        into = self._vm / "bundles" / digest
        if not into.is_dir():
            unpack(self._fetch(f"{agent}/v1/bundles/{digest}"), digest, into)
        return into

    def _fetch(self, url: str) -> bytes:
        """Raises NoAnswerError, also when the agent refuses."""
        for left in reversed(range(FETCH_TRIES)):
            token = (self._vm / "token").read_text().strip()
            try:
                answer = call("GET", url, token=token, timeout_s=60.0, limit_bytes=LIMIT_BYTES)
            except NoAnswerError:
                if not left:
                    raise
            else:
                if answer.status == 200:
                    return answer.body
                if answer.status < 500 or not left:
                    raise NoAnswerError(f"HTTP {answer.status}: {answer.text()[:200]}")
            self._clock.sleep(1.0)  # the agent may be restarting
        raise AssertionError("the last try returns or raises")

    @property
    def _work(self) -> Path:
        document, order, _ = self._prepared
        return self._vm / "attempts" / document.id / str(order.attempt)

    @property
    def _prepared(self) -> tuple[RunDocument, Order, Place]:
        if self._job is None:
            raise RuntimeError("prepare() comes first")
        return self._job

    # Running.

    def start(self, coordinator: Coordinator, until_s: float) -> Refused | None:
        """Start the program; it may run until that moment of this host's clock unless `beat` moves it."""
        document, order, place = self._prepared
        environment = environment_of(self._environment, document, order, place, coordinator)
        first = {
            "argv": argv_of(document.command),
            "env": environment,
            "cwd": str(self._work),
            "log": str(self._work / "rank.log"),
            "until": max(until_s, self._until_s),
        }
        lifeline, ours = os.pipe()
        status, status_end = os.pipe()
        (self._vm / "log").mkdir(exist_ok=True)
        with (self._vm / "log" / "watchdog.log").open("ab") as log:
            # A double fork and a session of its own: it is neither a child of this worker nor in its process group, so
            # Ray kills it in none of the ways in which workers and raylets die.
            subprocess.run(
                ["setsid", "-f", sys.executable, "-I", "-S", str(Path(__file__).with_name("watchdog.py"))],
                stdin=lifeline,
                stdout=status_end,
                stderr=log,
                env=self._environment,
                check=True,
            )
        os.close(lifeline)
        os.close(status_end)
        # A beat may come before this call is over: what to start has to be the first line, whatever the threads do.
        if not _write_line(ours, json.dumps(first)):
            os.close(ours)
            os.close(status)
            return Refused("the watchdog did not start; see log/watchdog.log on the host")
        self._lifeline = ours
        threading.Thread(target=self._listen, args=(status,), daemon=True).start()
        return None

    def beat(self, until_s: float, offset: int) -> Beat:
        """Renew the lease until that moment of this host's clock; the answer carries what the program printed."""
        self._until_s = max(self._until_s, until_s)
        self._tell(f"until {until_s!r}")
        return Beat(self._clock.monotonic(), self.read_log(offset))

    def read_log(self, offset: int) -> bytes:
        try:
            with (self._work / "rank.log").open("rb") as file:
                file.seek(offset)
                return file.read(CHUNK_BYTES)
        except FileNotFoundError:
            return b""

    def stop(self, grace_s: float) -> None:
        """SIGTERM to all processes of the program now, SIGKILL to the rest after the grace; `wait` tells the end."""
        self._tell(f"stop {grace_s!r}")

    def wait(self) -> Ended:
        self._finished.wait()
        if self._ended is None:
            raise RuntimeError("finished without an end")
        return self._ended

    def _tell(self, line: str) -> bool:
        with self._lifeline_lock:
            return self._lifeline >= 0 and _write_line(self._lifeline, line)

    def _listen(self, status: int) -> None:
        """Read the watchdog's words until it is gone."""
        code: int | None = None
        number: int | None = None
        last: dict[str, Any] = {}
        with os.fdopen(status, "rb") as words:
            for word in words:
                last = json.loads(word)
                if "code" in last:
                    code, number = last["code"], last["signal"]
        left = tuple(last.get("left", ()))
        if "clean" not in last:
            # The watchdog itself was killed. The kernel killed the program with it; the rest is found by its marks.
            left = tuple(process.pid for process in self._kill_marked())
        with self._lifeline_lock:
            os.close(self._lifeline)
            self._lifeline = -1
        self._ended = Ended(code, number, last.get("why", "watchdog gone"), left)
        self._finished.set()

    def _kill_marked(self) -> list[ProcessId]:
        """SIGKILL to all processes that carry this attempt's environment; returns those that are still there after."""
        document, order, place = self._prepared
        marks = (
            f"TPUCTL_RUN_ID={document.id}",
            f"TPUCTL_ATTEMPT={order.attempt}",
            f"TPUCTL_RANK={place.rank}",  # in the emulator other hosts' processes can be seen too
        )
        give_up_s = self._clock.monotonic() + 5.0
        while (found := processes_with_entries(*marks)) and self._clock.monotonic() < give_up_s:
            for process in found:
                send_signal(process, signal.SIGKILL)
            self._clock.sleep(0.02)
        return found


def _write_line(pipe: int, line: str) -> bool:
    """False when nobody reads any more."""
    data = line.encode() + b"\n"
    try:
        while data:
            data = data[os.write(pipe, data) :]
    except BrokenPipeError:
        return False
    return True


def _free_ports(address: str, first: int) -> tuple[int, int]:
    """Two ports that nothing listens on at that address now."""
    free: list[int] = []
    for step in range(len(PORTS)):
        port = PORTS[(first + step) % len(PORTS)]
        with socket.socket() as trial:
            try:
                trial.bind((address, port))
            except OSError:
                continue
        free.append(port)
        if len(free) == 2:
            return free[0], free[1]
    raise OSError(f"no two free ports on {address} in {PORTS.start} to {PORTS.stop - 1}")
