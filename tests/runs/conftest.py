"""A small Ray cluster on loopback: a head and fake hosts with our labels, each with a VM directory of its own."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuctl.base.process import ProcessId, identify, is_alive, kill_tree, processes_with_environment, signal_all, spawn

EPOCH = "t6m8gb"


def _ray() -> str:
    return str(Path(sys.executable).with_name("ray"))


def _free_block(address: str, size: int = 60) -> int:
    for first in range(33000, 60000, size):
        try:
            for port in range(first, first + size):
                with socket.socket() as trial:
                    trial.bind((address, port))
        except OSError:
            continue
        return first
    raise OSError(f"no free block of {size} ports on {address}")


class FakeHost:
    """A TPU host as Ray and the launcher see it. Everything of it carries its VM directory in the environment."""

    def __init__(self, lab: RayLab, slice_name: str, worker: int, index: int) -> None:
        self.lab, self.slice, self.worker = lab, slice_name, worker
        self.incarnation = f"lab-{slice_name}-{EPOCH}-1"
        self.address = f"{lab.net}.{10 + index}"
        self.vm = lab.root / f"{slice_name}w{worker}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        (self.vm / "dev").mkdir(parents=True, exist_ok=True)
        for chip in range(4):
            (self.vm / "dev" / f"accel{chip}").touch()
        host = {"incarnation": self.incarnation, "slice": self.slice, "worker": self.worker, "address": self.address}
        (self.vm / "host.json").write_text(json.dumps({**host, "agent": self.lab.agent, "epoch": EPOCH}))
        (self.vm / "epoch").write_text(EPOCH + "\n")
        shutil.copy(self.lab.token, self.vm / "token")
        first = _free_block(self.address)
        labels = f"tpuctl/slice={self.slice},tpuctl/incarnation={self.incarnation},tpuctl/worker={self.worker}"
        argv = [_ray(), "start", "--block", f"--address={self.lab.gcs}", f"--node-ip-address={self.address}"]
        argv += ['--resources={"TPU":4}', f"--labels={labels}", "--num-cpus=1", "--object-store-memory=80000000"]
        argv += [f"--temp-dir={self.vm}/r", f"--min-worker-port={first}", f"--max-worker-port={first + 40}"]
        argv += [f"--dashboard-agent-listen-port={first + 41}", "--disable-usage-stats"]
        environment = {
            **self.lab.environment,
            "HOME": str(self.vm),
            "TPUCTL_VM_DIR": str(self.vm),
            "TPU_DEV_ROOT": str(self.vm / "dev"),
            "PYTHONPATH": "/remote",
        }
        # As the host's unit does: on a busy machine a raylet may give up while it starts.
        again = ["bash", "-c", 'while :; do "$@"; sleep 1; done', "host", *argv]
        self.process = spawn(again, environment=environment, output=self.lab.log)

    def processes(self) -> list[ProcessId]:
        return processes_with_environment(f"TPUCTL_VM_DIR={self.vm}\0") + processes_with_environment(
            f"TPU_DEV_ROOT={self.vm / 'dev'}\0"
        )

    def kill(self) -> None:
        """The machine is gone: every process of it dies at once."""
        while found := self.processes():
            signal_all(found, signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def freeze(self) -> None:
        signal_all(self.processes(), signal.SIGSTOP)

    def thaw(self) -> None:
        signal_all(self.processes(), signal.SIGCONT)


class RayLab:
    def __init__(self, root: Path, net: str, agent: str, token: str) -> None:
        self.root, self.net, self.agent = root, net, agent
        self.token = root / "token"
        self.token.write_text(token)
        self.log = os.open(root / "ray.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(root),
            "PYTHONUNBUFFERED": "1",  # what "ray start" says is waited for
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "RAY_health_check_period_ms": "2000",
            "RAY_health_check_timeout_ms": "3000",
            "RAY_health_check_failure_threshold": "4",
            "RAY_health_check_initial_delay_ms": "2000",
        }
        address = f"{net}.2"
        first = _free_block(address)
        self.gcs = f"{address}:{first}"
        argv = [_ray(), "start", "--head", "--block", "--num-cpus=0", f"--node-ip-address={address}"]
        argv += [f"--port={first}", "--include-dashboard=false", "--object-store-memory=80000000"]
        argv += [f"--temp-dir={root}/r", f"--min-worker-port={first + 1}", f"--max-worker-port={first + 40}"]
        argv += [f"--dashboard-agent-listen-port={first + 41}", "--disable-usage-stats"]
        self.head = spawn(argv, environment={**self.environment, "TPUCTL_VM_DIR": str(root / "head")}, output=self.log)
        self.hosts: list[FakeHost] = []
        wait_for(lambda: _answers(address, first), 60, "Ray's head")

    def add_slice(self, name: str, hosts: int = 2) -> list[FakeHost]:
        added = [FakeHost(self, name, worker, len(self.hosts) + worker) for worker in range(hosts)]
        for host in added:
            host.start()
        self.hosts += added
        # "ray start" says so once its node is registered.
        said = self.root / "ray.log"
        wait_for(lambda: said.read_text().count("Ray runtime started") > len(self.hosts), 150, f"slice {name} in Ray")
        return added

    def close(self) -> None:
        for host in self.hosts:
            host.kill()
        found = identify(self.head.pid)
        if found is not None:
            kill_tree(found)
        self.head.wait()
        for process in processes_with_environment(str(self.root)):
            if is_alive(process):
                kill_tree(process)
        os.close(self.log)


def _answers(address: str, port: int) -> bool:
    with socket.socket() as trial:
        trial.settimeout(0.5)
        return trial.connect_ex((address, port)) == 0


def wait_for(condition: object, limit_s: float, what: str) -> None:
    assert callable(condition)
    give_up_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"{what} did not come within {limit_s:.0f} s")
        time.sleep(0.05)


@pytest.fixture(scope="module")
def ray_lab() -> Iterator[RayLab]:
    """A head without hosts. Short paths, because AF_UNIX names are short."""
    root = Path(tempfile.mkdtemp(prefix="tl", dir="/tmp"))
    net = f"127.{60 + secrets.randbelow(60)}.{secrets.randbelow(250)}"
    lab = RayLab(root, net, "http://127.0.0.1:9", secrets.token_urlsafe(16))
    try:
        yield lab
    finally:
        lab.close()
        with contextlib.suppress(OSError):
            shutil.rmtree(root)
