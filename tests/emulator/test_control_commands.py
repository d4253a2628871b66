"""`tpuctl emulator` on a cloud that has slices: losses, maintenance, states, zones, faults, and tables that fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tpuctl.base.clock import SystemClock
from tpuctl.emulator import remote
from tpuctl.testing.core_driver import PARENT, ZONE, qr_body

pytestmark = pytest.mark.scenario
ENTRY = (sys.executable, "-c", "from tpuctl.cli.main import main; main()")
QUICK = "latencies: {accepted: 0s, waiting: 0s, provisioning: 0s, boot: 0s, suspending: 0s}\nnotice: 0s\nseed: 4\n"
LONG = "a-slice-with-quite-a-long-name"


class Emulator:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.url = self("start", "--machines", "none", "--scenario", str(home / "s.yaml")).partition("=")[2].strip()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*ENTRY, "emulator", *words],
            env={**os.environ, "TPUCTL_HOME": str(self.home)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def __call__(self, *words: str) -> str:
        """stdout, which people read."""
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        assert "--json" in words or all(len(line) <= 80 for line in done.stdout.splitlines()), done.stdout
        return done.stdout

    def told(self, *words: str) -> str:
        """The message of a command that did it and has no data."""
        done = self.run(*words)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        return done.stderr

    def json(self, *words: str) -> Any:
        document = json.loads(self(*words, "--json"))
        assert (document["version"], document["at"][-1]) == (1, "Z")
        return document

    def get(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(f"{self.url}{path}", data, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def node(self, name: str) -> Any:
        return self.get(f"{PARENT}/nodes/{name}")

    def slices(self, *names: str) -> None:
        for name in names:
            self.get(f"{PARENT}/queuedResources?queuedResourceId={name}", qr_body(name, "v4-8", ZONE))
        clock = SystemClock()
        while any(not isinstance(node := self.node(name), dict) or node["state"] != "READY" for name in names):
            clock.sleep(0.02)


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    home = tmp_path_factory.mktemp("home")
    (home / "s.yaml").write_text(QUICK)
    yield Emulator(home)
    remote.stop(home, "default", SystemClock())


def test_many_are_preempted_by_count_share_and_zone(emulator: Emulator) -> None:
    emulator.slices("a1", "a2", "a3", "a4")
    assert emulator.told("preempt", "--count", "1") == "preempting a4\n"
    assert emulator.told("preempt", "--share", "0.5", "--choose", "oldest", "--notice", "0s") == "preempting a1, a2\n"
    assert emulator.told("preempt", "--zone", ZONE, "--shows", "gone") == "preempting a3\n"
    assert emulator.told("preempt", "--zone", "us-east5-a") == "no slice to preempt there\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("preempt",), "name one NODE, or say which slices"),
        (("preempt", "n", "--count", "2"), "name one NODE, or say which slices"),
        (("preempt", "--count", "2", "--share", "0.5"), "count is a number from 1 on, and goes without share"),
        (("preempt", "--share", "1.5"), "share is 1.5; it is more than 0 and at most 1"),
        (("preempt", "--count", "1", "--choose", "all"), "choose: Input should be 'newest'"),
        (("maintenance", "nobody"), "there is no node 'nobody'"),
        (("maintenance", "n:x"), "write NODE:WORKER"),
        (("state", "nobody", "READY"), "there is no node 'nobody'"),
        (("unreachable", "us-central2"), "there is no zone 'us-central2'; zones: asia-east1-c"),
        (("stockout", "here"), "there is no zone 'here'"),
        (("capacity", "here", "v4", "1"), "there is no zone 'here'"),
        (("fault", "add", "slow", "--error", "boom"), "'boom' is unknown; known: unavailable"),
    ],
)
def test_what_cannot_be_done_says_so(emulator: Emulator, words: tuple[str, ...], told: str) -> None:
    done = emulator.run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


def test_maintenance_of_a_host_is_announced_and_shown(emulator: Emulator) -> None:
    emulator.slices("m1")
    told = emulator.told("maintenance", "m1:0", "--lead", "1h", "--lasts", "10m", "--unscheduled")
    upcoming = emulator.node("m1")["upcomingMaintenance"]
    assert told == f"maintenance of m1:0 from {upcoming['windowStartTime']} to {upcoming['windowEndTime']}\n"
    assert (upcoming["type"], upcoming["maintenanceStatus"]) == ("UNSCHEDULED", "PENDING")
    assert "READY 1/1 maintenance" in emulator("status")
    again = emulator.run("maintenance", "m1")
    assert "has maintenance announced for" in again.stderr
    assert "there is no worker 3" in emulator.run("maintenance", "m1:3").stderr


def test_state_of_a_node_changes_and_its_request_does_not_notice(emulator: Emulator) -> None:
    emulator.slices("s1")
    assert emulator.told("state", "s1", "REPAIRING", "--for", "1h") == "s1: READY -> REPAIRING\n"
    assert emulator.node("s1")["state"] == "REPAIRING"
    assert emulator.told("state", "s1", "READY", "--health", "TIMEOUT") == "s1: REPAIRING -> READY\n"
    assert "READY 1/1 TIMEOUT" in emulator("status")
    assert emulator.told("state", "s1", "99") == "s1: READY -> 99\n"
    assert emulator.node("s1")["state"] == 99
    assert "is no state of a node" in emulator.run("state", "s1", "MELTING").stderr
    emulator.told("state", "s1", "gone")
    assert emulator.node("s1") == 404
    assert emulator.get(f"{PARENT}/queuedResources/s1")["state"]["state"] == "ACTIVE"


def test_zone_is_out_of_sight_until_it_is_cleared(emulator: Emulator) -> None:
    emulator.slices("u1")
    assert emulator("unreachable", ZONE, "--for", "1h") == f"{ZONE}\n"
    listing = emulator.get("/v2/projects/lab/locations/-/nodes")
    assert (listing["nodes"], listing["unreachable"]) == ([], [f"projects/lab/locations/{ZONE}"])
    assert f"lists cannot read {ZONE}" in emulator("status")
    assert emulator.json("unreachable")["unreachable"] == [ZONE]
    assert emulator("unreachable", ZONE, "--clear") == ""
    assert "unreachable" not in emulator.get("/v2/projects/lab/locations/-/nodes")


def test_capacity_and_stockouts_are_set_and_shown(emulator: Emulator) -> None:
    assert "no limit anywhere" in emulator.told("capacity")
    assert emulator("capacity", "us-east5-a", "v5e", "8").splitlines()[1].split() == [
        "us-east5-a", "v5e", "8", "chips", "0",
    ]  # fmt: skip
    assert emulator("stockout", "us-east5-b", "v6e", "--for", "1h").splitlines()[2].split() == [
        "us-east5-b", "v6e", "stockout",
    ]  # fmt: skip
    document = emulator.json("capacity")
    assert document["capacity"] == [{"zone": "us-east5-a", "type": "v5e", "chips": 8, "used": 0}]
    assert [(each["zone"], each["type"]) for each in document["stockouts"]] == [("us-east5-b", "v6e")]
    assert "stockout" not in emulator("stockout", "--clear")
    assert "unlimited" in emulator("capacity", "us-east5-a", "v5e", "unlimited")


def test_fault_meets_calls_in_a_pattern_and_is_counted(emulator: Emulator) -> None:
    number = emulator(
        "fault", "add", "error-before", "--call", "nodes.list", "--zone", ZONE, "--every", "2", "--times", "0",
        "--for", "1h", "--error", "internal",
    ).strip()  # fmt: skip
    assert [isinstance(emulator.get(f"{PARENT}/nodes"), dict) for _ in range(4)] == [True, False, True, False]
    assert emulator("fault", "list").splitlines()[1].split() == [
        number, "error-before", "nodes.list", ZONE, "2", "of", "4",
    ]  # fmt: skip
    assert emulator.json("fault", "list")["faults"][0]["fired"] == 2
    assert emulator.told("fault", "clear") == "removed 1\n"
    assert "no faults planted" in emulator.told("fault", "list")


def test_tables_fit_eighty_columns(emulator: Emulator) -> None:
    emulator.slices(LONG)
    assert emulator("status").count(LONG) == 2
    calls = emulator("calls").splitlines()
    assert len(calls) > 3
    assert calls[0].split()[:4] == ["TIME", "STATUS", "METHOD", "PATH"]
    assert len(emulator.json("calls")["calls"]) >= len(calls) - 1
    history = emulator("history")
    assert "READY" in history
    assert emulator.json("history")["history"]
