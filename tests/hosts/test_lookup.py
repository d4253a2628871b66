"""The verbs `find-head` and `read-token`, as children against a cloud on a loopback port."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tpuctl.base.clock import SystemClock
from tpuctl.base.ids import Zone, epoch_of
from tpuctl.cloud.compute import RestCompute
from tpuctl.cloud.model import InstanceRequest
from tpuctl.cloud.secrets import RestSecrets
from tpuctl.emulator.state_file import running
from tpuctl.hosts.lookup import CloudLookupError, cloud_lookup

pytestmark = [
    pytest.mark.scenario,
    # httplib2, by which this test makes the instance, leaves its socket to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ZONE = Zone("us-central1-a")
SECRET = "a-secret-that-must-not-be-seen-0123456789"


@pytest.fixture(scope="module")
def cloud() -> Iterator[str]:
    """Root of an emulated cloud without machines."""
    home = Path(tempfile.mkdtemp())
    argv = [sys.executable, "-m", "tpuctl.emulator", "--home", str(home), "--machines", "none"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as emulator:
        deadline = time.monotonic() + 30
        while (state := running(home, "default")) is None:
            assert time.monotonic() < deadline, "the emulator does not start"
            time.sleep(0.05)
        yield state.url
        emulator.terminate()


@pytest.fixture
def vm(cloud: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """$PREFIX of a VM that knows this cloud."""
    config: dict[str, Any] = {
        "version": 1, "role": "head", "cluster": "lab", "project": "p",
        "endpoints": dict.fromkeys(("tpu", "compute", "secretmanager", "storage"), cloud),
        "head": {"name": "tpuctl-lab-head", "zone": ZONE}, "secret": "tpuctl-lab-token", "agent_port": 7578,
        "ray_ports": [20000, 32000], "digest": "", "detection": {"hold_s": 25, "rejoin_s": 90},
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("TPUCTL_VM_DIR", str(tmp_path))
    return tmp_path


def test_a_head_that_is_not_there_yet_and_a_missing_secret_are_worth_asking_again(vm: Path) -> None:
    with pytest.raises(CloudLookupError, match="tpuctl-lab-head"):
        cloud_lookup().find_head()
    with pytest.raises(CloudLookupError, match="tpuctl-lab-token"):
        cloud_lookup().read_token()
    assert not (vm / "token").exists()


def test_the_head_is_found_with_the_epoch_of_its_creation(cloud: str, vm: Path) -> None:
    compute = RestCompute(cloud, "p", SystemClock())
    compute.insert_disk(ZONE, "tpuctl-lab-data", 10, {}, "11111111-1111-4111-8111-111111111111")
    request = InstanceRequest("tpuctl-lab-head", ZONE, "e2-standard-4", {}, {}, "tpuctl-lab-data")
    compute.insert_instance(request, "21111111-1111-4111-8111-111111111111")
    instance = compute.get_instance(ZONE, "tpuctl-lab-head")

    found = cloud_lookup().find_head()

    assert (found.address, found.epoch) == (instance.address, epoch_of(instance.created))


def test_the_secret_goes_into_an_owner_only_file_and_nowhere_else(cloud: str, vm: Path) -> None:
    RestSecrets(cloud, "p").create_secret("tpuctl-lab-token", SECRET, {})

    asked = subprocess.run(
        [sys.executable, "-m", "tpuctl.hosts", "read-token"], capture_output=True, text=True, timeout=60, check=False
    )

    assert (asked.returncode, asked.stdout, asked.stderr) == (0, "", "")
    assert (vm / "token").read_text() == SECRET
    assert (vm / "token").stat().st_mode & 0o777 == 0o600
    assert SECRET not in json.dumps(dict(os.environ))
