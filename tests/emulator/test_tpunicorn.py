"""tpunicorn2 from the package index, unchanged but for its API root and token: it lists, creates and deletes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.emulator import foreign_tools
from tests.emulator.foreign_tools import Done
from tpuctl.base.clock import SystemClock
from tpuctl.emulator import remote
from tpuctl.emulator.options import ServerOptions
from tpuctl.emulator.scenario import Settings
from tpuctl.testing.clock import FakeClock
from tpuctl.testing.in_process import EmulatedCloud
from tpuctl.testing.served import served

pytestmark = pytest.mark.slow  # a process and its imports for each call
ZONE = "us-central2-b"
Pu = Callable[..., Done]


@pytest.fixture
def pu(tmp_path: Path) -> Iterator[Pu]:
    """On an emulator of its own, with a real port and the wall clock; what is asked for comes at once."""
    scenario = tmp_path / "quick.yaml"
    latencies = "accepted: 0, waiting: 0, provisioning: 0, boot: 0, suspending: 0, deleting: 0"
    scenario.write_text(f"latencies: {{{latencies}}}\n")
    state, _ = remote.start(ServerOptions(tmp_path, "pu", scenario=scenario, machines="none"), SystemClock())
    try:
        yield lambda *words: foreign_tools.pu(state.url, tmp_path, *words)
    finally:
        remote.stop(tmp_path, "pu", SystemClock())


def listed(pu: Pu, *words: str) -> list[tuple[str, object]]:
    done = pu("list", "-f", "json", *words)
    assert done.returncode == 0, done.stderr
    return [(each["name"].split("/", 3)[3], each["state"]) for each in json.loads(done.stdout)]


def test_pu_creates_lists_and_deletes_nodes_and_queued_resources(pu: Pu) -> None:
    node = pu("create", "n1", "--zone", ZONE, "-a", "v4-8", "-S", "on-demand", "-y")
    assert node.returncode == 0, node.stderr
    assert "TPU n1 is ready for training" in node.stdout
    queued = pu("create", "q1", "--zone", ZONE, "-a", "v4-16", "--queued", "-y")
    assert queued.returncode == 0, queued.stderr

    everywhere = listed(pu)  # all zones, found by their list
    assert everywhere == [(f"{ZONE}/nodes/n1", "READY"), (f"{ZONE}/nodes/q1", "READY")]
    table = pu("list", "--zone", ZONE).stdout
    assert "v4-16" in table
    assert "READY" in table

    for name in ("n1", "q1"):
        deleted = pu("delete", name, "--zone", ZONE, "-y")
        assert deleted.returncode == 0, deleted.stderr
    assert listed(pu, "--zone", ZONE) == []
    missing = pu("delete", "q1", "--zone", ZONE, "-y")
    assert missing.returncode != 0
    assert "No TPU matched 'q1'" in missing.stderr


def test_pu_stops_and_starts_a_node_and_shows_catalogues(tmp_path: Path) -> None:
    emulated = EmulatedCloud(FakeClock(), Settings())
    with served(emulated, step_s=60) as url:
        steps = [
            ("create", "n1", "--zone", ZONE, "-a", "v4-8", "-S", "on-demand", "-y", "--async"),
            ("stop", "n1", "--zone", ZONE, "-y"),
            ("start", "n1", "--zone", ZONE, "-y"),
            ("types", "--zone", ZONE),
        ]
        done = [foreign_tools.pu(url, tmp_path, *step) for step in steps]

    assert [each.returncode for each in done] == [0] * 4, [each.stderr for each in done]
    assert "v4-8" in done[3].stdout
    states = [change.state for change in emulated.cloud.history if change.resource.endswith("/nodes/n1")]
    assert states == ["CREATING", "READY", "STOPPING", "STOPPED", "STARTING", "READY"]


def test_pu_is_told_of_a_stockout_by_the_operation(tmp_path: Path) -> None:
    emulated = EmulatedCloud(FakeClock(), Settings.model_validate({"capacity": {"zone": ZONE, "chips": 0}}))
    with served(emulated, step_s=60) as url:
        done = foreign_tools.pu(url, tmp_path, "create", "n1", "--zone", ZONE, "-a", "v4-8", "-y", "--async")
    assert done.returncode != 0
    assert f'There is no more capacity in the zone "{ZONE}"' in done.stderr
