"""Random histories of faults: what must never happen never does; when faults stop, what is wanted comes to be."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tpuctl.base.ids import Epoch, IncarnationId, epoch_order
from tpuctl.emulator.scenario import Latencies, Settings
from tpuctl.spec.cluster import ClusterSpec
from tpuctl.store.records import Phase
from tpuctl.testing.builders import a_cluster_spec, a_pool
from tpuctl.testing.fleet_world import LIVING, FleetWorld

GRANT_CHIPS = 16  # two slices of v4-16: a lost one that is not gone yet leaves room for one
HAPPENED: Counter[str] = Counter()
FAULTS = ("error-before", "lost-before", "lost-after", "error-after", "hang-after", "slow")


def spec_of(slices: int) -> ClusterSpec:
    return a_cluster_spec(a_pool(slices=slices), grant_chips=GRANT_CHIPS)


class Fleet(RuleBasedStateMachine):
    @initialize(slices=st.integers(1, 2), deleting=st.sampled_from([1.0, 90.0, 200.0]))
    def begin(self, slices: int, deleting: float) -> None:
        self.folder = tempfile.TemporaryDirectory()
        latencies = Latencies(accepted=1, waiting=20, provisioning=40, deleting=deleting, suspending=30)
        self.world = FleetWorld(Path(self.folder.name), spec_of(slices), Settings(latencies=latencies))
        self.world.foreign("lab-v4-9-theirs")
        self.slices = slices
        self.world.settle()

    def passes_after(self, what: str) -> None:
        """Each disturbance is met by two passes, the first one soon."""
        HAPPENED[what] += 1
        self.world.passes(1, every_s=20.0)
        self.check()
        self.world.passes(1)

    @rule(seconds=st.sampled_from([2.0, 30.0, 60.0, 60.0, 300.0]))
    def one_pass(self, seconds: float) -> None:
        self.world.passes(1, every_s=seconds)

    @rule(
        index=st.integers(0, 3),
        shows=st.sampled_from(["PREEMPTED", "TERMINATED", "gone"]),
        lag=st.sampled_from([0.0, 90.0]),
    )
    def preempt(self, index: int, shows: str, lag: float) -> None:
        ours = [name for name, state in self.world.states().items() if state == "ACTIVE" and "theirs" not in name]
        nodes = {path.rsplit("/", 1)[1] for path in self.world.emulated.cloud.tpu.life.nodes}
        alive = sorted(set(ours) & nodes)
        if alive:
            self.world.preempt(alive[index % len(alive)], shows=shows, lag_s=lag)
            self.passes_after("preempt")

    @rule(kind=st.sampled_from(FAULTS), method=st.sampled_from(["POST", "DELETE", "GET"]), times=st.integers(1, 4))
    def fault(self, kind: str, method: str, times: int) -> None:
        self.world.emulated.plant(kind, method=method, path="queuedResources|nodes", times=times, seconds=30)
        self.passes_after("fault")

    @rule(error=st.sampled_from(["quota", "no-capacity", "rate-limit", "internal", "permission"]))
    def deny(self, error: str) -> None:
        self.world.emulated.plant("error-before", method="POST", path="queuedResources", error=error, times=2)
        self.passes_after("deny")

    @rule(worker=st.integers(0, 1))
    def kill_host(self, worker: int) -> None:
        names = sorted(row.name for row in self.world.rows() if row.phase is Phase.READY)
        if names:
            self.world.hosts.kill(names[0], worker)
            self.passes_after("kill host")

    @rule()
    def restart_ray(self) -> None:
        self.world.hosts.restart_head()
        self.passes_after("restart Ray")

    @rule()
    def restart_pass(self) -> None:
        self.world.restart()

    @rule(slices=st.integers(0, 2))
    def edit_spec(self, slices: int) -> None:
        self.slices = slices
        self.world.want(spec_of(slices))
        self.passes_after("edit spec")

    @rule()
    def lose_everything_on_the_head(self) -> None:
        """A new head, with a new epoch and an empty store."""
        self.world.epoch = Epoch(f"t6m9{epoch_order(self.world.epoch) % 30 + 10}")
        if epoch_order(self.world.epoch) > epoch_order(self.newest):
            self.newest = self.world.epoch
            self.world.lose_store()
            self.passes_after("lose head")
        else:
            self.world.epoch = self.newest

    newest = Epoch("t6m8gb")

    @invariant()
    def safety(self) -> None:
        if hasattr(self, "world"):
            self.check()

    def check(self) -> None:
        self.world.check_safety()
        assert self.world.states()["lab-v4-9-theirs"] in LIVING
        ours = [
            record.chips
            for record in self.world.emulated.cloud.tpu.life.queued.values()
            if IncarnationId.from_labels(dict(record.labels)) is not None
        ]
        assert sum(ours) <= GRANT_CHIPS

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.emulated.cloud.faults.remove(None)
        world.passes(25)  # holds run out, deadlines pass
        world.settle()
        wanted = set(range(self.slices))
        assert {row.slot for row in world.rows() if row.phase is Phase.READY} == wanted, world.phases()
        assert len(world.rows()) == len(wanted)
        world.check_safety()
        world.store.close()
        self.folder.cleanup()


@pytest.mark.slow
def test_random_histories_keep_what_is_safe_and_come_to_what_is_wanted() -> None:
    HAPPENED.clear()
    run_state_machine_as_test(
        Fleet,
        settings=settings(
            max_examples=14,
            stateful_step_count=12,
            deadline=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
    assert set(HAPPENED) == {"preempt", "fault", "deny", "kill host", "restart Ray", "edit spec", "lose head"}
    assert HAPPENED["preempt"] >= 5
