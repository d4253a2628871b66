"""Quotas and standing refusals, set while the emulator runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tpuctl.base.clock import SystemClock
from tpuctl.base.errors import TpuctlError
from tpuctl.emulator import remote
from tpuctl.emulator.control_limits import Limits
from tpuctl.emulator.options import ServerOptions
from tpuctl.emulator.scenario import Settings
from tpuctl.emulator.service import Service
from tpuctl.testing.clock import FakeClock
from tpuctl.testing.core_driver import ZONE, Driver


@pytest.fixture
def driver() -> Driver:
    return Driver(Settings())


@pytest.fixture
def limits(driver: Driver) -> Limits:
    return Limits(Service(driver.cloud, FakeClock(), lambda _: None))


def test_quota_holds_from_now_on_and_can_be_taken_away(driver: Driver, limits: Limits) -> None:
    driver.create("a", "v4-16")
    (row,) = limits.set_quota({"generation": "v4", "zone": ZONE, "limit": 16})["quotas"]
    assert (row["place"], row["limit"], row["used"]) == (f"zone {ZONE}", 16, 16)
    assert driver.create("b")[0] == 429
    limits.set_quota({"generation": "v4", "zone": ZONE})
    assert driver.create("b")[0] == 200


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"apis": ["tpu"]}, "SERVICE_DISABLED"),
        ({"permissions": ["tpu.queuedresources.create"]}, "IAM_PERMISSION_DENIED"),
        ({"zones": [ZONE]}, "LOCATION_POLICY_VIOLATED"),
    ],
)
def test_refusal_stands_until_it_is_cleared(
    driver: Driver, limits: Limits, asked: dict[str, list[str]], reason: str
) -> None:
    assert limits.refuse(asked).items() >= asked.items()
    for _ in range(2):
        status, body = driver.create("a")
        assert (status, body["error"]["details"][0]["reason"]) == (403, reason)
    limits.clear_refusals({})
    assert driver.create("a")[0] == 200


def test_what_cannot_be_refused_is_told(limits: Limits) -> None:
    with pytest.raises(TpuctlError, match="disabled_apis"):
        limits.refuse({"apis": ["gke"]})
    with pytest.raises(TpuctlError, match="no quota of its own"):
        limits.set_quota({"generation": "v9", "limit": 1})
    assert limits.refusals({})["apis"] == []


@pytest.mark.slow
def test_commands_set_and_show_them(tmp_path: Path) -> None:
    remote.start(ServerOptions(tmp_path, "default", machines="none"), SystemClock())

    def run(*words: str, fails: bool = False) -> str:
        argv = [sys.executable, "-c", "from tpuctl.cli.main import main; main()", "emulator", *words]
        env = {**os.environ, "TPUCTL_HOME": str(tmp_path)}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert bool(done.returncode) == fails, done.stderr
        return done.stderr if fails else done.stdout

    try:
        table = run("quota", "v6e", "0", "--region", "us-east5").splitlines()
        assert table[1].split() == ["region", "us-east5", "v6e", "spot", "0", "0"]
        assert all(len(line) <= 80 for line in table)
        assert run("refuse", "--api", "tpu", "--zone", ZONE).split() == ["api", "tpu", "zone", ZONE]
        assert json.loads(run("refuse", "--clear", "--json"))["apis"] == []
        assert "give GENERATION and LIMIT" in run("quota", "v4", "many", fails=True)
    finally:
        remote.stop(tmp_path, "default", SystemClock())
