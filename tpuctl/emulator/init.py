"""The first process of an emulated machine: keeps units alive, reaps, and ends everything when it must.

Started as `python -I -S -c … DIRECTORY`, with a socket to the emulator as standard input (the lifeline). It imports
next to nothing, because every machine has one: below 12 MB resident.

Every process of the machine is its descendant and stays so (PR_SET_CHILD_SUBREAPER), also one that daemonises. When the
lifeline closes, which is also what the emulator's own death looks like, the whole tree is killed.

Lines from the emulator: `notice` (a soft-off: stop all units, restart none), `freeze`, `thaw`, `die`.
Lines to it: `begun` (the startup script was begun), `frozen`, `thawed`, `off` (shut down from inside).
Requests of the image's `systemctl` come over `run/init.sock`, one JSON line each, and get one back:
`{verb, units: [definitions or names]}` -> `{exit, out}`.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
import time

from tpuctl.emulator import proctable
from tpuctl.emulator.launch import become, read_environment_file
from tpuctl.emulator.units import FAILED, INACTIVE, Unit

TYPE_CHECKING = False  # see units.py
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PR_SET_CHILD_SUBREAPER = 36
SCRIPTS = "google-startup-scripts.service"
LINE_LIMIT = 1 << 20


def one_shot(name: str, argv: list[str], output: str) -> dict[str, Any]:
    """The definition of something that runs once and leaves its daemons alone, as the guest agent's own units do."""
    return {
        "name": name, "argv": argv, "environment": {}, "environment_files": [], "directory": "", "restart": "no",
        "restart_s": 0.1, "kill_mode": "process", "stop_s": 90.0, "output": output,
    }  # fmt: skip


