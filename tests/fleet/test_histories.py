"""Random histories of faults: what must never happen never does; when faults stop, what is wanted comes to be."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import Phase as Stage
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tpuctl.base.errors import BusyError
from tpuctl.base.ids import Epoch, IncarnationId, QrName, Zone, epoch_order
from tpuctl.cloud.model import QrRequest, TpuApi
from tpuctl.emulator.scenario import CapacityRule, CapacityStep, Latencies, Settings
from tpuctl.emulator.wire import Request
from tpuctl.spec.cluster import ClusterSpec, GrantEntry, GrantSpec
from tpuctl.spec.pool import DeadlineSpec
from tpuctl.store.records import Phase
from tpuctl.testing.builders import ZONE, a_cluster_spec, a_pool
from tpuctl.testing.fleet_world import LIVING, FleetWorld
from tpuctl.testing.killing import Killer

OTHER = Zone("us-east1-d")
GRANT = {
    ZONE: 24,
    OTHER: 8,
}  # chips; a slice has 8, and all fit into the first zone: a lost one keeps its room till gone
HAPPENED: Counter[str] = Counter()
FAULTS = ("error-before", "lost-before", "lost-after", "error-after", "hang-after", "slow")
HISTORIES = int(os.environ.get("TPUCTL_TEST_HISTORIES", "0"))  # 0: as many as CI takes, the same ones every time


def spec_of(slices: int, others: int = 0) -> ClusterSpec:
    """Pool v4 in one zone; pool b in the other, or else in the first."""
    grant = tuple(GrantEntry(zone=zone, generation="v4", tier="spot", chips=chips) for zone, chips in GRANT.items())
    second = a_pool("b", zones=(OTHER, ZONE), slices=others, deadlines=DeadlineSpec(queue_s=300.0))
    return a_cluster_spec(a_pool(slices=slices), *([second] if others else []), grant=GrantSpec(entries=grant))


class SecondPass:
    """Another pass is begun while the first one is about to create or delete. It must find the lock taken."""

    def __init__(self, tpu: TpuApi, world: FleetWorld) -> None:
        self._tpu, self._world = tpu, world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tpu, name)

    def _overlap(self) -> None:
        with pytest.raises(BusyError):
            self._world.run()
        HAPPENED["overlap"] += 1

    def create_queued_resource(self, request: QrRequest, request_id: str) -> None:
        self._overlap()
        self._tpu.create_queued_resource(request, request_id)

    def delete_queued_resource(self, zone: Zone, name: QrName, request_id: str) -> None:
        self._overlap()
        self._tpu.delete_queued_resource(zone, name, request_id)


class Fleet(RuleBasedStateMachine):
    @initialize(
        slices=st.integers(1, 2),
        others=st.integers(0, 1),
        deleting=st.sampled_from([1.0, 90.0, 200.0]),
        drought=st.sampled_from([(0, 0), (0, 900), (600, 1500)]),
    )
    def begin(self, slices: int, others: int, deleting: float, drought: tuple[int, int]) -> None:
        """Seconds between which the second zone has no room for anything new."""
        self.folder = tempfile.TemporaryDirectory()
        latencies = Latencies(accepted=1, waiting=20, provisioning=40, deleting=deleting, suspending=30)
        steps = [CapacityStep(at=0, chips=64)] if drought[0] else []
        steps += [CapacityStep(at=drought[0], chips=0)] if drought[1] else []
        room = CapacityRule(zone=OTHER, type="v4", over_time=(*steps, CapacityStep(at=drought[1], chips=64)))
        world = Settings(zones={ZONE: ("v4",), OTHER: ("v4",)}, latencies=latencies, capacity=(room,))
        self.world = FleetWorld(Path(self.folder.name), spec_of(slices, others), world)
        self.world.foreign("lab-v4-9-theirs")
        self.slices, self.others = slices, others
        if others and drought[1]:
            HAPPENED["no room"] += 1
        self.world.passes(8)

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

    @rule(slices=st.integers(0, 2), others=st.integers(0, 1))
    def edit_spec(self, slices: int, others: int) -> None:
        self.slices, self.others = slices, others
        self.world.want(spec_of(slices, others))
        self.passes_after("edit spec")

    @rule(point=st.integers(1, 12), seconds=st.sampled_from([5.0, 60.0]))
    def kill_pass(self, point: int, seconds: float) -> None:
        """SIGKILL at one of its commits or calls."""
        killer = Killer(point)
        self.world.emulated.pass_time(seconds)
        self.world.run_until_killed(killer)
        if killer.killed:
            self.passes_after("kill pass")

    @rule()
    def overlap(self) -> None:
        self.world.wrap_tpu = lambda tpu: SecondPass(tpu, self.world)
        self.world.passes(2)
        self.world.wrap_tpu = lambda tpu: tpu

    @rule(kind=st.sampled_from(["nodes", "queuedResources"]), index=st.integers(0, 3))
    def delete_by_hand(self, kind: str, index: int) -> None:
        life = self.world.emulated.cloud.tpu.life
        there = life.nodes if kind == "nodes" else life.queued
        names = sorted(name for name in there if "theirs" not in name)
        if names:
            path = f"/v2/{names[index % len(names)]}"
            self.world.emulated.exchange(Request.from_url("DELETE", f"{path}?force=true", {}, b""), None)
            self.world.emulated.cloud.calls.pop()  # the log is of our calls
            self.passes_after("delete by hand")

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
        chips = dict.fromkeys(GRANT, 0)
        for name, record in self.world.emulated.cloud.tpu.life.queued.items():
            if IncarnationId.from_labels(dict(record.labels)) is not None:
                chips[Zone(name.split("/")[3])] += record.chips
        assert all(chips[zone] <= most for zone, most in GRANT.items()), chips

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.emulated.cloud.faults.remove(None)
        world.passes(25)  # holds run out, deadlines pass
        world.settle()
        wanted = {("v4", slot) for slot in range(self.slices)} | {("b", slot) for slot in range(self.others)}
        assert {(row.pool, row.slot) for row in world.rows() if row.phase is Phase.READY} == wanted, world.phases()
        assert len(world.rows()) == len(wanted) == len(world.states()) - 1  # theirs
        assert world.run(dry_run=True).plan.lines == ()
        world.check_safety()
        world.store.close()
        self.folder.cleanup()


@pytest.mark.timeout(1200)  # 200 histories take minutes on a slow machine
@pytest.mark.slow
def test_random_histories_keep_what_is_safe_and_come_to_what_is_wanted() -> None:
    HAPPENED.clear()
    run_state_machine_as_test(
        Fleet,
        settings=settings(
            max_examples=HISTORIES or 200,
            stateful_step_count=12,
            deadline=None,
            derandomize=not HISTORIES,
            phases=[Stage.generate] if "TPUCTL_TEST_NO_SHRINKING" in os.environ else tuple(Stage),
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
    print(dict(HAPPENED))
    assert set(HAPPENED) == {
        "preempt", "fault", "deny", "kill host", "restart Ray", "edit spec", "lose head", "no room", "kill pass",
        "overlap", "delete by hand",
    }  # fmt: skip
    assert min(HAPPENED.values()) >= 5, HAPPENED
