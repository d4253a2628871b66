"""Ten real SIGKILLs of `tpuctl reconcile` at moments drawn from a printed seed, against the emulator's REST face."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tpuctl.base.clock import SystemClock
from tpuctl.base.ids import IncarnationId
from tpuctl.emulator.remote import ask
from tpuctl.emulator.state_file import EmulatorState, directory_of, read_state
from tpuctl.spec.document import digest, dump
from tpuctl.store.database import Store
from tpuctl.testing.builders import CLUSTER, EPOCH, a_cluster_spec, a_pool
from tpuctl.testing.fleet_world import LIVING

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(300)]

SEED = int(os.environ.get("TPUCTL_TEST_SEED", "20261201"))
KILLS = 10
SCENARIO = """
latencies: {accepted: 0.2, waiting: 0.4, provisioning: 0.5, boot: 0.3, suspending: 0.3, deleting: 1.0}
faults:
  - {kind: slow, method: POST, path: queuedResources, times: null, seconds: 0.3}
  - {kind: slow, method: DELETE, path: queuedResources, times: null, seconds: 0.3}
"""


def eventually(look: Callable[[], Any], what: str, limit_s: float = 60.0) -> Any:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {limit_s:g} s: {what}")


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[EmulatorState]:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(SCENARIO)
    home = tmp_path / "home"
    argv = [sys.executable, "-m", "tpuctl.emulator", "--home", str(home), "--machines", "none", "--scenario"]
    process = subprocess.Popen([*argv, str(scenario)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        state = eventually(lambda: read_state(directory_of(home, "default")), "the emulator's state file")
        yield state
    finally:
        process.terminate()
        process.wait(timeout=30)


class Head:
    """Where a pass would run: a store with a spec, and the command."""

    def __init__(self, folder: Path, emulator: EmulatorState) -> None:
        folder.mkdir()
        spec = a_cluster_spec(a_pool(slices=2))
        store = Store.open(folder / "store.sqlite3", clock=SystemClock(), create=True)
        with store.transaction() as tx:
            tx.put_spec(dump(spec), digest(spec), store.now())
            tx.put_meta("wanted", "up")
        store.close()
        self._argv = [sys.executable, "-m", "tpuctl.cli.main", "reconcile", "--store", str(folder), "--epoch", EPOCH]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TPUCTL_")}
        self._environment = {**kept, "TPUCTL_EMULATOR": emulator.url, "TPUCTL_HOME": str(folder / "home")}

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._argv, "--json"], env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self) -> dict[str, Any]:
        process = self.start()
        out, err = process.communicate(timeout=120)
        assert process.returncode in (0, 3), err
        document: dict[str, Any] = json.loads(out)
        return document


def check_history(emulator: EmulatorState) -> None:
    living: dict[str, set[str]] = defaultdict(set)
    for change in ask(emulator, "history")["history"]:
        made = IncarnationId.from_labels(change["labels"])
        if made is None or "/queuedResources/" not in change["resource"]:
            continue
        slot = living[made.slice_name]
        (slot.add if change["state"] in LIVING else slot.discard)(change["resource"])
        assert len(slot) <= 1, f"two living queued resources of {made.slice_name} at {change['at']}: {sorted(slot)}"
    effects = [call for call in ask(emulator, "calls")["calls"] if call["effect"]]
    assert effects
    assert all(call["labels"].get("tpuctl-cluster") == CLUSTER for call in effects)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_create_under_way_when_the_pass_is_stopped_is_named_and_then_adopted(
    tmp_path: Path, emulator: EmulatorState, number: signal.Signals
) -> None:
    """A11."""
    ask(emulator, "add-fault", {"kind": "hang-after", "method": "POST", "path": "queuedResources", "seconds": 15})
    head = Head(tmp_path / "head", emulator)
    process = head.start()
    made = eventually(lambda: ask(emulator, "status")["queued_resources"], "the create's effect")
    name = made[0]["name"].rsplit("/", 1)[-1]

    process.send_signal(number)
    _, err = process.communicate(timeout=30)

    assert process.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 130)
    assert number == signal.SIGKILL or name in err
    for _ in range(3):
        head.run()
    names = [each["name"].rsplit("/", 1)[-1] for each in ask(emulator, "status")["queued_resources"]]
    assert sorted(names) == [f"lab-v4-{slot}-{EPOCH}-1" for slot in (0, 1)]
    check_history(emulator)


def test_ten_kills_at_random_moments_end_in_exactly_the_wanted_slices(tmp_path: Path, emulator: EmulatorState) -> None:
    print(f"seed={SEED} (TPUCTL_TEST_SEED)")
    chance = random.Random(SEED)
    head = Head(tmp_path / "head", emulator)
    began = time.monotonic()
    head.run()
    whole_s = time.monotonic() - began  # imports included; measured again by each pass that comes to its end
    killed = starts = 0
    while killed < KILLS:
        starts += 1
        assert starts <= 4 * KILLS, "the drawn moments come after the ends of passes; draw others"
        if starts in (3, 7):
            nodes = [each for each in ask(emulator, "status")["nodes"] if each["state"] == "READY"]
            if nodes:
                ask(emulator, "preempt", {"node": nodes[0]["node"]})
        began = time.monotonic()
        process = head.start()
        try:
            process.wait(timeout=chance.uniform(0.4, 1.1) * whole_s)
            whole_s = time.monotonic() - began
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.communicate()

    quiet = 0
    for _ in range(40):
        document = head.run()
        acts = [line for line in document["actions"] if not line.startswith("hold")]
        states = sorted(each["state"] for each in ask(emulator, "status")["queued_resources"])
        quiet = quiet + 1 if not acts and states == ["ACTIVE", "ACTIVE"] else 0
        if quiet == 2:
            break
    assert quiet == 2, document
    check_history(emulator)
