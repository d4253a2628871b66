"""Whatever callers and the service do in whatever order: the laws of the emulated TPU service."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tpuctl.emulator.accelerators import ACCELERATORS
from tpuctl.emulator.events import VmStart, VmStop
from tpuctl.emulator.tpu_records import ARROWS, QrState
from tpuctl.testing.core_driver import PARENT, Driver, a_driver

ZONE = "us-central2-b"
CAPACITY = 12
QUOTA = 24
NAMES = st.sampled_from(["a", "b", "c", "d"])
KINDS = st.sampled_from(["v4-8", "v4-16"])


def a_model_driver(seed: int) -> Driver:
    return a_driver(
        seed=seed,
        capacity=[{"zone": ZONE, "type": "v4", "chips": CAPACITY}],
        quotas=[{"zone": ZONE, "generation": "v4", "chips": QUOTA}],
        spot_lifetime=200,
        latencies={"accepted": 1, "waiting": 4, "provisioning": 10, "suspending": 5, "deleting": 7},
    )


class TpuServiceMachine(RuleBasedStateMachine):
    """Two drivers get the same calls at the same times, so that determinism is a law like the others."""

    @initialize(seed=st.integers(0, 5))
    def begin(self, seed: int) -> None:
        self.pair = (a_model_driver(seed), a_model_driver(seed))

    def both(self, method: str, url: str) -> int:
        statuses = [driver.call(method, url)[0] for driver in self.pair]
        assert statuses[0] == statuses[1]
        return statuses[0]

    @rule(name=NAMES, kind=KINDS)
    def create(self, name: str, kind: str) -> None:
        first, second = self.pair
        taken = first.qr_state(name) != "HTTP 404"
        second.qr_state(name)
        status = first.create(name, kind)[0]
        assert second.create(name, kind)[0] == status
        taken = taken or f"{PARENT[4:]}/nodes/{name}" in first.cloud.tpu.life.nodes
        assert status == (409 if taken else status)  # quota answers 429: a taken name is looked at first

    @rule(kinds=st.lists(KINDS, min_size=4, max_size=4), seconds=st.sampled_from([5, 20]))
    def ask_for_more_than_there_is(self, kinds: list[str], seconds: int) -> None:
        for name, kind in zip("abcd", kinds, strict=True):
            self.create(name, kind)
        self.pass_time(seconds)

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
            nodes = list(driver.cloud.tpu.life.nodes.values())
            driver.cloud.preemptions.preempt(driver.now, nodes[pick % len(nodes)], notice_s=notice)

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
    def capacity_and_quota_are_never_exceeded(self) -> None:
        life = self.pair[0].cloud.tpu.life
        running = sum(ACCELERATORS[n.accelerator.name].chips for n in life.nodes.values() if n.vms)
        assert running <= CAPACITY
        spot = [record.chips for record in life.queued.values()]
        spot += [node.accelerator.chips for node in life.nodes.values() if not node.queued and node.spot]
        assert sum(spot) <= QUOTA

    @invariant()
    def operations_end_with_what_they_began(self) -> None:
        """None is open for a node that is there no more, or that is READY or STOPPED."""
        tpu = self.pair[0].cloud.tpu
        for operation in tpu.operations.below(PARENT[4:]):
            if operation.ended is None and operation.verb in ("create", "start") and "/nodes/" in operation.target:
                node = tpu.life.nodes.get(operation.target)
                assert node is not None, operation
                assert node.state in ("CREATING", "STARTING", "DELETING", "STOPPED"), (operation, node.state)

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


TestTpuService = TpuServiceMachine.TestCase
TestTpuService.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
