"""One small world a story: an emulator with real machines, a head, slices, and the tpuctl command as a user runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tpuctl.base.process import processes_with_environment

TPUCTL = (sys.executable, "-m", "tpuctl.cli.main")

CLUSTER = """\
version: 1
cluster: {cluster}
project: lab
backend: emulator
head: {{zone: us-central2-b}}
storage: {{us: "file://{storage}"}}
detection: {{hold: 8s, rejoin: 20s}}
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

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = self.json("status")
        return document

    def slices(self) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in self.status()["slices"]}

    def a_run(self, name: str) -> dict[str, Any]:
        document: dict[str, Any] = self.json("runs", name)
        return document

    def wait(self, what: str, seen: Callable[[], Any], timeout_s: float = 90, pause_s: float = 0.5) -> Any:
        deadline = time.monotonic() + timeout_s
        while True:
            value = seen()
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


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """An emulator of its own, stopped at the end; nothing that carries its root may be left."""
    with tempfile.TemporaryDirectory(prefix="tpuctl-story-") as folder:
        base = Path(folder)
        (base / "storage").mkdir()
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("TPUCTL", "RAY_", "JAX_"))
        }
        environment |= {"TPUCTL_HOME": str(base / "home"), "NO_COLOR": "1", "COLUMNS": "80"}
        made = World(base / "home", base / "tpuctl.yaml", base / "storage", environment)
        printed = made.run("emulator", "start").stdout
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
