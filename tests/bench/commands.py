"""The command line beside `python -c "import typer"`: help, and status with ten slices from a head that answers."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median

from tpuctl.head.folder import ClusterFolder, KnownHead
from tpuctl.head.reach import AGENT_PORT

ADDRESS = "127.99.0.2"
SPEC = "version: 1\ncluster: bench\nproject: p\nbackend: emulator\n"


def ten_slices() -> dict[str, object]:
    at = "2026-12-01T12:00:00.000Z"
    rows = [
        {
            "name": f"v4-{slot}", "pool": "v4", "zone": "us-central2-b", "accelerator": "v4-32",
            "queued_resource": f"bench-v4-{slot}-t6m8gb-1", "phase": "READY" if slot % 3 else "WAITING",
            "cloud_state": "ACTIVE", "node_state": "READY", "hosts": {"expected": 4, "joined": 4}, "run": None,
            "since": at, "unseen_since": None, "reason": "" if slot % 3 else "waits for capacity",
        }
        for slot in range(10)
    ]  # fmt: skip
    return {
        "version": 1, "at": at, "cluster": "bench", "epoch": "t6m8gb", "wanted": True, "grant": [], "runs": [],
        "head": {"state": "RUNNING", "address": ADDRESS}, "last_pass": {"at": at, "exit": 0}, "slices": rows,
    }  # fmt: skip


@contextmanager
def a_head() -> Iterator[None]:
    body = json.dumps(ten_slices()).encode()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    server = ThreadingHTTPServer((ADDRESS, AGENT_PORT), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def cost(argv: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """(wall, CPU) seconds of one whole process."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(argv, env=environment, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=True)
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def bench(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder, a_head():
        home, spec = Path(folder) / "home", Path(folder) / "tpuctl.yaml"
        spec.write_text(SPEC)
        known = ClusterFolder(home, "bench")
        known.save_head(KnownHead("us-central2-b", "tpuctl-bench-head", ADDRESS))
        known.save_token("token")
        environment = dict(os.environ) | {"TPUCTL_HOME": str(home), "TPUCTL_SPEC": str(spec), "NO_COLOR": "1"}
        tpuctl = [sys.executable, "-m", "tpuctl.cli.main"]
        measured = {
            "import typer": [sys.executable, "-c", "import typer"],
            "tpuctl --help": [*tpuctl, "--help"],
            "tpuctl status": [*tpuctl, "status"],
        }
        seen: dict[str, list[tuple[float, float]]] = {name: [] for name in measured}
        for turn in range(rounds + 1):
            for name, argv in measured.items():
                figures = cost(argv, environment)
                if turn:  # the first round fills the byte-code cache
                    seen[name].append(figures)
    base = median(wall for wall, _ in seen["import typer"])
    print(f"  {'':<16} {'wall':>8} {'CPU':>8}   limit = 2 x import typer + 0.15 s = {2 * base + 0.15:.3f} s")
    for name, rows in seen.items():
        wall, cpu = median(row[0] for row in rows), median(row[1] for row in rows)
        print(f"  {name:<16} {wall:7.3f}s {cpu:7.3f}s   {wall / base:.2f} x import typer")
