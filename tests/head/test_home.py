"""Finding and building the head, on the emulated cloud behind Google's clients: whatever happens, one head."""

from __future__ import annotations

import stat
from collections.abc import Callable
from typing import Any

import pytest

from tpuctl.base.chance import SeededChance
from tpuctl.base.ids import Zone, epoch_of
from tpuctl.cloud.model import InstanceRequest
from tpuctl.head.home import NoHeadError
from tpuctl.head.model import DiskElsewhereError, NameTakenError, TwoHeadsError

ZONE, OTHER = Zone("us-central1-a"), Zone("europe-west4-b")

World = Any  # of conftest.py


def insert(world: World, zone: Zone, labels: dict[str, str]) -> None:
    chance = SeededChance(9)
    disk = f"disk-{zone}"
    world.compute.insert_disk(zone, disk, 10, {}, chance.request_id())
    request = InstanceRequest(world.names.head, zone, "e2-standard-4", labels, {}, disk)
    world.compute.insert_instance(request, chance.request_id())


def everything(world: World) -> tuple[list[tuple[str, str]], list[tuple[str, str]], bool]:
    """Heads, disks and the secret that carry the cluster's names, whatever their labels."""
    heads = [(item.zone, item.name) for item in world.compute.find_instances("tpuctl-cluster", "lab").items]
    disks = list(world.compute.find_disks("tpuctl-cluster", "lab").items)
    return heads, disks, world.secrets.has_secret(world.names.secret)


WHOLE = ([(ZONE, "tpuctl-lab-head")], [(ZONE, "tpuctl-lab-data")], True)


def test_head_is_built_of_secret_disk_and_vm_in_this_order(world: World) -> None:
    found = world.home().find_or_build()

    assert [text.split(" (")[0] for text in world.said] == [
        "make secret tpuctl-lab-token",
        "make disk tpuctl-lab-data in us-central1-a",
        "make head tpuctl-lab-head in us-central1-a",
    ]
    assert found.built
    assert found.address == f"http://{found.instance.address}:7578"
    assert found.epoch == epoch_of(found.instance.created)
    assert everything(world) == WHOLE


def test_what_was_found_is_remembered_and_the_token_is_its_owners_alone(world: World) -> None:
    found = world.home().find_or_build()

    known = world.folder.head()
    assert (known.zone, known.name, known.address) == (ZONE, "tpuctl-lab-head", found.instance.address)
    assert world.folder.token() == found.token == world.secrets.read_secret("tpuctl-lab-token")
    assert len(found.token) >= 43
    mode = stat.S_IMODE((world.folder._path / "token").stat().st_mode)
    assert mode == 0o600


def test_token_is_in_no_message_label_or_metadata(world: World) -> None:
    found = world.home().find_or_build()

    everywhere = [*world.said, *world.http.log, repr(found.instance), repr(world.emulated.cloud.calls)]
    assert [text for text in everywhere if found.token in text] == []


def test_second_call_changes_nothing(world: World) -> None:
    first = world.home().find_or_build()
    world.said.clear()

    again = world.home().find_or_build()

    assert (again.instance.created, again.token, again.built) == (first.instance.created, first.token, False)
    assert world.said == []


def test_killed_at_every_call_the_next_up_heals(new_world: Callable[[str], World]) -> None:
    undisturbed = new_world("undisturbed")
    calls = undisturbed.count_calls(lambda: undisturbed.home().find_or_build())
    assert calls >= 12

    for n in range(1, calls + 1):
        for after in (False, True):
            world = new_world(f"{n}-{after}")
            world.killed_at(n, lambda world=world: world.home().find_or_build(), after=after)
            world.emulated.pass_time(5.0)  # what was sent takes its effect meanwhile

            found = world.home().find_or_build()

            assert everything(world) == WHOLE, (n, after)
            assert found.token == world.secrets.read_secret(world.names.secret), (n, after)


@pytest.mark.parametrize("kind", ["lost-after", "lost-before", "error-after", "error-before"])
def test_lost_answer_of_any_making_call_is_healed_by_looking(new_world: Callable[[str], World], kind: str) -> None:
    for path in ("/instances", "/disks", "/secrets", "addVersion"):
        world = new_world(f"{kind}{path.strip('/')}")
        world.emulated.plant(kind, method="POST", path=f"{path}$", times=1)

        world.home().find_or_build()

        assert everything(world) == WHOLE, path
        assert world.emulated.fired() == 1, path


