"""`down` on the emulated cloud: with an agent, without one, killed anywhere, with strangers beside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tpuctl.base.chance import SeededChance
from tpuctl.base.errors import PartialError
from tpuctl.base.ids import QrName, Zone
from tpuctl.cloud.model import Listing, QrRequest
from tpuctl.head.errors import AgentUnreachableError
from tpuctl.head.take_down import DownWish, Left, TakeDown

ZONE, TPU_ZONE = Zone("us-central1-a"), Zone("us-central2-b")
WISH = DownWish(keep_disk=False, wait_runs=False, limit_s=600.0)

World = Any  # of conftest.py


class Silent:
    """No agent answers."""

    def __call__(self, address: str) -> Silent:
        return self

    def down(self, *, wait_runs: bool = False, orphans: bool = False) -> None:
        raise AgentUnreachableError("the agent cannot be reached", sent=False)

    def down_state(self) -> dict[str, Any]:
        raise AgentUnreachableError("the agent cannot be reached", sent=False)


class Working:
    """An agent that deletes the cluster's slices once it is told, one a poll; `dies_after` polls it falls silent."""

    def __init__(self, world: World, dies_after: int = 10_000) -> None:
        self.world, self.polls, self.dies_after = world, 0, dies_after
        self.told: list[bool] = []
        self.orphans: list[bool] = []
        self.addresses: list[str] = []

    def __call__(self, address: str) -> Working:
        self.addresses.append(address)
        return self

    def down(self, *, wait_runs: bool = False, orphans: bool = False) -> None:
        self.told.append(wait_runs)
        self.orphans.append(orphans)

    def down_state(self) -> dict[str, Any]:
        self.polls += 1
        if self.polls > self.dies_after:
            raise AgentUnreachableError("the agent cannot be reached", sent=False)
        ours = [name for name in self.world.slices() if name.startswith("lab-")]
        for name in ours[:1]:
            self.world.tpu.delete_queued_resource(TPU_ZONE, QrName(name), SeededChance(self.polls).request_id())
        return {"remaining": ours, "runs": []}


def take_down(world: World, agent: Any, zones: tuple[Zone, ...] = (TPU_ZONE,)) -> TakeDown:
    return TakeDown(world.home(), agent, Ticking(world).sweeper(zones), Ticking(world).clock, world.said.append)


