"""A whole fleet on virtual time: the emulated cloud behind the real client, modelled hosts, real store and passes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from tpuctl.base.chance import SeededChance
from tpuctl.base.ids import Epoch, IncarnationId, PoolName, QrName
from tpuctl.cloud.model import QrRequest, TpuApi
from tpuctl.cloud.tpu import RestTpu
from tpuctl.emulator.scenario import Latencies, Settings
from tpuctl.emulator.world import Transition
from tpuctl.fleet.pace import CREATES_PER_MINUTE
from tpuctl.fleet.pass_ import PassResult, PassTools, run_pass
from tpuctl.spec.cluster import ClusterSpec
from tpuctl.spec.document import digest, dump
from tpuctl.store.database import Store
from tpuctl.store.lock import PassLock
from tpuctl.store.records import Incarnation, Phase
from tpuctl.testing.builders import CLUSTER, EPOCH, ZONE, a_cluster_spec
from tpuctl.testing.clock import FakeClock
from tpuctl.testing.hosts_model import HostsModel
from tpuctl.testing.in_process import EmulatedCloud
from tpuctl.testing.killing import KilledError, Killer, KillingTpu

LIVING = frozenset({"CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"})


class FleetWorld:
    """`restart()` is a new process on the same disk: what only memory knew is lost."""

    def __init__(
        self, directory: Path, spec: ClusterSpec | None = None, settings: Settings | None = None, *, seed: int = 1
    ) -> None:
        self.directory = directory
        self.clock = FakeClock()
        self.emulated = EmulatedCloud(self.clock, settings or Settings(latencies=Latencies(accepted=0)), seed)
        self.hosts = HostsModel(self.emulated)
        self.epoch: Epoch = EPOCH
        self._chance = SeededChance(seed)
        self.tpu: TpuApi = RestTpu(
            EmulatedCloud.ENDPOINT, "test-project", self.clock, adapter=self.emulated.adapter(), timeout_s=20.0
        )
        self.creates_per_minute: int | None = CREATES_PER_MINUTE
        self.demand: dict[PoolName, int] = {}  # chips that queued runs would fill
        self.wrap_tpu: Callable[[TpuApi], TpuApi] = lambda tpu: tpu
        self.store = Store.open(directory / "store.sqlite3", clock=self.clock, create=True)
        self.want(spec or a_cluster_spec())

    def want(self, spec: ClusterSpec) -> None:
        with self.store.transaction() as tx:
            tx.clear_endless_holds(self.clock.now())
            tx.put_spec(dump(spec), digest(spec), self.clock.now())
            tx.put_meta("wanted", "up")

    def want_nothing(self) -> None:
        with self.store.transaction() as tx:
            tx.put_meta("wanted", "down")

    def restart(self) -> None:
        hook = self.store.on_commit
        self.store.close()
        self.store = Store.open(self.directory / "store.sqlite3", clock=self.clock, create=False)
        self.store.on_commit = hook

    def lose_store(self) -> None:
        """The disk is gone; the user sends the spec again."""
        with self.store.snapshot() as tx:
            stored = tx.spec()
        assert stored is not None
        self.store.close()
        self.store = Store.rebuild(self.directory / "store.sqlite3", clock=self.clock)
        with self.store.transaction() as tx:
            tx.put_spec(stored.document, stored.digest, stored.at)
            tx.put_meta("wanted", "up")

    def run_until_killed(self, killer: Killer) -> None:
        """A pass that dies where it says, and a new process that comes after it."""
        wrap, hook = self.wrap_tpu, self.store.on_commit
        self.wrap_tpu = lambda tpu: KillingTpu(tpu, killer)
        self.store.on_commit = killer.point
        try:
            self.run()
        except KilledError:
            self.restart()
        finally:
            self.wrap_tpu, self.store.on_commit = wrap, hook

    def run(self, *, deadline_s: float = 120.0, dry_run: bool = False) -> PassResult:
        tools = PassTools(
            self.store,
            PassLock(self.directory / "pass.lock"),
            self.wrap_tpu(self.tpu),
            self.clock,
            self._chance,
            lambda _row: {"tpuctl-config": "{}"},
            self.hosts.view,
            demand=lambda _runs, _spec: self.demand,
            parallel=1,
            creates_per_minute=self.creates_per_minute,
        )
        return run_pass(tools, cluster=CLUSTER, epoch=self.epoch, deadline_s=deadline_s, dry_run=dry_run)

    def passes(self, count: int, *, every_s: float = 60.0) -> list[PassResult]:
        """Each after a wait, so that what the former one asked for has come."""
        results = []
        for _ in range(count):
            self.emulated.pass_time(every_s)
            results.append(self.run())
        return results

    def settle(self, limit: int = 60, *, every_s: float = 60.0) -> int:
        """Passes until two in a row do nothing. Returns how many it took. AssertionError past the limit."""
        quiet = 0
        for number in range(1, limit + 1):
            (result,) = self.passes(1, every_s=every_s)
            quiet = quiet + 1 if result.is_quiet else 0
            if quiet == 2:
                return number
        raise AssertionError(f"not settled after {limit} passes: {result.summary}; {result.plan.lines}")

    def rows(self) -> tuple[Incarnation, ...]:
        """All that are not GONE."""
        with self.store.snapshot() as tx:
            return tx.existing_incarnations()

    def row(self, slot: int = 0) -> Incarnation:
        (row,) = [each for each in self.rows() if each.slot == slot and not each.phase.is_over]
        return row

    def phases(self) -> dict[str, Phase]:
        return {row.name: row.phase for row in self.rows()}

    def states(self) -> dict[str, str]:
        """What the cloud has, by name."""
        return {
            name.rsplit("/", 1)[1]: record.state.value for name, record in self.emulated.cloud.tpu.life.queued.items()
        }

    def effects(self, method: str) -> list[str]:
        """Names that calls of this method changed something about, in order."""
        return [
            call.resource.rsplit("/", 1)[1]
            for call in self.emulated.cloud.calls
            if call.effect and call.method == method and "queuedResources" in call.resource
        ]

    def preempt(self, name: str, *, shows: str = "PREEMPTED", lag_s: float = 0.0) -> None:
        life = self.emulated.cloud.tpu.life
        node = next(node for path, node in life.nodes.items() if path.endswith(f"/{name}"))
        life.lose(self.clock.now(), node, shows=shows, lag_s=lag_s)

    def check_safety(self) -> None:
        """Over the whole history: at most one living queued resource a slot at every instant, and no call but lists on
        what is not ours."""
        living: dict[tuple[str, int], set[str]] = defaultdict(set)
        for change in self.emulated.cloud.history:
            if "/queuedResources/" in change.resource:
                _follow(living, change)
        for call in self.emulated.cloud.calls:
            if call.effect:
                assert call.labels.get("tpuctl-cluster") == CLUSTER, f"{call.method} on what is not ours: {call}"

    def foreign(self, name: str, *, accelerator: str = "v4-8", labels: Mapping[str, str] | None = None) -> None:
        """Somebody else's queued resource."""
        request = QrRequest(QrName(name), ZONE, accelerator, "tpu-ubuntu2204-base", labels or {"owner": "another"}, {})
        self.tpu.create_queued_resource(request, f"foreign-{name}")
        self.emulated.cloud.calls.pop()  # the log is of our calls


def _follow(living: dict[tuple[str, int], set[str]], change: Transition) -> None:
    made = IncarnationId.from_labels(dict(change.labels))
    if made is None or made.cluster != CLUSTER:
        return
    slot = living[made.pool, made.slot]
    if change.state in LIVING:
        slot.add(change.resource)
    else:
        slot.discard(change.resource)
    assert len(slot) <= 1, f"two living queued resources of slot {made.slice_name} at {change.at.iso()}: {sorted(slot)}"