def test_secret_that_was_left_without_a_version_is_made_anew(world: World) -> None:
    calls = world.secrets._secrets
    body: dict[str, Any] = {"replication": {"automatic": {}}}
    calls.create(parent="projects/p", secretId="tpuctl-lab-token", body=body).execute(http=world.http)

    found = world.home().find_or_build()

    assert found.token
    assert "its maker was interrupted" in world.said[0]


def test_existing_secret_and_disk_are_kept(world: World) -> None:
    world.secrets.create_secret("tpuctl-lab-token", "old-token", world.names.labels)
    world.compute.insert_disk(ZONE, "tpuctl-lab-data", 20, world.names.labels, SeededChance(4).request_id())

    assert world.home().find_or_build().token == "old-token"
    assert len(world.said) == 1


def test_head_found_by_label_in_another_zone_is_the_head(world: World) -> None:
    insert(world, OTHER, world.names.labels)

    found = world.home().find_or_build()

    assert (found.instance.zone, found.built) == (OTHER, True)  # only its secret was missing
    assert world.folder.head().zone == OTHER
    assert [item.zone for item in world.compute.find_instances("tpuctl-cluster", "lab").items] == [OTHER]


def test_strangers_instance_with_the_heads_name_is_refused_and_untouched(world: World) -> None:
    insert(world, ZONE, {"owner": "somebody"})
    before = world.compute.get_instance(ZONE, "tpuctl-lab-head")

    with pytest.raises(NameTakenError, match="lacks the labels"):
        world.home().find_or_build()

    assert world.compute.get_instance(ZONE, "tpuctl-lab-head") == before
    assert world.said == []


def test_strangers_disk_with_the_name_is_refused_and_untouched(world: World) -> None:
    world.compute.insert_disk(ZONE, "tpuctl-lab-data", 20, {}, SeededChance(4).request_id())

    with pytest.raises(NameTakenError, match="'tpuctl-lab-data' exists"):
        world.home().find_or_build()

    assert not any(line.startswith("DELETE") for line in world.http.log)


def test_other_ups_insert_between_look_and_deed_is_the_head(world: World) -> None:
    """409: the name is the lock, and who loses it uses the winner's head."""
    home = world.home()
    raced: list[InstanceRequest] = []
    original = home.applier.compute.insert_instance

    def lose_the_race(request: InstanceRequest, request_id: str) -> None:
        if not raced:
            raced.append(request)
            original(request, SeededChance(77).request_id())  # the other one's
        original(request, request_id)

    home.applier.compute.insert_instance = lose_the_race

    found = home.find_or_build()

    assert raced
    assert everything(world) == WHOLE
    assert found.instance.name == "tpuctl-lab-head"


def test_two_heads_are_for_a_person_to_settle(world: World) -> None:
    insert(world, ZONE, world.names.labels)
    insert(world, OTHER, world.names.labels)

    with pytest.raises(TwoHeadsError, match="2 heads"):
        world.home().find_or_build()


def test_lost_head_is_rebuilt_in_the_zone_of_its_records(world: World) -> None:
    first = world.home(OTHER).find_or_build()
    world.compute.delete_instance(OTHER, "tpuctl-lab-head", SeededChance(5).request_id())
    world.emulated.pass_time(60.0)

    again = world.home(ZONE).find_or_build(only_lost=True)

    assert again.instance.zone == OTHER
    assert again.token == first.token
    assert any("the data disk is in europe-west4-b" in text for text in world.said)


def test_disks_in_two_other_zones_are_for_a_person_to_settle(world: World) -> None:
    for zone in (OTHER, Zone("us-east5-b")):
        world.compute.insert_disk(zone, "tpuctl-lab-data", 20, world.names.labels, SeededChance(6).request_id())

    with pytest.raises(DiskElsewhereError, match=r"head\.zone"):
        world.home().find_or_build()


def test_rebuilding_needs_a_cluster_that_was_not_taken_down(world: World) -> None:
    with pytest.raises(NoHeadError, match="tpuctl up"):
        world.home().find_or_build(only_lost=True)

    assert not any(line.startswith("POST") for line in world.http.log)


def test_finding_makes_nothing(world: World) -> None:
    with pytest.raises(NoHeadError):
        world.home().find()

    assert not any(line.startswith("POST") for line in world.http.log)
