"""The emulator as its commands see it: started, asked and stopped from another process."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tpuctl.base.clock import Clock
from tpuctl.base.errors import TpuctlError, UserError
from tpuctl.base.process import (
    ProcessId,
    is_alive,
    kill_tree,
    processes_with_environment,
    send_signal,
    signal_all,
    spawn,
)
from tpuctl.emulator.options import ServerOptions
from tpuctl.emulator.state_file import (
    EmulatorState,
    directory_of,
    is_root_of,
    make_directory,
    read_state,
    running,
)

START_LIMIT_S = 30.0
STOP_LIMIT_S = 20.0
_children: list[subprocess.Popen[bytes]] = []  # started by this very process, which must reap them when they end


def start(options: ServerOptions, clock: Clock) -> tuple[EmulatorState, bool]:
    """Start it in the background and wait until it answers. (state, False) when it was running already."""
    state = running(options.home, options.name)
    if state is not None:
        return state, False
    directory = make_directory(options.home, options.name)
    (directory / "state.json").unlink(missing_ok=True)
    log = directory / "log"
    with log.open("wb") as output:
        child = spawn(_argv(options), output=output)
    _children.append(child)
    deadline = clock.monotonic() + START_LIMIT_S
    while clock.monotonic() < deadline:
        state = running(options.home, options.name)
        if state is not None and _answers(state):
            return state, state.pid == child.pid
        if child.poll() is not None and state is None:
            raise TpuctlError(f"the emulator ended at once with status {child.returncode}: {_tail(log)}")
        clock.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    raise TpuctlError(f"the emulator did not answer within {START_LIMIT_S:.0f}s; see {log}: {_tail(log)}")


def _argv(options: ServerOptions) -> list[str]:
    argv = [sys.executable, "-m", "tpuctl.emulator", "--home", str(options.home), "--name", options.name]
    argv += ["--port", str(options.port), "--machines", options.machines]
    if options.scenario is not None:
        argv += ["--scenario", str(options.scenario.absolute())]
    if options.root is not None:
        argv += ["--root", str(options.root.absolute())]
    if options.seed is not None:
        argv += ["--seed", str(options.seed)]
    return argv


def find(home: Path, name: str) -> EmulatorState:
    """Raises TpuctlError when none of that name runs."""
    state = running(home, name)
    if state is None:
        raise TpuctlError(f"emulator {name!r} is not running; start it with `tpuctl emulator start`")
    return state


def ask(state: EmulatorState, verb: str, document: dict[str, Any] | None = None, *, limit_s: float = 10.0) -> Any:
    """One call of the control API. Raises TpuctlError with its words."""
    request = urllib.request.Request(
        f"{state.url}/emulator/v1/{verb}",
        data=json.dumps(document or {}).encode(),
        headers={"Authorization": f"Bearer {state.token}", "Content-Type": "application/json"},
        method="POST",
    )
    # A proxy from the environment must not see what is said to a port of this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=limit_s) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            # What it refuses is the caller's to mend.
            kind = UserError if error.code in (400, 404) else TpuctlError
            raise kind(_message(error.read())) from error
    except OSError as error:
        raise TpuctlError(f"emulator {state.name!r} at {state.url} does not answer: {error}") from error


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")


def stop(home: Path, name: str, clock: Clock) -> bool:
    """End the emulator and every process of its machines; False when there was nothing to stop."""
    directory = directory_of(home, name)
    state = read_state(directory)
    if state is None:
        return False
    lived = is_alive(state.process)
    if lived:
        _end(state, clock)
    # After a crash the machines' processes may be left; they carry the root in their environment.
    left: list[ProcessId] = []
    if is_root_of(state):
        left = processes_with_environment(state.root)
        signal_all(left, signal.SIGKILL)
        shutil.rmtree(state.root, ignore_errors=True)
    (directory / "state.json").unlink(missing_ok=True)
    return lived or bool(left)


def _end(state: EmulatorState, clock: Clock) -> None:
    """Told by SIGTERM, which ends the machines too; killed with its tree when that takes too long."""
    send_signal(state.process, signal.SIGTERM)
    deadline = clock.monotonic() + STOP_LIMIT_S
    while is_alive(state.process):
        if clock.monotonic() > deadline:
            kill_tree(state.process)
        clock.sleep(0.05)
    _children[:] = [child for child in _children if child.poll() is None]


def _answers(state: EmulatorState) -> bool:
    try:
        ask(state, "status", limit_s=2.0)
    except TpuctlError:
        return False
    return True


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return " | ".join(lines[-5:]) or "(no output)"