class Ticking:
    """Whoever waits lets the emulated cloud go on."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock = self

    def now(self) -> Any:
        return self.world.clock.now()

    def monotonic(self) -> float:
        return float(self.world.clock.monotonic())

    def sleep(self, seconds: float) -> None:
        self.world.emulated.pass_time(seconds)

    def sweeper(self, zones: tuple[Zone, ...]) -> Any:
        from dataclasses import replace

        return replace(self.world.sweeper(zones), clock=self)


def a_cluster(world: World) -> World:
    world.home().find_or_build()
    world.ask_for_slice("lab-v4-0-tpaigw-1")
    world.ask_for_slice("lab-v4-1-tpaigw-1")
    world.emulated.pass_time(60.0)
    return world


def left(world: World) -> list[str]:
    heads = [item.name for item in world.compute.find_instances("tpuctl-cluster", "lab").items]
    disks = [name for _, name in world.compute.find_disks("tpuctl-cluster", "lab").items]
    secret = [world.names.secret] if world.secrets.has_secret(world.names.secret) else []
    return [*heads, *disks, *secret, *world.slices()]


def test_agent_ends_the_slices_then_head_disk_and_secret_go(world: World) -> None:
    agent = Working(a_cluster(world))

    take_down(world, agent).run(DownWish(keep_disk=False, wait_runs=True, limit_s=None))

    assert left(world) == []
    assert agent.told == [True]
    assert not any("by label" in text for text in world.said)
    assert world.folder.token() == ""
    assert world.folder.head() is None


def test_disk_may_be_kept(world: World) -> None:
    take_down(a_cluster(world), Silent()).run(DownWish(keep_disk=True, wait_runs=False, limit_s=None))

    assert left(world) == ["tpuctl-lab-data"]


def test_silent_agent_is_gone_past_and_it_says_so(world: World) -> None:
    take_down(a_cluster(world), Silent()).run(WISH)

    assert left(world) == []
    assert any("deleting from here by label, with force" in text for text in world.said)


def test_agent_that_falls_silent_half_way_is_gone_past(world: World) -> None:
    take_down(a_cluster(world), Working(world, dies_after=1)).run(WISH)

    assert left(world) == []
    assert any("by label" in text for text in world.said)


def test_unreachable_head_goes_before_the_slices(world: World) -> None:
    """A head that was only cut off would ask for new slices behind our back."""
    take_down(a_cluster(world), Silent()).run(WISH)

    deeds = [text.split(" in ")[0] for text in world.said if text.startswith("delete")]
    assert deeds[0] == "delete head tpuctl-lab-head"
    # The secret goes with the head: a reconcile from elsewhere in the meantime must not take the head for lost.
    assert deeds[1].startswith("delete secret tpuctl-lab-token")
    assert deeds[-1] == "delete disk tpuctl-lab-data"


def test_down_of_nothing_is_done_at_once_and_says_so(world: World) -> None:
    assert take_down(a_cluster(world), Silent()).run(WISH) is True
    assert take_down(world, Silent()).run(WISH) is False

    assert left(world) == []


def test_lost_head_does_not_hinder_down(world: World) -> None:
    a_cluster(world)
    world.compute.delete_instance(ZONE, world.names.head, SeededChance(5).request_id())

    take_down(world, Silent()).run(WISH)

    assert left(world) == []


def test_strangers_slices_and_instances_are_untouched(world: World) -> None:
    a_cluster(world)
    world.ask_for_slice("lab-v4-7-tpaigw-1", cluster="another")
    world.emulated.pass_time(60.0)

    take_down(world, Silent()).run(WISH)

    assert left(world) == ["lab-v4-7-tpaigw-1"]


def test_orphan_is_left_alone_and_told_of_until_orphans_are_asked_for(world: World) -> None:
    a_cluster(world).ask_for_slice("lab-old-0-tpaigw-1")
    world.emulated.pass_time(60.0)

    with pytest.raises(PartialError, match=r"lab-old-0-tpaigw-1 in us-central2-b.*tpuctl down --orphans"):
        take_down(world, Silent()).run(WISH)

    assert left(world) == ["lab-old-0-tpaigw-1"]
    assert take_down(world, Silent()).left().queued[0].name == "lab-old-0-tpaigw-1"
    assert take_down(world, Silent()).run(replace(WISH, orphans=True))
    assert left(world) == []
    assert take_down(world, Silent()).left() == Left()


def test_slice_with_a_name_that_its_labels_contradict_is_an_orphan(world: World) -> None:
    a_cluster(world)
    labels = {"tpuctl-cluster": "lab", "tpuctl-pool": "v4", "tpuctl-slot": "0", "tpuctl-epoch": "t", "tpuctl-n": "1"}
    request = QrRequest(QrName("by-hand"), TPU_ZONE, "v4-16", "tpu-ubuntu2204-base", labels, {})
    world.tpu.create_queued_resource(request, SeededChance(9).request_id())

    with pytest.raises(PartialError, match="by-hand"):
        take_down(world, Silent()).run(WISH)

    assert left(world) == ["by-hand"]


@pytest.mark.parametrize("knows", ["agent", "memory"])
def test_slice_of_a_pool_that_left_the_spec_is_no_orphan_where_the_records_had_it(world: World, knows: str) -> None:
    a_cluster(world).ask_for_slice("lab-old-0-tpaigw-1")
    world.emulated.pass_time(60.0)
    agent: Any = Silent()
    if knows == "agent":
        agent = Working(world, dies_after=1)
    else:
        row = {"queued_resource": "lab-old-0-tpaigw-1"}
        world.folder.save_status({"at": "2026-12-01T10:00:00.000Z", "slices": [row, {"queued_resource": ""}]})

    take_down(world, agent).run(WISH)

    assert left(world) == []


def test_agent_is_told_of_orphans_only_when_they_are_asked_for(world: World) -> None:
    agent = Working(a_cluster(world))

    take_down(world, agent).run(replace(WISH, orphans=True))

    assert agent.orphans == [True]


def test_orphan_in_a_zone_that_left_the_spec_is_found(world: World) -> None:
    elsewhere = Zone("us-west4-a")
    a_cluster(world).ask_for_slice("lab-old-0-tpaigw-1", zone=elsewhere, accelerator="v5litepod-16")
    world.ask_for_slice("other-old-0-tpaigw-1", cluster="other", zone=elsewhere, accelerator="v5litepod-16")
    world.emulated.pass_time(60.0)

    assert take_down(world, Silent()).run(replace(WISH, orphans=True))

    assert [item.name for item in world.tpu.list_queued_resources(elsewhere).items] == ["other-old-0-tpaigw-1"]
    assert left(world) == []


def test_zones_beyond_the_spec_that_cannot_be_seen_are_told_and_hinder_nothing(world: World) -> None:
    a_cluster(world)
    world.emulated.plant(
        "error-before", method="GET", path="locations/-/queuedResources$", error="permission", times=None
    )

    take_down(world, Silent()).run(WISH)

    assert left(world) == []
    assert len([text for text in world.said if text.startswith("zones that the spec does not name")]) == 1


def test_zone_that_cannot_be_listed_is_told_and_the_disk_stays(world: World) -> None:
    a_cluster(world)
    world.emulated.plant("error-before", method="GET", path="queuedResources$", times=None)

    with pytest.raises(PartialError, match="us-central2-b") as caught:
        take_down(world, Silent()).run(WISH)

    assert caught.value.exit_code == 3
    world.emulated.cloud.faults.remove(None)
    assert left(world) == [
        "tpuctl-lab-data",
        "lab-v4-0-tpaigw-1",
        "lab-v4-1-tpaigw-1",
    ]
    take_down(world, Silent()).run(WISH)
    assert left(world) == []


def test_head_that_may_stand_in_an_unseen_zone_keeps_its_secret(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its agent would go on asking for slices, and without the secret nobody could tell it to stop."""
    a_cluster(world)
    elsewhere = TakeDown(
        world.home(Zone("us-east1-b")), Silent(), Ticking(world).sweeper((TPU_ZONE,)), Ticking(world), world.said.append
    )
    with monkeypatch.context() as patched:
        patched.setattr(world.compute, "find_instances", lambda *_: Listing((), complete=False))
        with pytest.raises(PartialError, match="could not be listed"):
            elsewhere.run(WISH)

    assert left(world) == ["tpuctl-lab-head", "tpuctl-lab-data", "tpuctl-lab-token"]
    take_down(world, Silent()).run(WISH)
    assert left(world) == []


