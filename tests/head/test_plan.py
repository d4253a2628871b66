"""The head's planner, enumerated over what can exist."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tpuctl.base.ids import ClusterName, Zone
from tpuctl.base.units import Instant
from tpuctl.cloud.model import Instance
from tpuctl.head.model import (
    LEAVING,
    STOPPED,
    CreateDisk,
    CreateSecret,
    DeleteDisk,
    DeleteHead,
    DeleteSecret,
    HeadNames,
    HeadView,
    HeadWant,
    InsertHead,
    NameTakenError,
    SecretState,
)
from tpuctl.head.plan import plan_end, plan_head

ZONE = Zone("us-central1-a")
NAMES = HeadNames(ClusterName("lab"))
WANT = HeadWant(NAMES, "p", ZONE, "e2-standard-4")
HEAD = Instance(NAMES.head, ZONE, "RUNNING", "10.0.0.2", Instant(0.0), NAMES.labels)
NOTHING = HeadView((), True, None, (), True, SecretState.ABSENT)
WHOLE = HeadView((HEAD,), True, None, (ZONE,), True, SecretState.PRESENT)


def kinds(actions: tuple[object, ...]) -> list[type]:
    return [type(action) for action in actions]


def test_from_nothing_secret_disk_and_head_are_made_in_order() -> None:
    assert kinds(plan_head(WANT, NOTHING).actions) == [CreateSecret, CreateDisk, InsertHead]


def test_running_head_with_its_secret_needs_nothing() -> None:
    plan = plan_head(WANT, WHOLE)

    assert (plan.actions, plan.waits) == ((), "")


@pytest.mark.parametrize("status", sorted(STOPPED))
def test_stopped_head_is_made_anew_on_its_disk(status: str) -> None:
    plan = plan_head(WANT, replace(WHOLE, heads=(replace(HEAD, status=status),)))

    assert kinds(plan.actions) == [DeleteHead, InsertHead]
    assert status in plan.actions[0].reason


@pytest.mark.parametrize("status", sorted(LEAVING))
def test_leaving_head_is_waited_for(status: str) -> None:
    plan = plan_head(WANT, replace(WHOLE, heads=(replace(HEAD, status=status),)))

    assert plan.actions == ()
    assert status in plan.waits


@pytest.mark.parametrize("status", ["PROVISIONING", "STAGING", "RUNNING", "REPAIRING", "A_NEW_WORD"])
def test_head_on_its_way_up_or_in_an_unknown_state_is_kept(status: str) -> None:
    assert plan_head(WANT, replace(WHOLE, heads=(replace(HEAD, status=status),))).actions == ()


def test_unseen_zone_neither_makes_a_head_nor_a_disk() -> None:
    blind = replace(NOTHING, heads_complete=False)
    half_blind = replace(NOTHING, disks_complete=False)

    assert plan_head(WANT, blind).actions == ()
    assert plan_head(WANT, half_blind).actions == ()
    assert plan_head(WANT, half_blind).waits


def test_head_that_is_seen_is_used_although_other_zones_are_not() -> None:
    plan = plan_head(WANT, replace(WHOLE, heads_complete=False, disks_complete=False))

    assert (plan.actions, plan.waits) == ((), "")


def test_stranger_is_never_touched_in_any_view() -> None:
    stranger = replace(HEAD, labels={})
    for disks, secret, complete in itertools.product(((), (ZONE,)), SecretState, (True, False)):
        view = HeadView((), complete, stranger, disks, complete, secret)

        with pytest.raises(NameTakenError):
            plan_head(WANT, view)
        assert DeleteHead not in kinds(plan_end(NAMES, view, keep_disk=False).actions)


def test_every_making_plan_reaches_the_whole_in_one_step() -> None:
    """All views without strangers: what the plan makes is exactly what was missing."""
    for heads, disks, secret in itertools.product(((), (HEAD,)), ((), (ZONE,)), SecretState):
        plan = plan_head(WANT, HeadView(heads, True, None, disks, True, secret))

        made = kinds(plan.actions)
        assert (CreateSecret in made) == (secret is not SecretState.PRESENT)
        assert (InsertHead in made) == (not heads)
        assert (CreateDisk in made) == (not heads and not disks)
        assert all(action.reason for action in plan.actions)


def test_end_deletes_head_then_secret_then_disk() -> None:
    assert kinds(plan_end(NAMES, WHOLE, keep_disk=False).actions) == [DeleteHead, DeleteSecret, DeleteDisk]
    assert kinds(plan_end(NAMES, WHOLE, keep_disk=True).actions) == [DeleteHead, DeleteSecret]
    assert plan_end(NAMES, NOTHING, keep_disk=False).actions == ()


def test_end_with_unseen_zones_says_that_something_may_be_left() -> None:
    assert plan_end(NAMES, replace(NOTHING, heads_complete=False), keep_disk=False).waits
    assert plan_end(NAMES, replace(NOTHING, disks_complete=False), keep_disk=False).waits
    assert not plan_end(NAMES, replace(NOTHING, disks_complete=False), keep_disk=True).waits
