"""The demo's training program as plain processes: two on loopback, four virtual devices each, as one v4-16."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(240)]

PROGRAM = Path(__file__).parents[2] / "configs/demo/train.py"


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
        return port


def start(directory: Path, attempt: int, **settings: str) -> list[subprocess.Popen[bytes]]:
    coordinator = f"127.0.0.1:{free_port()}"
    ranks = []
    for rank in range(2):
        devices = directory / f"dev{rank}"
        devices.mkdir(parents=True, exist_ok=True)
        for chip in range(4):
            (devices / f"accel{chip}").touch()
        ours = {
            "TPUCTL_RANK": str(rank),
            "TPUCTL_WORLD_SIZE": "2",
            "TPUCTL_CHIPS": "4",
            "TPUCTL_COORDINATOR": coordinator,
            "TPUCTL_ATTEMPT": str(attempt),
            "TPUCTL_CHECKPOINT_DIR": str(directory / "checkpoints"),
            "TPU_DEV_ROOT": str(devices),
        }
        log = (directory / f"{attempt}-{rank}.log").open("wb")
        ranks.append(
            subprocess.Popen([sys.executable, PROGRAM], env={**os.environ, **ours, **settings}, stdout=log, stderr=log)
        )
        log.close()
    return ranks


def finish(ranks: list[subprocess.Popen[bytes]]) -> list[int]:
    return [rank.wait(timeout=120) for rank in ranks]


def result(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "checkpoints/result.json").read_text())
    return found


def wait_for_step(directory: Path, attempt: int, step: int) -> None:
    give_up_s = time.monotonic() + 90
    while f"step {step} loss" not in (directory / f"{attempt}-0.log").read_text():
        assert time.monotonic() < give_up_s, (directory / f"{attempt}-0.log").read_text()[-2000:]
        time.sleep(0.02)


def test_killed_and_terminated_training_ends_with_the_bits_of_an_undisturbed_one(tmp_path: Path) -> None:
    calm, rough = tmp_path / "calm", tmp_path / "rough"
    assert finish(start(calm, 1)) == [0, 0]

    ranks = start(rough, 1, STEP_DELAY="0.02")
    wait_for_step(rough, 1, 50)
    for rank in ranks:
        rank.kill()
    finish(ranks)
    ranks = start(rough, 2, STEP_DELAY="0.02")
    wait_for_step(rough, 2, 75)
    for rank in ranks:
        rank.send_signal(signal.SIGTERM)
    stopped = finish(ranks)
    assert finish(start(rough, 3)) == [0, 0]

    assert stopped == [143, 143]
    second, third = (rough / "2-0.log").read_text(), (rough / "3-0.log").read_text()
    assert "resumed from step 40" in second
    stopped_at = int(second.split("stopped at step ")[1].split(",")[0])
    assert f"resumed from step {stopped_at}" in third, "SIGTERM loses no step"
    assert result(calm)["digest"] == result(rough)["digest"]
    assert result(rough)["steps"] == 200
    assert result(calm)["accuracy"] >= 0.95
