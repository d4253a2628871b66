"""Faults from practice (numbers of the case list), as whole passes on the emulated cloud and virtual time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tpuctl.base.errors import BusyError
from tpuctl.base.ids import Epoch, QrName, Zone
from tpuctl.cloud.model import Listing, QueuedResource, TpuApi
from tpuctl.emulator.scenario import Latencies, Override, QuotaRule, Settings
from tpuctl.store.errors import StoreDamagedError
from tpuctl.store.lock import PassLock
from tpuctl.store.records import Intent, Phase
from tpuctl.testing.builders import EPOCH, ZONE, a_cluster_spec, a_pool
from tpuctl.testing.fleet_world import FleetWorld

FIRST, SECOND = f"lab-v4-0-{EPOCH}-1", f"lab-v4-1-{EPOCH}-1"
REPLACED = f"lab-v4-0-{EPOCH}-2"


def ready(world: FleetWorld) -> FleetWorld:
    world.settle()
    assert set(world.phases().values()) == {Phase.READY}
    return world


def test_two_wanted_slices_become_ready_and_then_nothing_is_done(world: FleetWorld) -> None:
    ready(world)

    assert world.states() == {FIRST: "ACTIVE", SECOND: "ACTIVE"}
    assert world.effects("POST") == [FIRST, SECOND]
    assert world.effects("DELETE") == []
    assert world.run().exit_code == 0


@pytest.mark.parametrize("shows", ["PREEMPTED", "TERMINATED", "gone"])
@pytest.mark.parametrize("lag_s", [0.0, 600.0], ids=["suspending", "still-active"])
def test_a01_a_preempted_slice_is_replaced_once_whatever_it_is_called(
    world: FleetWorld, shows: str, lag_s: float
) -> None:
    ready(world).preempt(FIRST, shows=shows, lag_s=lag_s)

    world.passes(2)

    assert world.effects("DELETE") == [FIRST]
    assert world.effects("POST")[2:] == [REPLACED]
    ready(world)
    assert sorted(world.states()) == [REPLACED, SECOND]


def test_a01_the_successor_waits_for_the_dead_where_the_grant_has_no_room_for_both(tmp_path: Path) -> None:
    slow = Settings(latencies=Latencies(accepted=0, deleting=150))
    world = FleetWorld(tmp_path, a_cluster_spec(a_pool(slices=1), grant_chips=8), slow)
    ready(world).preempt(FIRST)

    world.passes(2)
    assert world.effects("POST") == [FIRST]
    assert "granted chips" in " ".join(world.run().plan.lines)

    world.settle()
    assert world.effects("POST") == [FIRST, REPLACED]


def test_a01_no_successor_is_asked_for_while_the_delete_of_a_lost_one_fails(world: FleetWorld) -> None:
    ready(world).preempt(FIRST, lag_s=3600)
    world.emulated.plant("error-before", method="DELETE", times=2)

    first, second, third = world.passes(3)

    assert first.applied is not None
    assert first.applied.created == []
    assert f"{FIRST} could not be deleted first" in first.applied.left[0]
    assert (first.exit_code, second.exit_code, third.exit_code) == (3, 3, 0)
    assert world.effects("POST")[2:] == [REPLACED]


def test_a02_missing_health_and_unknown_states_change_nothing(tmp_path: Path) -> None:
    world = FleetWorld(tmp_path, a_cluster_spec(a_pool(slices=3)))
    ready(world)
    names = sorted(world.states())
    cloud, now = world.emulated.cloud, world.clock.now()
    cloud.override(now, Override(resource=f"nodes/{names[0]}", fields={"health": None}))
    cloud.override(now, Override(resource=f"queuedResources/{names[1]}", fields={"state.state": "STATE_UNSPECIFIED"}))
    cloud.override(now, Override(resource=f"nodes/{names[2]}", fields={"state": 99}))

    results = world.passes(3)

    assert [result.exit_code for result in results] == [3, 3, 3]
    assert world.effects("DELETE") == []
    assert len(world.effects("POST")) == 3
    seen = {str(row.name): (row.cloud_state, row.node_state) for row in world.rows()}
    assert "UNSPECIFIED" in seen[names[1]][0] or seen[names[1]][0] == "0"
    assert seen[names[2]][1] == "99"
    said = {str(row.name): row.reason for row in world.rows()}
    assert said[names[1]].startswith("unknown: ")
    assert "UNSPECIFIED" in said[names[1]] or "'0'" in said[names[1]]
    assert said[names[2]].startswith("unknown: ")
    assert "'99'" in said[names[2]]
    since = {str(row.name): row.unseen_since for row in world.rows()}
    assert since[names[0]] is None
    assert since[names[2]] == since[names[1]], "both since the first of the three passes"
    cloud.clear_overrides()
    ready(world)
    assert all("unknown" not in row.reason for row in world.rows())


def test_a03_a_slice_without_one_host_is_recycled_whole_and_the_other_left_alone(world: FleetWorld) -> None:
    world.hosts.kill(FIRST, 1)
    world.passes(5)
    assert world.row(0).phase is Phase.JOINING
    assert world.row(0).reason == "1/2 hosts"
    assert world.row(1).phase is Phase.READY

    world.passes(8)  # past the join deadline
    ready(world)

    assert world.effects("DELETE") == [FIRST]
    assert sorted(world.states()) == [REPLACED, SECOND]


def test_a46_a_slot_that_never_comes_up_is_given_up_after_three_tries_with_the_reason(world: FleetWorld) -> None:
    for n in range(1, 9):
        world.hosts.kill(f"lab-v4-0-{EPOCH}-{n}", 1)

    world.passes(60)

    assert [name for name in world.effects("POST") if "-v4-0-" in name] == [f"lab-v4-0-{EPOCH}-{n}" for n in (1, 2, 3)]
    result = world.run()
    assert result.exit_code == 3
    assert "1/2 hosts joined" in result.summary


def test_a04_patience_in_every_waiting_state(tmp_path: Path) -> None:
    slow = Settings(latencies=Latencies(accepted=180, waiting=360, provisioning=180))
    world = FleetWorld(tmp_path, a_cluster_spec(), slow)
    seen = []
    for _ in range(14):
        world.passes(1)
        seen.append(world.row().phase)

    assert set(seen) >= {Phase.REQUESTED, Phase.WAITING, Phase.PROVISIONING}
    ready(world)
    assert (len(world.effects("POST")), world.effects("DELETE")) == (1, [])


def test_a05_own_dead_are_cleared_from_the_quota_and_foreign_ones_left_alone(tmp_path: Path) -> None:
    quota = Settings(latencies=Latencies(accepted=0), quotas=(QuotaRule(zone=ZONE, generation="v4", chips=24),))
    world = FleetWorld(tmp_path, a_cluster_spec(a_pool(slices=2)), quota)
    world.foreign("theirs", accelerator="v4-16")
    ready(world)
    created = world.states()
    world.preempt(FIRST)
    world.preempt("theirs")
    world.emulated.pass_time(5)

    world.passes(3)

    assert world.states() == {"theirs": "SUSPENDED", SECOND: created[SECOND], REPLACED: "ACTIVE"}
    assert world.effects("DELETE") == [FIRST]
    world.check_safety()


def test_a06_a_create_whose_answer_never_comes_is_adopted_and_not_deleted(world: FleetWorld) -> None:
    world.emulated.plant("hang-after", method="POST", path="queuedResources", seconds=600)
    assert world.run().exit_code == 3
    assert world.emulated.fired() == 1

    ready(world)

    assert world.effects("POST") == [FIRST, SECOND]
    assert world.effects("DELETE") == []


def test_a07_a_slice_put_back_while_it_is_being_deleted_gets_a_fresh_name(tmp_path: Path) -> None:
    world = FleetWorld(tmp_path, None, Settings(latencies=Latencies(accepted=0, deleting=150)))
    ready(world)
    world.want_nothing()
    world.passes(1)
    world.want(a_cluster_spec())

    (during,) = world.passes(1)

    assert world.states()[FIRST] == "DELETING"
    assert world.phases()[FIRST] is Phase.DELETING
    assert [create.incarnation.name for create in during.plan.creates] == [REPLACED]
    ready(world)
    assert world.effects("POST") == [FIRST, REPLACED]


def test_a08_a_create_that_succeeded_unheard_is_adopted_by_its_labels(world: FleetWorld) -> None:
    world.emulated.plant("lost-after", method="POST", path="queuedResources")
    # The list of the next pass is a moment too old to show it: the create is repeated and meets itself.
    world.emulated.cloud.override(
        world.clock.now(), Override(resource=f"queuedResources/{FIRST}", hidden=True, seconds=30)
    )
    world.run()
    assert world.row(0).intent is Intent.SENT
    world.emulated.pass_time(5)
    world.run()

    ready(world)
    assert sorted(world.states()) == [FIRST, SECOND]
    assert world.effects("POST") == [FIRST, SECOND]


def test_a08_a_refusal_of_the_repetition_does_not_prove_that_the_first_had_no_effect(world: FleetWorld) -> None:
    world.want(a_cluster_spec())
    world.emulated.plant("lost-after", method="POST", path="queuedResources")
    world.run()
    hidden = Override(resource=f"queuedResources/{FIRST}", hidden=True, seconds=90)
    world.emulated.cloud.override(world.clock.now(), hidden)
    world.emulated.plant("error-before", method="POST", error="quota")

    world.passes(1)

    assert (world.row().intent, world.row().error_kind) == (Intent.SENT, "quota-full")
    ready(world)
    assert world.effects("POST") == [FIRST]


class NoticeWhileLooking:
    """The agent writes a host's notice of preemption while the pass lists."""

    def __init__(self, tpu: TpuApi, world: FleetWorld) -> None:
        self._tpu, self._world = tpu, world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tpu, name)

    def list_queued_resources(self, zone: Zone) -> Listing[QueuedResource]:
        row = self._world.row(0)
        if row.phase is not Phase.DRAINING:
            with self._world.store.transaction() as tx:
                tx.put_incarnation(replace(row, phase=Phase.DRAINING, since=self._world.clock.now(), reason="notice"))
        return self._tpu.list_queued_resources(zone)


