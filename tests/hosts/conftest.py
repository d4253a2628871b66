"""A VM as plain processes: directory, metadata server, device files, and the daemon or keeper started on it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tpuctl.base.process import identify, kill_tree, processes_with_environment, signal_all
from tpuctl.testing.web import Asked, Reply, ScriptedServer

TOKEN = "a-token-of-the-tests-0123456789abcdef"
PROCESS = Path(__file__).with_name("vm_process.py")
EPOCH = "t6m8gb"


class FakeMetadata:
    """A metadata server: values by key below instance/, waiting for changes, guest attributes."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values
        self.guest: list[tuple[str, str]] = []
        self._changed = threading.Condition()
        self._version = 1
        self.server = ScriptedServer(self._answer)

    def change(self, key: str, value: str) -> None:
        with self._changed:
            self.values[key] = value
            self._version += 1
            self._changed.notify_all()

    @property
    def stages(self) -> list[str]:
        return [value for key, value in self.guest if key == "tpuctl/stage"]

    def _answer(self, asked: Asked) -> Reply:
        path, _, query = asked.path.removeprefix("/computeMetadata/v1/instance/").partition("?")
        if asked.headers.get("metadata-flavor") != "Google":
            return Reply(status=403)
        if asked.method == "PUT":
            self.guest.append((path.removeprefix("guest-attributes/"), asked.body.decode()))
            return Reply()
        with self._changed:
            if f"last_etag={self._version}" in query:
                self._changed.wait(timeout=5)
            if path not in self.values:
                return Reply(status=404)
            return Reply(self.values[path], headers={"ETag": str(self._version)})


class FakeAgent:
    """The head's agent as hosts see it: /v1/head and reports. `ray` is what it publishes."""

    def __init__(self, address: str, port: int) -> None:
        self.epoch = EPOCH
        self.ray: Callable[[], dict[str, Any] | None] = lambda: None
        self.reports: list[dict[str, Any]] = []
        self.token = TOKEN
        self.server = ScriptedServer(self._answer, address, port)

    def _answer(self, asked: Asked) -> Reply:
        if asked.headers.get("authorization") != f"Bearer {self.token}":
            return Reply({"error": {"kind": "auth", "message": "no"}}, status=401)
        if asked.path == "/v1/head":
            return Reply({"cluster": "lab", "epoch": self.epoch, "version": "0", "api": 1, "ray": self.ray()})
        assert asked.path == "/v1/hosts/report"
        self.reports.append(asked.document() | {"at": time.monotonic()})
        return Reply({})

    def stages(self, worker: int = 0) -> list[str]:
        return [report["stage"] for report in self.reports if report["worker"] == worker]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class PlainVm:
    """One VM below `root`, on its own loopback address."""

    root: Path
    address: str
    role: str
    agent_port: int
    worker: int | None = 0
    chips: int = 4
    hold_s: float = 8.0
    extra: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("tpuctl/log", "tpuctl/data", "dev", "tmp", "cloud"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        for chip in range(self.chips):
            (self.root / "dev" / f"accel{chip}").touch()
        (self.root / "cloud" / "secret").write_text(TOKEN)
        (self.prefix / "config.json").write_text(json.dumps(self.config()))
        values = {"network-interfaces/0/ip": self.address, "preempted": "FALSE", "id": "1"}
        if self.worker is not None and self.role == "host":
            values["attributes/agent-worker-number"] = str(self.worker)
        self.metadata = FakeMetadata(values)
        self.started: list[subprocess.Popen[bytes]] = []

    @property
    def prefix(self) -> Path:
        return self.root / "tpuctl"

    def config(self) -> dict[str, Any]:
        roots = dict.fromkeys(("tpu", "compute", "secretmanager", "storage"), "http://127.0.0.1:9")
        host = {
            "pool": "v4", "slot": 0, "epoch": EPOCH, "incarnation": f"lab-v4-0-{EPOCH}-1", "slice": "v4-0",
            "zone": "us-central2-b", "accelerator": "v4-16", "hosts": 2, "chips_per_host": 4,
        }  # fmt: skip
        document: dict[str, Any] = {
            "version": 1, "role": self.role, "cluster": "lab", "project": "p", "endpoints": roots,
            "head": {"name": "tpuctl-lab-head", "zone": "us-central1-a"}, "secret": "tpuctl-lab-token",
            "agent_port": self.agent_port, "ray_ports": [20000, 32000], "digest": "",
            "detection": {"hold_s": self.hold_s, "rejoin_s": 60.0},
        }  # fmt: skip
        return document | ({"host": host} if self.role == "host" else {})

    def head_is(self, address: str, epoch: str = EPOCH) -> None:
        (self.root / "cloud" / "head.json").write_text(json.dumps({"address": address, "epoch": epoch}))

    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(self.root),
            "TPUCTL_VM_DIR": str(self.prefix),
            "TMPDIR": str(self.root / "tmp"),
            "TPU_DEV_ROOT": str(self.root / "dev"),
            "GCE_METADATA_HOST": self.metadata.server.host,
        } | self.extra

    def start(self) -> subprocess.Popen[bytes]:
        with (self.prefix / "log" / "daemon.log").open("ab") as log:
            started = subprocess.Popen(
                [sys.executable, str(PROCESS), self.role],
                env=self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.started.append(started)
        return started

    @property
    def log(self) -> str:
        return (self.prefix / "log" / "daemon.log").read_text()

    @property
    def ray_words(self) -> str:
        path = self.prefix / "log" / "ray.log"
        return path.read_text()[-3000:] if path.exists() else ""

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None and (root := identify(process.pid)):
                kill_tree(root)
            process.wait()
        while left := processes_with_environment(f"HOME={self.root}\0"):
            signal_all(left, signal.SIGKILL)
            time.sleep(0.05)
        self.metadata.server.close()


@dataclass
class Lab:
    """VMs and an agent on one /24 of loopback addresses, all ended with the test."""

    root: Path
    net: str
    agent: FakeAgent
    port: int
    vms: list[PlainVm] = field(default_factory=list)

    def eventually(self, holds: Callable[[], Any], limit_s: float, what: str) -> Any:
        """The first true value of `holds()`; fails after the limit, with what the daemons wrote."""
        deadline = time.monotonic() + limit_s
        while not (value := holds()):
            logs = "\n".join(f"-- {vm.role} {vm.address}\n{vm.log}{vm.ray_words}" for vm in self.vms if vm.started)
            assert time.monotonic() < deadline, f"not within {limit_s}s: {what}\n{logs}"
            time.sleep(0.05)
        return value

    @property
    def head_address(self) -> str:
        return f"{self.net}.1"

    def vm(self, role: str = "host", **changes: Any) -> PlainVm:
        number = len(self.vms) + (1 if role == "head" else 2)
        vm = PlainVm(self.root / f"v{number}", f"{self.net}.{number}", role, self.port, **changes)
        vm.head_is(self.head_address)
        self.vms.append(vm)
        return vm


@pytest.fixture
def lab() -> Iterator[Lab]:
    """The agent publishes no Ray until `lab.agent.ray` is set."""
    # Short: Ray puts Unix sockets below it, whose names may have 107 characters.
    root = Path(tempfile.mkdtemp(prefix="tph"))
    net, port = f"127.{88 + os.getpid() % 100}.{os.getpid() // 100 % 250}", free_port()
    lab = Lab(root, net, FakeAgent(f"{net}.1", port), port)
    yield lab
    for vm in lab.vms:
        vm.close()
    lab.agent.server.close()
    shutil.rmtree(root, ignore_errors=True)