def test_agent_that_takes_too_long_is_told_and_down_goes_on_another_time(world: World) -> None:
    class Slow(Working):
        def down_state(self) -> dict[str, Any]:
            return {"remaining": ["lab-v4-0-tpaigw-1"], "runs": ["digits"]}

    with pytest.raises(PartialError, match="digits"):
        take_down(a_cluster(world), Slow(world)).run(WISH)

    assert world.names.head in left(world)


@pytest.mark.parametrize("kind", ["silent", "working"])
def test_killed_at_every_call_the_next_down_ends_all(new_world: Callable[[str], World], kind: str) -> None:
    def agent(world: World) -> Any:
        return Silent() if kind == "silent" else Working(world)

    undisturbed = a_cluster(new_world("undisturbed"))
    calls = undisturbed.count_calls(lambda: take_down(undisturbed, agent(undisturbed)).run(WISH))
    assert calls >= 10

    for n in range(1, calls + 1):
        for after in (False, True):
            world = a_cluster(new_world(f"{n}-{after}"))
            world.killed_at(n, lambda world=world: take_down(world, agent(world)).run(WISH), after=after)
            world.emulated.pass_time(5.0)

            take_down(world, agent(world)).run(WISH)

            assert left(world) == [], (n, after)


@pytest.mark.parametrize(
    "path", ["/instances/tpuctl-lab-head$", "/disks/tpuctl-lab-data$", "/secrets/tpuctl-lab-token$"]
)
def test_lost_answer_of_a_deletion_is_healed_by_the_next_down(world: World, path: str) -> None:
    a_cluster(world)
    world.emulated.plant("lost-after", method="DELETE", path=path, times=1)
    from tpuctl.cloud.errors import TransientError

    with pytest.raises(TransientError):
        take_down(world, Silent()).run(WISH)
    take_down(world, Silent()).run(WISH)

    assert world.emulated.fired() == 1
    assert left(world) == []
