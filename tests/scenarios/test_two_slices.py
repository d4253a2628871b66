"""Stories on two slices of two hosts each. They share one world and run in the order of this file."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.scenarios import ledger
from tests.scenarios.stories import (
    HOLD_S,
    World,
    all_ready,
    attempts,
    held_by,
    state,
    steps_of,
    submit,
    wait_for_success,
    write_cluster,
)
from tpuctl.base.units import Instant

pytestmark = pytest.mark.scenario
DEMO = Path(__file__).parents[2] / "configs" / "demo"


def test_up_builds_the_head_and_both_slices(world: World) -> None:
    write_cluster(world)
    world.run("up", "--wait", "all", timeout_s=150)
    rows = world.slices()
    assert set(rows) == {"v4-0", "v4-1"}
    assert all(row["hosts"] == {"expected": 2, "joined": 2} for row in rows.values())


def test_three_runs_on_two_slices_never_share_a_chip_and_the_third_says_what_it_waits_for(world: World) -> None:
    for name in ("one", "two", "three"):
        submit(world, name, "--steps", "60", "--pause", "0.1")
    world.wait("two runs on two slices", lambda: held_by(world, "one") and held_by(world, "two"))
    assert state(world, "three") == "QUEUED"
    told = world.run("why", "three").stdout
    assert "v4-0" in told
    assert "v4-1" in told
    for name in ("one", "two", "three"):
        wait_for_success(world, name)
    lines = ledger.read(world.storage / "ledger")
    assert {line["TPUCTL_RUN"] for line in lines} == {"one", "two", "three"}
    assert ledger.chips_used_twice(lines) == []


def test_a_program_that_fails_by_itself_spends_its_budget_and_no_more(world: World) -> None:
    submit(world, "buggy", "--steps", "3", "--exit-code", "3", max_failures=0)
    world.wait("the verdict", lambda: state(world, "buggy") == "FAILED", timeout_s=60)
    seen = world.a_run("buggy")
    assert [row["verdict"] for row in seen["attempts"]] == ["failed"]
    assert (seen["failures"], seen["preemptions"]) == (1, 0)
    assert "3" in seen["attempts"][0]["evidence"]


def test_cancel_ends_every_process_before_it_says_so(world: World) -> None:
    submit(world, "endless", "--steps", "100000", "--deaf")
    world.wait("steps", lambda: steps_of(world, "endless") > 3)
    world.run("cancel", "endless")
    world.wait("the end", lambda: state(world, "endless") == "CANCELLED", timeout_s=40)
    last = steps_of(world, "endless")
    assert held_by(world, "endless") == []
    submit(world, "after", "--steps", "5")  # the chips are proven free: the next run locks them
    world.wait("the next run", lambda: state(world, "after") == "SUCCEEDED", timeout_s=60)
    assert steps_of(world, "endless") == last


def test_a_preempted_slice_is_replaced_and_its_run_resumes_without_spending_its_budget(world: World) -> None:
    world.wait("both slices", lambda: all_ready(world))
    submit(world, "resumes", "--steps", "120", "--pause", "0.2", max_failures=0)
    world.wait("steps", lambda: steps_of(world, "resumes") > 10)
    (victim,) = held_by(world, "resumes")
    before = world.slices()[victim]["queued_resource"]
    world.emulator("preempt", before)
    world.wait("the second attempt", lambda: len(attempts(world, "resumes")) == 2)
    world.wait("the run's end", lambda: state(world, "resumes") == "SUCCEEDED")
    seen = world.a_run("resumes")
    assert [row["verdict"] for row in seen["attempts"]] == ["preempted", "succeeded"]
    assert (seen["failures"], seen["preemptions"]) == (0, 1)
    world.wait("the replacement", lambda: all_ready(world), timeout_s=120)
    assert world.slices()[victim]["queued_resource"] != before
    assert ledger.attempts_that_overlap(ledger.read(world.storage / "ledger")) == []


def test_a_head_that_restarts_keeps_its_slices_and_resumes_the_run_once(world: World) -> None:
    world.wait("both slices", lambda: all_ready(world))
    submit(world, "patient", "--steps", "150", "--pause", "0.2")
    world.wait("steps", lambda: steps_of(world, "patient") > 10)
    before = {name: row["queued_resource"] for name, row in world.slices().items()}
    world.emulator("reset-head", "tpuctl-lab-head")
    world.wait("the head to be gone", lambda: not world.answers(), timeout_s=30)
    world.wait("both slices again", lambda: all_ready(world), timeout_s=120)
    assert {name: row["queued_resource"] for name, row in world.slices().items()} == before
    world.wait("the run's end", lambda: state(world, "patient") == "SUCCEEDED", timeout_s=150)
    assert len(attempts(world, "patient")) == 2
    assert world.a_run("patient")["failures"] == 0
    assert ledger.attempts_that_overlap(ledger.read(world.storage / "ledger")) == []


def test_a_gang_of_two_slices_trains_together_on_all_its_hosts(world: World) -> None:
    world.wait("both slices", lambda: all_ready(world), timeout_s=120)
    spec = world.spec.parent / "trains.yaml"
    spec.write_text(
        f"version: 1\nname: trains\ncommand: [{sys.executable}, train.py]\nworkdir: {DEMO}\nslices: 2\n"
        'env: {STEPS: "12", CHECKPOINT_EVERY: "6"}\nmax_failures: 0\n'
    )
    world.run("submit", str(spec))
    wait_for_success(world, "trains", timeout_s=120)
    told = world.run("logs", "trains").stdout
    assert "4 processes, 16 devices" in told
    assert "step 12 loss" in told


def test_a_gang_with_a_frozen_host_restarts_whole_on_the_healthy_slice(world: World) -> None:
    world.wait("both slices", lambda: all_ready(world), timeout_s=120)
    submit(world, "gang", "--steps", "200", "--pause", "0.2", slices="{min: 1, max: 2}")
    world.wait("both slices held", lambda: held_by(world, "gang") == ["v4-0", "v4-1"])
    world.wait("steps", lambda: steps_of(world, "gang") > 10)
    frozen = world.slices()["v4-1"]["queued_resource"]
    world.emulator("freeze-host", f"{frozen}:1")
    frozen_s = time.time()
    world.wait("the second attempt", lambda: len(attempts(world, "gang")) == 2, timeout_s=60)
    assert held_by(world, "gang") == ["v4-0"]
    restarted = world.wait("its start", lambda: attempts(world, "gang")[1]["started_at"])
    assert Instant.parse(restarted).unix_s - frozen_s <= HOLD_S + 30  # noticed later than it froze
    world.wait("the suspect", lambda: "SUSPECT" in str(world.slices()["v4-1"]["phase"]), timeout_s=30, pause_s=0.2)
    world.wait("the run's end", lambda: state(world, "gang") == "SUCCEEDED", timeout_s=120)
    world.wait("the replacement", lambda: all_ready(world), timeout_s=150)
    assert world.slices()["v4-1"]["queued_resource"] != frozen
    lines = ledger.read(world.storage / "ledger")
    assert ledger.attempts_that_overlap(lines) == []
    assert ledger.chips_used_twice(lines) == []
    assert world.a_run("gang")["failures"] == 0


def test_down_leaves_nothing_of_ours(world: World) -> None:
    world.run("down", "--yes", timeout_s=120)
    assert "lab-" not in world.emulator("status", "--json").stdout
    again = world.run("down", "--yes")
    assert "nothing" in (again.stdout + again.stderr).lower()