class Machine:
    def __init__(self, directory: str, lifeline: socket.socket) -> None:
        self.directory = directory
        self.units: dict[str, Unit] = {}
        self._lifeline = lifeline
        self._heard = b""
        self._requests = socket.socket(socket.AF_UNIX)
        self._clients: dict[int, socket.socket] = {}
        self._waiting: list[tuple[socket.socket, list[Unit], str]] = []  # answered when the units have settled
        self._stopped: list[int] = []
        self._frozen = False
        self._notice_due = False
        self._closing = False  # units are not started any more
        self._power_off = False
        self._poll = select.poll()

    # What units ask of the machine (units.Host)

    def spawn(self, definition: dict[str, Any], extra: dict[str, str]) -> int:
        environment = {**os.environ, **extra, **definition["environment"]}
        for path in definition["environment_files"]:
            environment.update(read_environment_file(path))
        output = os.open(definition["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            pid = os.fork()
            if pid == 0:
                become(definition, environment, output)
        finally:
            os.close(output)
        return pid

    def members(self, mark: str) -> list[int]:
        return proctable.marked(proctable.descendants(os.getpid()), mark)

    def send(self, pid: int, number: int) -> None:
        proctable.send(pid, number)

    def log(self, text: str) -> None:
        print(text, flush=True)

    # Life

    def run(self) -> None:
        """Until the machine is to end. Everything below is dead when it returns."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._requests.bind(f"{self.directory}/run/init.sock")
        self._requests.listen(16)
        for descriptor in (wake_read, self._lifeline.fileno(), self._requests.fileno()):
            self._poll.register(descriptor, select.POLLIN)
        self._boot()
        while True:
            for descriptor, _ in self._poll.poll(self._patience_ms()):
                if descriptor == wake_read:
                    os.read(wake_read, 4096)
                elif descriptor == self._lifeline.fileno():
                    if not self._listen_to_emulator():
                        return
                elif descriptor == self._requests.fileno():
                    self._accept()
                else:
                    self._read_request(descriptor)
            if not self._frozen and self._step():
                return

    def _boot(self) -> None:
        log = f"{self.directory}/log"
        enabled = sorted(os.listdir(f"{self.directory}/run/enabled"))  # noqa: PTH208
        if enabled:
            self._add(one_shot("enabled-units", ["systemctl", "start", *enabled], f"{log}/init.log"))
        self._add(one_shot(SCRIPTS, ["google_metadata_script_runner", "startup"], f"{log}/startup.log"))
        self._tell("begun")

    def _add(self, definition: dict[str, Any]) -> Unit:
        unit = self.units[definition["name"]] = Unit(definition, self)
        unit.start(now())
        return unit

    def _step(self) -> bool:
        """Reap, let the units do what is due, answer who waited. True when the machine is to end."""
        if self._notice_due:
            self._notice_due = False
            self._soft_off()
        self._reap()
        for unit in self.units.values():
            unit.tick(now())
        for entry in [entry for entry in self._waiting if all(unit.settled for unit in entry[1])]:
            self._waiting.remove(entry)
            self._answer(entry[0], 0, entry[2])
        if self._power_off and all(unit.state in (INACTIVE, FAILED) for unit in self.units.values()):
            self._tell("off")
            return True
        return False

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for unit in self.units.values():
                if unit.main == pid:
                    unit.main_ended(os.waitstatus_to_exitcode(status), now())

    def _patience_ms(self) -> int | None:
        if self._frozen:
            return None
        due = [seconds for unit in self.units.values() if (seconds := unit.next_due(now())) is not None]
        return int(min(due) * 1000) + 1 if due else None

    def _soft_off(self) -> None:
        """What systemd does at a soft-off: all units are stopped side by side, the shutdown script is run."""
        self._closing = True
        for unit in self.units.values():
            unit.stop(now())
        runner = ["google_metadata_script_runner", "shutdown"]
        self._add(one_shot("google-shutdown-scripts.service", runner, f"{self.directory}/log/shutdown.log"))

    # The emulator

    def _tell(self, line: str) -> None:
        try:
            self._lifeline.sendall(line.encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            return  # the emulator is gone: the next read says so

    def _listen_to_emulator(self) -> bool:
        """False when the machine is to end."""
        try:
            data = self._lifeline.recv(4096)
        except ConnectionResetError:
            return False
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            if line == b"die":
                return False
            if line == b"notice":
                self._notice_due = True
            elif line == b"freeze" and not self._frozen:
                self._frozen = True
                self._stopped = proctable.stop_below(os.getpid())
                self._tell("frozen")
            elif line == b"thaw" and self._frozen:
                self._frozen = False
                for pid in self._stopped:
                    proctable.send(pid, signal.SIGCONT)
                self._tell("thawed")
        return bool(data)

    # systemctl

    def _accept(self) -> None:
        client, _ = self._requests.accept()
        self._clients[client.fileno()] = client
        self._poll.register(client.fileno(), select.POLLIN)

    def _read_request(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        client = self._clients.pop(descriptor)
        client.settimeout(1.0)  # the request is one write of a program of ours
        try:
            with client.makefile("rb") as stream:
                request = json.loads(stream.readline(LINE_LIMIT))
            verb = VERBS[request["verb"]]
        except (OSError, ValueError, KeyError) as error:
            self._answer(client, 1, f"not a request: {error}")
            return
        verb(self, client, request["units"])

    def _answer(self, client: socket.socket, status: int, text: str) -> None:
        try:
            client.sendall(json.dumps({"exit": status, "out": text}).encode() + b"\n")
        except OSError as error:  # who asked is gone
            self.log(f"answer not delivered: {error}")
        client.close()

    def _known(self, client: socket.socket, names: list[str]) -> list[Unit] | None:
        missing = [name for name in names if name not in self.units]
        if missing:
            self._answer(client, 5, f"Unit {missing[0]} not loaded.")
            return None
        return [self.units[name] for name in names]

    def start(self, client: socket.socket, definitions: list[dict[str, Any]]) -> None:
        self._begin(client, definitions, Unit.start)

    def restart(self, client: socket.socket, definitions: list[dict[str, Any]]) -> None:
        self._begin(client, definitions, Unit.restart)

    def _begin(
        self, client: socket.socket, definitions: list[dict[str, Any]], what: Callable[[Unit, float], None]
    ) -> None:
        if self._closing:
            self._answer(client, 1, "the system is shutting down: nothing is started any more")
            return
        units = []
        for definition in definitions:
            unit = self.units.setdefault(definition["name"], Unit(definition, self))
            unit.definition = definition
            what(unit, now())
            units.append(unit)
        self._waiting.append((client, units, ""))

    def reload(self, client: socket.socket, definitions: list[dict[str, Any]]) -> None:
        for definition in definitions:
            if definition["name"] in self.units:
                self.units[definition["name"]].definition = definition
        self._answer(client, 0, "")

    def stop(self, client: socket.socket, names: list[str]) -> None:
        units = self._known(client, names)
        if units is not None:
            for unit in units:
                unit.stop(now())
            self._waiting.append((client, units, ""))

    def show(self, client: socket.socket, names: list[str]) -> None:
        """One line a unit: name, state, main pid, result, restarts. A unit that was never started is inactive."""
        lines = []
        for name in names or sorted(self.units):
            unit = self.units.get(name)
            row = (unit.state, unit.main, unit.result, unit.restarts) if unit else (INACTIVE, 0, 0, 0)
            lines.append(" ".join(str(field) for field in (name, *row)))
        self._answer(client, 0, "\n".join(lines))

    def poweroff(self, client: socket.socket, _names: list[str]) -> None:
        self._answer(client, 0, "")
        self._power_off = self._notice_due = True


VERBS: dict[str, Callable[[Machine, socket.socket, list[Any]], None]] = {
    "start": Machine.start,
    "restart": Machine.restart,
    "reload": Machine.reload,
    "stop": Machine.stop,
    "show": Machine.show,
    "poweroff": Machine.poweroff,
}


def now() -> float:
    # Not a Clock of base: this process stands for systemd, and base.clock would cost each machine 2 MB.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def main(directory: str) -> None:
    lifeline = socket.socket(fileno=os.dup(0))
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # like process 1: only the emulator ends it
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    try:
        Machine(directory, lifeline).run()
    finally:
        end_everything()


def end_everything() -> None:
    """Kill and reap all descendants: no zombie is left for anybody else."""
    limit = now() + 5.0  # a process in uninterruptible sleep is not waited for
    while now() < limit:
        proctable.kill_below(os.getpid())
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


if __name__ == "__main__":
    main(sys.argv[1])
