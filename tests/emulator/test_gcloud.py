"""The real gcloud on the emulator: lists, descriptions, creation, deletion, and the refusal of an unforced delete."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tpuctl.base.clock import SystemClock
from tpuctl.emulator import remote
from tpuctl.emulator.options import ServerOptions

pytestmark = pytest.mark.gcloud
Gcloud = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def gcloud(tmp_path: Path) -> Iterator[Gcloud]:
    """`gcloud compute tpus … --zone us-central2-b` on a fresh emulator, with a configuration of its own."""
    program = shutil.which("gcloud")
    assert program is not None, "gcloud is not on PATH; leave these tests out with -m 'not gcloud'"
    scenario = tmp_path / "quick.yaml"
    scenario.write_text(
        "latencies: {accepted: 0.1, waiting: 0.1, provisioning: 0.1, boot: 0.1, deleting: 0.2}\n"
        "reservations: [{name: r1, zone: us-central2-b, type: v4, chips: 8}]\n"
    )
    state, _ = remote.start(ServerOptions(tmp_path, "gcloud", scenario=scenario, machines="none"), SystemClock())
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CLOUDSDK_")} | {
        "CLOUDSDK_CONFIG": str(tmp_path / "gcloud"),
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_PROJECT": "lab",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{state.url}/",
    }

    def run(*words: str, track: str = "", zone: str = "us-central2-b") -> subprocess.CompletedProcess[str]:
        place = ["--zone", zone] if zone else []
        argv = [program, *([track] if track else []), "compute", "tpus", *words, *place]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=100, check=False)

    try:
        yield run
    finally:
        remote.stop(tmp_path, "gcloud", SystemClock())


CREATE = ("--node-id", "q", "--accelerator-type", "v4-16", "--runtime-version", "tpu-ubuntu2204-base", "--spot")


def test_queued_resource_is_created_listed_described_and_deleted(gcloud: Gcloud) -> None:
    created = gcloud("queued-resources", "create", "q", *CREATE)
    assert created.returncode == 0, created.stderr
    assert "Created queued_resource [q]" in created.stderr

    table = gcloud("queued-resources", "list").stdout.splitlines()
    assert table[0].split() == ["NAME", "ZONE", "NODE_COUNT", "ACCELERATOR_TYPE", "TYPE", "TOPOLOGY", "STATE"]
    assert table[1].split() == ["q", "us-central2-b", "1", "v4-16", "ACTIVE"]
    (listed,) = json.loads(gcloud("queued-resources", "list", "--format=json").stdout)
    described = json.loads(gcloud("queued-resources", "describe", "q", "--format=json").stdout)
    assert described == listed
    assert described["state"]["state"] == "ACTIVE"
    assert described["tpu"]["nodeSpec"][0]["node"]["networkConfig"]["enableExternalIps"] is True
    node = gcloud("tpu-vm", "list").stdout.splitlines()[1].split()
    assert node == ["q", "us-central2-b", "v4-16", "V4", "2x2x2", "default", "READY"]

    refused = gcloud("queued-resources", "delete", "q")
    assert refused.returncode == 1
    assert (
        "FAILED_PRECONDITION: Cloud TPU received a bad request. the queued resource is in state ACTIVE"
        in refused.stderr
    )

    deleted = gcloud("queued-resources", "delete", "q", "--force")
    assert deleted.returncode == 0, deleted.stderr
    assert "Deleted queued_resource [q]" in deleted.stderr
    assert json.loads(gcloud("queued-resources", "list", "--format=json").stdout) == []


def test_errors_and_async_calls_read_as_the_services(gcloud: Gcloud) -> None:
    wrong = gcloud("queued-resources", "create", "q", *CREATE[:2], "--accelerator-type", "v5p-8", *CREATE[4:])
    assert wrong.returncode == 1
    assert "INVALID_ARGUMENT: Cloud TPU received a bad request. The requested accelerator configuration" in wrong.stderr

    assert gcloud("queued-resources", "create", "q", *CREATE, "--async").returncode == 0
    again = gcloud("queued-resources", "create", "q", *CREATE, "--async")
    assert again.returncode == 1
    assert "already exists" in again.stderr


def test_node_is_created_stopped_started_updated_and_deleted(gcloud: Gcloud) -> None:
    node = ("tpu-vm", "create", "n", "--accelerator-type", "v4-8", "--version", "tpu-ubuntu2204-base")
    assert gcloud(*node).returncode == 0
    again = gcloud(*node)
    assert again.returncode == 1
    assert "already exists" in again.stderr
    for verb in ("stop", "start"):
        done = gcloud("tpu-vm", verb, "n")
        assert done.returncode == 0, done.stderr
    updated = gcloud("tpu-vm", "update", "n", "--update-labels=team=a", "--description=ours")
    assert updated.returncode == 0, updated.stderr
    described = json.loads(gcloud("tpu-vm", "describe", "n", "--format=json").stdout)
    assert (described["state"], described["labels"], described["description"]) == ("READY", {"team": "a"}, "ours")
    assert gcloud("tpu-vm", "get-guest-attributes", "n").returncode == 0
    assert gcloud("tpu-vm", "delete", "n").returncode == 0
    assert json.loads(gcloud("tpu-vm", "list", "--format=json").stdout) == []


def test_alpha_makes_several_slices_out_of_a_reservation(gcloud: Gcloud) -> None:
    node = ("--accelerator-type", "v4-8", "--runtime-version", "tpu-ubuntu2204-base")
    made = gcloud("queued-resources", "create", "m", "--node-count", "2", *node, "--reserved", track="alpha")
    assert made.returncode == 0, made.stderr
    (listed,) = json.loads(gcloud("queued-resources", "list", "--format=json", track="alpha").stdout)
    assert [spec["nodeId"] for spec in listed["tpu"]["nodeSpec"]] == ["m-0", "m-1"]
    assert listed["guaranteed"] == {"reserved": True}
    (reservation,) = json.loads(gcloud("reservations", "list", "--format=json", track="alpha").stdout)
    assert (reservation["state"], reservation["standard"]["usage"]["total"]) == ("ACTIVE", "8")
    reset = gcloud("queued-resources", "reset", "m", track="alpha")
    assert reset.returncode == 0, reset.stderr
    deleted = gcloud("queued-resources", "delete", "m", "--force", track="alpha")
    assert deleted.returncode == 0, deleted.stderr


def test_catalogues_and_zones_are_listed(gcloud: Gcloud) -> None:
    types = json.loads(gcloud("accelerator-types", "list", "--format=json").stdout)
    assert "v4-8" in {each["type"] for each in types}
    versions = json.loads(gcloud("tpu-vm", "versions", "list", "--format=json").stdout)
    assert "tpu-ubuntu2204-base" in {each["version"] for each in versions}
    zones = json.loads(gcloud("locations", "list", "--format=json", zone="").stdout)
    assert "us-central2-b" in {each["locationId"] for each in zones}