def test_what_the_agent_writes_during_a_pass_is_not_overwritten(world: FleetWorld) -> None:
    ready(world)
    world.hosts.kill(FIRST, 0)  # so that the pass has something to write about that slice
    world.wrap_tpu = lambda tpu: NoticeWhileLooking(tpu, world)

    (result,) = world.passes(1)

    assert world.row(0).phase is Phase.DRAINING
    assert result.applied is not None
    assert "changed meanwhile" in result.applied.left[0]


def test_a08_a_name_that_is_somebody_elses_fails_only_that_slice(world: FleetWorld) -> None:
    world.foreign(FIRST)

    world.passes(4)

    assert world.run().exit_code == 3
    assert "name conflict" in world.run().summary
    assert world.row(1).phase is Phase.READY
    assert sorted(world.states()) == [FIRST, SECOND]
    assert world.effects("POST") == [SECOND]
    assert world.effects("DELETE") == []


def test_a09_down_of_what_is_gone_already_is_no_error_and_has_nothing_to_do_the_second_time(world: FleetWorld) -> None:
    ready(world)
    world.want_nothing()
    world.tpu.delete_queued_resource(ZONE, QrName(FIRST), "by hand")

    results = world.passes(4)

    assert results[-1].exit_code == 0
    assert world.rows() == ()
    assert world.states() == {}
    assert world.settle() == 2


