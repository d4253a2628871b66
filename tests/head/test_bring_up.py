"""`up` and a client's reconcile, with a scripted agent on the emulated head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tpuctl.base.chance import SeededChance
from tpuctl.base.errors import RetryLaterError
from tpuctl.base.ids import Zone
from tpuctl.head.bring_up import BringUp, SpecText
from tpuctl.head.errors import AgentUnreachableError
from tpuctl.head.home import FoundHead, NoHeadError

ZONE = Zone("us-central1-a")
World = Any  # of conftest.py


class Scripted:
    """`silent`: how many calls go unanswered first; `phases`: slices a status answer, the last one again and again."""

    def __init__(self, silent: int = 0, phases: list[list[str]] | None = None, *, has_spec: bool = False) -> None:
        self.has_spec = has_spec
        self.silent, self.phases = silent, phases or [["READY", "READY"]]
        self.heard: list[str] = []
        self.addresses: list[str] = []

    def __call__(self, found: FoundHead) -> Scripted:
        self.addresses.append(found.address)
        return self

    def _hear(self, call: str) -> None:
        if self.silent:
            self.silent -= 1
            raise AgentUnreachableError("the agent cannot be reached", sent=False)
        self.heard.append(call)

    def head(self) -> dict[str, Any]:
        self._hear("head")
        return {"has_spec": self.has_spec}

    def status(self) -> dict[str, Any]:
        self._hear("status")
        phases = self.phases.pop(0) if len(self.phases) > 1 else self.phases[0]
        return {"slices": [{"name": f"v4-{n}", "phase": phase} for n, phase in enumerate(phases)]}

    def put_spec(self, document: Mapping[str, Any], text: str, *, beyond_grant: bool = False) -> dict[str, Any]:
        self._hear(f"spec {document['cluster']}")
        return {}

    def start_pass(self, *, wait: bool = False, timeout_s: float = 120.0) -> dict[str, Any]:
        self._hear(f"pass {wait}")
        return {"exit": 3, "summary": "2 slices asked for"}


def bring_up(world: World, agent: Scripted) -> BringUp:
    return BringUp(
        world.home(), agent, SpecText({"cluster": "lab"}, "cluster: lab\n", 2), world.clock, world.said.append
    )


def test_up_builds_the_head_sends_the_spec_and_asks_for_a_pass(world: World) -> None:
    agent = Scripted()

    found = bring_up(world, agent).up("head", None)

    assert agent.heard == ["head", "spec lab", "pass False"]
    assert agent.addresses == [found.address]


def test_booting_agent_is_waited_for_and_told_after_two_seconds(world: World) -> None:
    agent = Scripted(silent=30)

    bring_up(world, agent).up("head", None)

    told = [text for text in world.said if "waiting for the agent" in text]
    assert len(told) == 1
    assert told[0].endswith("(2s)")


def test_lost_answer_to_the_spec_is_asked_for_again(world: World) -> None:
    class Once(Scripted):
        def put_spec(self, document: Mapping[str, Any], text: str, *, beyond_grant: bool = False) -> dict[str, Any]:
            if "spec" not in self.heard:
                self.heard.append("spec")
                raise AgentUnreachableError("reset", sent=True)
            return super().put_spec(document, text)

    agent = Once()

    bring_up(world, agent).up("head", None)

    assert agent.heard == ["head", "spec", "spec lab", "pass False"]


@pytest.mark.parametrize(("wait", "answers"), [("head", 0), ("first", 2), ("all", 3)])
def test_wait_ends_when_what_it_names_is_there(world: World, wait: Any, answers: int) -> None:
    agent = Scripted(phases=[["WAITING", "WAITING"], ["READY", "JOINING"], ["READY", "READY"]])

    bring_up(world, agent).up(wait, None)

    assert agent.heard.count("status") == answers


def test_wait_past_its_limit_says_that_it_goes_on_by_itself(world: World) -> None:
    agent = Scripted(phases=[["READY", "WAITING"]])

    with pytest.raises(RetryLaterError, match=r"1 of 2 slices READY.*WAITING.*goes on without you"):
        bring_up(world, agent).up("all", 60.0)


def test_agent_that_never_answers_is_an_error_that_tells_what_to_look_at(world: World) -> None:
    with pytest.raises(RetryLaterError, match="inside the head's network"):
        bring_up(world, Scripted(silent=10_000)).up("head", None)


def test_head_that_is_rebuilt_meanwhile_is_found_at_its_new_address(world: World) -> None:
    agent = Scripted(silent=65)
    up = bring_up(world, agent)
    original = agent.head
    moved: list[bool] = []

    def head() -> dict[str, Any]:
        if agent.silent == 30 and not moved:
            moved.append(True)
            world.compute.delete_instance(ZONE, world.names.head, SeededChance(5).request_id())
            world.emulated.pass_time(1.0)
        return original()

    agent.head = head  # type: ignore[method-assign]  # a head that dies in the middle

    found = up.up("head", None)

    assert moved
    assert len(set(agent.addresses)) == 2
    assert agent.addresses[-1] == found.address


def test_up_does_not_bring_back_what_down_ended_meanwhile(world: World) -> None:
    agent = Scripted(silent=200)
    up = bring_up(world, agent)
    original = agent.head

    def head() -> dict[str, Any]:
        if agent.silent == 170:
            world.compute.delete_instance(ZONE, world.names.head, SeededChance(5).request_id())
            world.secrets.delete_secret(world.names.secret)
            world.emulated.pass_time(1.0)
        return original()

    agent.head = head  # type: ignore[method-assign]  # somebody's `down` in the middle

    with pytest.raises(NoHeadError, match="has no running head"):
        up.up("head", None)
    assert world.home().observe().heads == ()


def test_waiting_for_slices_ends_when_somebody_ends_the_cluster(world: World) -> None:
    agent = Scripted(phases=[["JOINING"]])
    up = bring_up(world, agent)
    original = agent.status

    def status() -> dict[str, Any]:
        if len(agent.heard) == 10 and not agent.silent:
            world.compute.delete_instance(ZONE, world.names.head, SeededChance(5).request_id())
            world.secrets.delete_secret(world.names.secret)
            world.emulated.pass_time(1.0)
            agent.silent = 10_000
        return original()

    agent.status = status  # type: ignore[method-assign]  # somebody's `down` in the middle

    with pytest.raises(NoHeadError, match="has no running head"):
        up.up("all", None)


def test_waiting_for_slices_finds_a_head_that_was_rebuilt(world: World) -> None:
    agent = Scripted(phases=[["JOINING"], ["JOINING"], ["READY", "READY"]])
    up = bring_up(world, agent)
    original = agent.status

    def status() -> dict[str, Any]:
        if len(agent.heard) == 4 and not agent.silent and len(agent.addresses) == 1:
            world.compute.delete_instance(ZONE, world.names.head, SeededChance(5).request_id())
            world.emulated.pass_time(1.0)
            agent.silent = 65
        return original()

    agent.status = status  # type: ignore[method-assign]  # the head dies in the middle

    up.up("all", None)

    assert len(set(agent.addresses)) == 2
    assert agent.heard.count("spec lab") == 2


def test_reconcile_from_a_client_asks_for_a_pass_and_gives_its_exit(world: World) -> None:
    bring_up(world, Scripted()).up("head", None)
    agent = Scripted()

    assert bring_up(world, agent).reconcile(60.0) == (3, "2 slices asked for")
    assert agent.heard == ["head", "pass True"]


def test_reconcile_rebuilds_a_lost_head_and_sends_the_spec_only_where_none_is_known(world: World) -> None:
    """Records that came back with their disk know better than a file here, also whether the cluster is wanted."""
    bring_up(world, Scripted()).up("head", None)
    world.compute.delete_instance(ZONE, world.names.head, SeededChance(5).request_id())
    empty, kept = Scripted(), Scripted(has_spec=True)

    bring_up(world, empty).reconcile(60.0)
    world.compute.delete_instance(ZONE, world.names.head, SeededChance(6).request_id())
    bring_up(world, kept).reconcile(60.0)

    assert empty.heard == ["head", "head", "spec lab", "pass True"]
    assert kept.heard == ["head", "head", "pass True"]


def test_reconcile_does_not_bring_back_what_down_ended(world: World) -> None:
    with pytest.raises(NoHeadError):
        bring_up(world, Scripted()).reconcile(60.0)
