"""What the stories share: a world of their own, as a user would use it, and the runs that they submit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tpuctl.app import Basis, Settings, known_agent
from tpuctl.base.chance import SystemChance
from tpuctl.base.clock import SystemClock
from tpuctl.base.process import processes_with_environment
from tpuctl.client import AgentClient, AgentNotReadyError, AgentUnreachableError

TPUCTL = (sys.executable, "-m", "tpuctl.cli.main")

HOLD_S = 8  # of the spec below
CLUSTER = """\
version: 1
cluster: {cluster}
project: lab
backend: emulator
head: {{zone: us-central2-b}}
storage: {{us: "file://{storage}"}}
detection: {{hold: 8s, rejoin: 20s, young: none}}
pools:
  - name: v4
    accelerator: {accelerator}
    zones: [us-central2-b]
    slices: {slices}
    deadlines: {{provision: 60s, boot: 60s, join: 60s}}
"""


@dataclass
class World:
    """Commands and waiting. Every wait is for an observed fact and has a deadline."""

    home: Path
    spec: Path
    storage: Path
    environment: dict[str, str]
    last: str = field(default="", repr=False)

    def run(self, *words: str, ok: tuple[int, ...] = (0,), timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*TPUCTL, *words],
            env=self.environment,
            cwd=self.spec.parent,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode in ok, f"tpuctl {' '.join(words)} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *words: str, ok: tuple[int, ...] = (0,)) -> Any:
        return json.loads(self.run(*words, "--json", ok=ok).stdout)

    def agent(self) -> AgentClient:
        """As the commands find it. Waiting polls through it: a process a poll would slow the story down."""
        here = Basis(Settings.from_environment(self.environment), SystemClock(), SystemChance())
        agent = known_agent(here, self.spec)
        assert agent is not None, "no head was ever found"
        return agent

    def answers(self) -> bool:
        try:
            self.agent().health()
        except (AgentUnreachableError, AgentNotReadyError):
            return False
        return True

    def status(self) -> dict[str, Any]:
        return dict(self.agent().status())

    def slices(self) -> dict[str, dict[str, Any]]:
        """The newest incarnation of each slot."""
        return {row["name"]: row for row in self.status()["slices"]}

    def a_run(self, name: str) -> dict[str, Any]:
        return dict(self.agent().run(name))

    def wait(self, what: str, seen: Callable[[], Any], timeout_s: float = 90, pause_s: float = 0.3) -> Any:
        """Until `seen` gives something true. A head that does not answer shows nothing, which is no failure yet."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                value = seen()
            except (AgentUnreachableError, AgentNotReadyError):
                value = None
            if value:
                return value
            if time.monotonic() > deadline:
                pytest.fail(
                    f"waited {timeout_s:.0f} s for {what}; status now:\n{self.run('status', ok=(0, 1, 3)).stdout}"
                )
            time.sleep(pause_s)

    def emulator(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run("emulator", *words)

    def machines_root(self) -> str:
        state: dict[str, Any] = json.loads((self.home / "emulators" / "default" / "state.json").read_text())
        return str(state["root"])


def write_cluster(world: World, *, slices: int = 2, accelerator: str = "v4-16", cluster: str = "lab") -> None:
    world.spec.write_text(
        CLUSTER.format(cluster=cluster, storage=world.storage, accelerator=accelerator, slices=slices)
    )


@contextmanager
def a_world(scenario: str = "") -> Iterator[World]:
    """An emulator of its own, stopped at the end; nothing that carries its root may be left. `scenario`: YAML."""
    with tempfile.TemporaryDirectory(prefix="tpuctl-story-") as folder:
        base = Path(folder)
        (base / "storage").mkdir()
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("TPUCTL", "RAY_", "JAX_"))}
        environment = kept | {"TPUCTL_HOME": str(base / "home"), "NO_COLOR": "1", "COLUMNS": "80"}
        made = World(base / "home", base / "tpuctl.yaml", base / "storage", environment)
        words = ["emulator", "start"]
        if scenario:
            (base / "scenario.yaml").write_text(scenario)
            words += ["--scenario", str(base / "scenario.yaml")]
        printed = made.run(*words).stdout
        found = re.search(r"^export TPUCTL_EMULATOR=(\S+)$", printed, re.MULTILINE)
        assert found, printed
        environment["TPUCTL_EMULATOR"] = found[1]
        root = made.machines_root()
        try:
            yield made
        finally:
            made.run("emulator", "stop", ok=(0, 1))
            left = [row.pid for row in processes_with_environment(root)]
        assert left == [], f"processes of {root} left: {left}"


WORKER = Path(__file__).parent / "programs" / "worker.py"


def submit(world: World, name: str, *arguments: str, slices: str = "1", max_failures: int = 3, use: str = "v4") -> None:
    """Queue one run of the worker program; the spec is a file, as a user would write it."""
    spec = world.spec.parent / f"{name}.yaml"
    words = ", ".join(
        f'"{word}"' for word in (sys.executable, str(WORKER), "--ledger", str(world.storage / "ledger"), *arguments)
    )
    spec.write_text(
        f"version: 1\nname: {name}\ncommand: [{words}]\nslices: {slices}\nuse: [{{pool: {use}}}]\n"
        f"max_failures: {max_failures}\n"
        f"checkpoint: {{dir: '{{storage}}/runs/{name}', grace: 3s}}\n"
    )
    world.run("submit", str(spec))


def state(world: World, name: str) -> str:
    return str(world.a_run(name)["state"])


def wait_for_success(world: World, name: str, timeout_s: float = 90) -> None:
    world.wait(f"run {name} to succeed", lambda: state(world, name) == "SUCCEEDED", timeout_s)


def attempts(world: World, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = world.a_run(name)["attempts"]
    return found


def held_by(world: World, name: str) -> list[str]:
    return sorted(row["name"] for row in world.status()["slices"] if row["run"] == name)


def steps_of(world: World, name: str) -> int:
    kept = world.storage / "runs" / name / "step"
    return int(kept.read_text()) if kept.exists() else 0


def all_ready(world: World) -> bool:
    rows = world.status()["slices"]
    return len(rows) == 2 and all(row["phase"] == "READY" for row in rows)
