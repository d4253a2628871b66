"""Whatever callers and the service do in whatever order: the laws of the emulated TPU service."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tpuctl.emulator.accelerators import ACCELERATORS
from tpuctl.emulator.events import VmStart, VmStop
from tpuctl.emulator.scenario import FaultRule, MaintenancePlan, NodeStatePlan
from tpuctl.emulator.scenario_troubles import Choice
from tpuctl.emulator.tpu_life import TpuLife
from tpuctl.emulator.tpu_records import ARROWS, NodeRecord, QrState
from tpuctl.testing.core_driver import PARENT, Driver, a_driver

ZONE = "us-central2-b"
CAPACITY = 12
QUOTA = 24
NAMES = st.sampled_from(["a", "b", "c", "d"])
KINDS = st.sampled_from(["v4-8", "v4-16"])
MORE_LATE = st.sampled_from([1, 30])
FAULTS = st.fixed_dictionaries({
    "kind": st.sampled_from([
        "error-before", "error-after", "lost-late", "operation-slow", "operation-never", "operation-lost", "fail-later",
        "grant-first",
    ]),
    "call": st.sampled_from(["*", "queuedResources.create", "queuedResources.delete"]),
    "seconds": MORE_LATE,
    "skip": st.integers(0, 1),
    "every": st.integers(1, 2),
})  # fmt: skip
STATES = st.sampled_from([
    {"state": "REPAIRING", "lasts": 9}, {"state": "REPAIRING", "lasts": 9, "then": "UNKNOWN"}, {"state": "PREEMPTED"},
    {"state": "gone"}, {"state": "77", "lasts": 3}, {"state": "READY", "health": "TIMEOUT"},
])  # fmt: skip


WORLD: dict[str, Any] = {
    "capacity": [{"zone": ZONE, "type": "v4", "chips": CAPACITY}],
    "quotas": [{"zone": ZONE, "generation": "v4", "chips": QUOTA}],
    "spot_lifetime": 200,
    "latencies": {"accepted": 1, "waiting": 4, "provisioning": 10, "suspending": 5, "deleting": 7},
}


def nth_node(driver: Driver, pick: int) -> NodeRecord:
    nodes = list(driver.cloud.tpu.life.nodes.values())
    return nodes[pick % len(nodes)]


def spot_chips(life: TpuLife) -> int:
    """What counts against the quota: all that exists, granted or not."""
    alone = [node.accelerator.chips for node in life.nodes.values() if not node.queued and node.spot]
    return sum([record.chips for record in life.queued.values()] + alone)


class TpuServiceMachine(RuleBasedStateMachine):
    """Two drivers get the same calls at the same times, so that determinism is a law like the others."""

    @initialize(seed=st.integers(0, 5))
    def begin(self, seed: int) -> None:
        self.pair = (self.a_driver(seed), self.a_driver(seed))

    @staticmethod
    def a_driver(seed: int) -> Driver:
        return a_driver(seed=seed, **WORLD)

    def both(self, method: str, url: str) -> int:
        statuses = [driver.call(method, url)[0] for driver in self.pair]
        assert statuses[0] == statuses[1]
        return statuses[0]

    @rule(
        name=NAMES,
        kind=KINDS,
        policy=st.sampled_from([{}, {}, {"validUntilDuration": "20s"}, {"validAfterDuration": "15s"}]),
    )
    def create(self, name: str, kind: str, policy: dict[str, str]) -> None:
        taken, held = self.as_listed(name)
        extra: dict[str, Any] = {"queueingPolicy": policy} if policy else {}
        status = self.pair[0].create(name, kind, **extra)[0]
        assert self.pair[1].create(name, kind, **extra)[0] == status
        if self.pair[0].cloud.calls[-1].fault == "":
            full = held + ACCELERATORS[kind].chips > QUOTA
            assert status == (409 if taken else 429 if full else 200)  # a taken name is looked at first

    def as_listed(self, name: str) -> tuple[bool, int]:
        """Whether the name is taken, and the chips of all that exist, by what the records say."""
        life = self.pair[0].cloud.tpu.life
        records = list(life.queued.values())
        nodes = {node.node_id for node in life.nodes.values()}
        return (
            name in nodes or any(record.name.endswith(f"/{name}") for record in records),
            spot_chips(life),
        )

    @rule(kinds=st.lists(KINDS, min_size=4, max_size=4), seconds=st.sampled_from([5, 20]))
    def ask_for_more_than_there_is(self, kinds: list[str], seconds: int) -> None:
        for name, kind in zip("abcd", kinds, strict=True):
            self.create(name, kind, {})
        self.pass_time(seconds)

    @precondition(lambda self: self.pair[0].cloud.tpu.life.queued)
    @rule(name=NAMES, force=st.booleans())
    def delete(self, name: str, force: bool) -> None:
        self.both("DELETE", f"{PARENT}/queuedResources/{name}?force={str(force).lower()}")

    @precondition(lambda self: self.pair[0].cloud.tpu.life.nodes)
    @rule(name=NAMES)
    def delete_node(self, name: str) -> None:
        self.both("DELETE", f"{PARENT}/nodes/{name}")

    @rule(seconds=st.sampled_from([0, 1, 3, 10, 20, 60]))
    def pass_time(self, seconds: int) -> None:
        for driver in self.pair:
            driver.pass_time(seconds)

    @precondition(lambda self: self.pair[0].cloud.tpu.life.nodes)
    @rule(pick=st.integers(0, 10), notice=st.sampled_from([0, 5]))
    def preempt(self, pick: int, notice: int) -> None:
        for driver in self.pair:
            driver.cloud.preemptions.preempt(driver.now, nth_node(driver, pick), notice_s=notice)

    @invariant()
    def same_seed_same_history(self) -> None:
        first, second = self.pair
        assert first.cloud.history == second.cloud.history
        assert first.events == second.events

    @invariant()
    def states_move_only_along_the_arrows(self) -> None:
        last: dict[str, str] = {}
        for change in self.pair[0].cloud.history:
            if "/queuedResources/" not in change.resource:
                continue
            before = last.get(change.resource, "GONE")
            after = None if change.state == "GONE" else QrState(change.state)
            assert after is QrState.CREATING if before == "GONE" else after in ARROWS[QrState(before)]
            last[change.resource] = change.state

    @invariant()
    def time_leads_forward(self) -> None:
        for driver in self.pair:
            driver.pass_time(0)
            deadline = driver.cloud.next_deadline()
            assert deadline is None or deadline > driver.now
        times = [change.at for change in self.pair[0].cloud.history]
        assert times == sorted(times)

    @invariant()
    def capacity_and_quota_are_never_exceeded(self) -> None:
        life, now = self.pair[0].cloud.tpu.life, self.pair[0].now
        staying = [n for n in life.nodes.values() if n.vms and not n.leaving and n.state != "DELETING"]
        limit = life.capacity.limit((ZONE, "v4"), self.pair[0].cloud.world.age(now))
        assert limit is not None
        assert sum(ACCELERATORS[n.accelerator.name].chips for n in staying) <= limit
        assert sum(ACCELERATORS[n.accelerator.name].chips for n in life.nodes.values() if n.vms) <= CAPACITY
        assert spot_chips(life) <= QUOTA

    @invariant()
    def final_states_end_only_in_deletion(self) -> None:
        after: dict[str, str] = {}
        for change in self.pair[0].cloud.history:
            if "/queuedResources/" in change.resource:
                if after.get(change.resource) in ("FAILED", "SUSPENDED"):
                    assert change.state == "DELETING"
                after[change.resource] = change.state

    @invariant()
    def no_two_machines_share_a_name_or_an_address(self) -> None:
        alive: dict[str, str] = {}
        for event in self.pair[0].events:
            if isinstance(event, VmStart):
                assert event.vm.name not in alive, event
                assert event.vm.address not in alive.values()
                alive[event.vm.name] = event.vm.address
            elif isinstance(event, VmStop):
                del alive[event.name]
            else:
                assert event.name in alive

    @invariant()
    def only_living_requests_have_nodes(self) -> None:
        life = self.pair[0].cloud.tpu.life
        for node in (node for node in life.nodes.values() if node.queued):
            assert life.queued[node.queued].state in (
                QrState.PROVISIONING,
                QrState.ACTIVE,
                QrState.SUSPENDING,
                QrState.DELETING,
            )

    def teardown(self) -> None:
        for driver in self.pair:
            HAPPENED.update(change.state for change in driver.cloud.history)
            HAPPENED.update(call.fault for call in driver.cloud.calls)
            HAPPENED.update(type(event).__name__ for event in driver.events)


TROUBLED: dict[str, Any] = WORLD | {
    "notice": 3,
    "spot_lifetime": 400,
    "reclaim": "seeded",
    "preemption_rates": [{"per_slice_hour": 5, "after": 100}],
    "preemptions": [{"after_ready": "5s..50s", "node": "a"}, {"at": 150, "share": 0.5, "choose": "seeded"}],
    "node_states": [{"after_ready": "1s..9s", "node": "b", "state": "REPAIRING", "lasts": 5}],
    "maintenance": [{"after_ready": 5, "node": "c", "lead": "10s", "lasts": "20s", "warning": "5s"}],
    "stalls": [
        {"stage": "PROVISIONING", "skip": 2, "lasts": "5s..60s"},
        {"stage": "ACCEPTED", "skip": 4, "error": "internal"},
        {"stage": "DELETING", "skip": 3, "lasts": 30},
    ],
    "stockouts": [{"zone": ZONE, "after": 60, "until": 90}],
    "faults": [
        {"kind": "lost-late", "call": "queuedResources.create", "seconds": 9, "skip": 3, "every": 2, "times": 2},
        {"kind": "operation-never", "call": "queuedResources.create", "every": 3, "times": None},
        {"kind": "fail-later", "call": "queuedResources.delete", "skip": 1},
        {"kind": "grant-first", "call": "queuedResources.delete", "every": 2, "times": None},
    ],
    "latencies": {
        "accepted": "0s..2s", "waiting": 4, "provisioning": "5s..15s", "suspending": 5, "deleting": "1s..9s",
    },
}  # fmt: skip


class TroubledMachine(TpuServiceMachine):
    """Faults on calls, capacity that changes, nodes that go wrong, maintenance, losses."""

    @staticmethod
    def a_driver(seed: int) -> Driver:
        return a_driver(seed=seed, **TROUBLED)

    @rule(fault=FAULTS)
    def plant(self, fault: dict[str, object]) -> None:
        for driver in self.pair:
            driver.cloud.faults.plant(FaultRule.model_validate(fault))

    @rule(chips=st.sampled_from([0, 4, 8, CAPACITY]))
    def set_capacity(self, chips: int) -> None:
        for driver in self.pair:
            driver.cloud.tpu.life.capacity.set(ZONE, "v4", chips, driver.cloud.world.age(driver.now))
            driver.cloud.preemptions.capacity_changed(driver.now)

    @precondition(lambda self: self.pair[0].cloud.tpu.life.nodes)
    @rule(pick=st.integers(0, 10), plan=STATES)
    def change_state(self, pick: int, plan: dict[str, object]) -> None:
        for driver in self.pair:
            node = nth_node(driver, pick)
            if plan["state"] != "READY" or node.running:
                driver.cloud.node_states.change(driver.now, node, NodeStatePlan.model_validate(plan))

    @precondition(lambda self: self.pair[0].cloud.tpu.life.nodes)
    @rule(pick=st.integers(0, 10), ends=st.sampled_from(["done", "terminated"]), worker=st.sampled_from([None, 0]))
    def maintain(self, pick: int, ends: str, worker: int | None) -> None:
        plan = MaintenancePlan.model_validate({"lead": 5, "lasts": 10, "warning": 2, "ends": ends, "worker": worker})
        for driver in self.pair:
            driver.cloud.maintenances.announce(driver.now, nth_node(driver, pick), plan)

    @precondition(lambda self: self.pair[0].cloud.tpu.life.nodes)
    @rule(count=st.integers(1, 3), choose=st.sampled_from(["newest", "oldest", "seeded"]))
    def preempt_many(self, count: int, choose: Choice) -> None:
        for driver in self.pair:
            for node in driver.cloud.preemptions.among(ZONE, count, None, choose):
                driver.cloud.preemptions.preempt(driver.now, node)


class NodeCallsMachine(TpuServiceMachine):
    """Nodes by themselves, and what stops, starts and resets."""

    @rule(name=NAMES, kind=KINDS, spot=st.booleans())
    def create_node(self, name: str, kind: str, spot: bool) -> None:
        scheduling: dict[str, Any] = {"schedulingConfig": {"spot": True}} if spot else {}
        statuses = {driver.create_node(name, kind, **scheduling)[0] for driver in self.pair}
        assert len(statuses) == 1
        assert statuses <= {200, 409, 429}

    @rule(name=NAMES, verb=st.sampled_from(["stop", "start"]))
    def stop_or_start(self, name: str, verb: str) -> None:
        self.both("POST", f"{PARENT}/nodes/{name}:{verb}")

    @rule(name=NAMES)
    def reset(self, name: str) -> None:
        self.both("POST", f"{PARENT}/queuedResources/{name}:reset")

    @invariant()
    def operations_end_with_what_they_began(self) -> None:
        """None is open for a node that is there no more, or that is READY or STOPPED."""
        tpu = self.pair[0].cloud.tpu
        for operation in tpu.operations.below(PARENT[4:]):
            if operation.ended is None and operation.verb in ("create", "start") and "/nodes/" in operation.target:
                node = tpu.life.nodes.get(operation.target)
                assert node is not None, operation
                assert node.state in ("CREATING", "STARTING", "DELETING", "STOPPED"), (operation, node.state)


HAPPENED: Counter[str] = Counter()
EXAMPLES = int(os.environ.get("TPUCTL_TEST_EXAMPLES", "120"))  # by hand, more: docs/emulator.md, Laws


@pytest.mark.slow
def test_laws_hold_in_every_troubled_history() -> None:
    HAPPENED.clear()

    run_state_machine_as_test(TroubledMachine, settings=settings(max_examples=EXAMPLES, stateful_step_count=30))

    reached = {state.value for state in QrState} | {"GONE", "REPAIRING", "77", "VmMaintenance", "VmReset", "VmNotice"}
    reached |= {"lost-late", "operation-never", "grant-first", "fail-later"}
    assert [word for word in sorted(reached) if HAPPENED[word] < 3] == []  # the search was about something


TestNodeCalls = NodeCallsMachine.TestCase
TestNodeCalls.settings = settings(max_examples=40, stateful_step_count=30)