def test_a12_a_slice_that_vanished_altogether_is_asked_for_anew(world: FleetWorld) -> None:
    ready(world)
    world.tpu.delete_queued_resource(ZONE, QrName(FIRST), "by hand")

    first, second = world.passes(2)

    assert first.plan.creates == ()
    assert [create.incarnation.name for create in second.plan.creates] == [REPLACED]
    ready(world)


def test_a26_names_are_judged_by_labels_only(world: FleetWorld) -> None:
    world.foreign(f"lab-v4-7-{EPOCH}-1")
    ready(world)
    world.want_nothing()

    world.settle()

    assert list(world.states()) == [f"lab-v4-7-{EPOCH}-1"]


def test_a50_a_pass_during_a_pass_leaves_at_once_without_effect(world: FleetWorld) -> None:
    with PassLock(world.directory / "pass.lock"), pytest.raises(BusyError):
        world.run()

    assert len(world.emulated.cloud.calls) == 0
    assert world.rows() == ()


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\x00 and then half a document"])
def test_a51_a_damaged_store_stops_and_a_rebuild_adopts_without_creating_or_deleting(
    world: FleetWorld, content: bytes
) -> None:
    ready(world)
    before = world.states()
    calls = len(world.emulated.cloud.calls)
    path = world.directory / "store.sqlite3"
    world.store.close()
    path.write_bytes(content)
    with pytest.raises(StoreDamagedError):
        world.restart()
    assert len(world.emulated.cloud.calls) == calls
    assert path.read_bytes() == content

    world.store = type(world.store).rebuild(path, clock=world.clock)
    world.want(a_cluster_spec(a_pool(slices=2)))
    ready(world)

    assert world.states() == before
    assert len(world.effects("POST")) == 2
    assert world.effects("DELETE") == []


