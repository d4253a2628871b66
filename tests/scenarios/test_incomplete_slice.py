"""One host of four never comes up: the slice is unusable whole and recycled; its neighbour is left alone (A03)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scenarios.stories import World, attempts, state, steps_of, submit

pytestmark = pytest.mark.scenario

SPEC = """\
version: 1
cluster: lab
project: lab
backend: emulator
head: {{zone: us-central2-b}}
storage: {{us: "file://{storage}"}}
detection: {{hold: 8s, rejoin: 20s}}
pools:
  - {{name: big, accelerator: v4-32, zones: [us-central2-b], slices: 1, deadlines: {{join: 45s}}}}
  - {{name: small, accelerator: v4-8, zones: [us-central2-b], slices: 1, deadlines: {{join: 60s}}}}
"""


def big(world: World) -> dict[str, Any]:
    return world.slices()["big-0"]


def test_a_slice_with_a_missing_host_is_recycled_whole_and_its_neighbour_is_not_touched(world: World) -> None:
    world.spec.write_text(SPEC.format(storage=world.storage))
    world.run("up", "--wait", "head")
    first = world.wait("the request", lambda: big(world)["queued_resource"], timeout_s=40, pause_s=0.05)
    world.wait("its machines", lambda: big(world)["phase"] == "JOINING", timeout_s=40, pause_s=0.05)
    world.emulator("kill-host", f"{first}:3")
    world.wait("three of four hosts", lambda: big(world)["hosts"] == {"expected": 4, "joined": 3}, timeout_s=60)
    assert "3/4" in world.run("status").stdout
    assert big(world)["phase"] == "JOINING"

    submit(world, "neighbour", "--steps", "600", "--pause", "0.1", use="small")
    submit(world, "waits", "--steps", "3", use="big")
    world.wait("the neighbour's steps", lambda: steps_of(world, "neighbour") > 3)
    assert state(world, "waits") == "QUEUED"
    assert "big-0" in world.run("why", "waits").stdout
    neighbour = world.slices()["small-0"]["queued_resource"]

    world.wait("the recycling", lambda: big(world)["queued_resource"] not in (None, first), timeout_s=60)
    world.wait("four of four hosts", lambda: big(world)["phase"] == "READY", timeout_s=90)
    world.wait("the run that waited", lambda: state(world, "waits") == "SUCCEEDED", timeout_s=60)
    assert world.slices()["small-0"]["queued_resource"] == neighbour
    assert len(attempts(world, "neighbour")) == 1