def test_a_lost_store_and_a_new_head_adopt_the_fleet_under_its_old_names(world: FleetWorld) -> None:
    ready(world)
    world.epoch = Epoch("t6m8zz")
    world.lose_store()

    ready(world)
    world.preempt(FIRST)
    ready(world)

    assert sorted(world.states()) == ["lab-v4-0-t6m8zz-1", SECOND]


def test_a_head_that_was_replaced_touches_nothing(world: FleetWorld) -> None:
    ready(world)
    world.epoch = Epoch("t6m8zz")
    world.preempt(FIRST)
    ready(world)
    world.epoch = EPOCH
    world.lose_store()
    calls = len(world.emulated.cloud.calls)
    world.want_nothing()

    (result,) = world.passes(1)

    assert result.exit_code == 3
    assert "another head" in result.summary
    assert {call.method for call in list(world.emulated.cloud.calls)[calls:]} == {"GET"}


def test_a52_a_failed_list_is_not_an_empty_zone(tmp_path: Path) -> None:
    other = "us-central1-a"
    spec = a_cluster_spec(a_pool(slices=2), a_pool("v5", accelerator="v5litepod-16", zones=(other,), slices=2,
                                                   runtime="v2-alpha-tpuv5-lite"))  # fmt: skip
    world = FleetWorld(tmp_path, spec)
    ready(world)
    world.preempt(FIRST)
    world.preempt(f"lab-v5-0-{EPOCH}-1")
    world.emulated.plant("error-before", method="GET", path=f"{other}/", times=None)

    (blind,) = world.passes(1)

    assert blind.exit_code == 3
    assert [create.incarnation.name for create in blind.plan.creates] == [REPLACED]
    assert [delete.incarnation.name for delete in blind.plan.deletes] == [FIRST]
    world.emulated.cloud.faults.remove(None)
    ready(world)
    assert world.run().exit_code == 0


@pytest.mark.parametrize("step_s", [600.0, -600.0, -3600.0, 7200.0])
def test_a53_a_step_of_the_wall_clock_makes_nothing_too_old_or_too_new(tmp_path: Path, step_s: float) -> None:
    slow = Settings(latencies=Latencies(accepted=0, provisioning=14400))
    world = FleetWorld(tmp_path, a_cluster_spec(), slow)
    world.passes(3)
    assert world.row().phase is Phase.PROVISIONING

    world.clock.step_wall(step_s)
    world.passes(10)

    assert world.effects("DELETE") == []
    assert len(world.effects("POST")) == 1
