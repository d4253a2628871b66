"""A stage for the agent's tests: real store and folders, a Ray, a cloud and supervisors that do as they are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tpuctl.agent.folders import Folders
from tpuctl.agent.intake import Submission, cancel, put_spec, submit
from tpuctl.agent.life import claim_store, settings_of
from tpuctl.agent.places import Identity, Places
from tpuctl.agent.ray_jobs import RayJob
from tpuctl.agent.round import Round, RoundResult, Supervise
from tpuctl.agent.views import Seen
from tpuctl.base.chance import SeededChance
from tpuctl.base.ids import ClusterName, Epoch, PoolName, QrName, RunId, SliceName, Zone
from tpuctl.base.units import Instant
from tpuctl.cloud.model import Known, Unknown
from tpuctl.fleet.model import RayHost, RayTable
from tpuctl.hosts.detection import settings_for
from tpuctl.runs.model import CloudWord, HostLoss, Outcome, RankExit
from tpuctl.runs.orders import Activation, Order, RunFolder
from tpuctl.spec.cluster import ClusterSpec, DetectionSpec, HeadSpec
from tpuctl.spec.document import dump
from tpuctl.spec.pool import PoolSpec, fixed
from tpuctl.spec.run import RunSpec
from tpuctl.store.database import Store
from tpuctl.store.records import Attempt, Incarnation, Intent, Phase, Run
from tpuctl.testing.clock import FakeClock

CLUSTER = ClusterName("lab")
EPOCH = Epoch("t6m8gb")
ZONE = Zone("us-central2-b")
HOLD_S = 8.0
ME = Identity(CLUSTER, EPOCH, "127.0.0.1")
DETECTION = settings_for(HOLD_S, 60.0)


def a_cluster_spec(slices: int = 2) -> ClusterSpec:
    pool = PoolSpec(
        name=PoolName("v4"), accelerators=("v4-16",), zones=(ZONE,), runtime="tpu-ubuntu2204-base", slices=fixed(slices)
    )
    return ClusterSpec(
        cluster=CLUSTER,
        project="p",
        backend="emulator",
        head=HeadSpec(zone=Zone("us-central1-a")),
        storage=(("us", "gs://lab-us"),),
        detection=DetectionSpec(hold_s=HOLD_S, rejoin_s=60.0),
        pools=(pool,),
    )


def a_ready_slice(slot: int, now: Instant, n: int = 1) -> Incarnation:
    return Incarnation(
        name=QrName(f"lab-v4-{slot}-{EPOCH}-{n}"),
        pool=PoolName("v4"),
        slot=slot,
        epoch=EPOCH,
        n=n,
        zone=ZONE,
        accelerator="v4-16",
        chips=8,
        hosts=2,
        request_id=f"request-{slot}-{n}",
        intent=Intent.SEEN,
        phase=Phase.READY,
        since=now,
        created_at=now.plus(slot * 0.001),
        cloud_state="ACTIVE",
        node_state="READY",
        joined=2,
        node_seen=True,
    )


@dataclass
class Supervisor:
    """A scripted one: takes orders as the real one does, and ends attempts when the test says how."""

    folder: RunFolder
    activation: int
    status: str = "RUNNING"
    running: dict[int, Order] = field(default_factory=dict)

    def act(self, now: Instant) -> None:
        if self.status != "RUNNING":
            return
        if self.folder.activation(self.activation) is None:
            self.folder.write_activation(self.activation, Activation(1, now))
        for number in self.folder.orders():
            order = self.folder.order(number)
            if order is None or order.activation != self.activation or self.folder.outcome(number) is not None:
                continue
            stop = self.folder.stop(number)
            if stop is not None:
                self.end(number, now, "stopped", detail=stop.reason)
            elif number not in self.running:
                self.running[number] = order
                self.folder.append(number, now, "started")
        if self.folder.is_ended(self.activation):
            self.status = "SUCCEEDED"

    def end(
        self,
        number: int,
        now: Instant,
        kind: str,
        exits: tuple[RankExit, ...] = (),
        losses: tuple[HostLoss, ...] = (),
        detail: str = "",
    ) -> None:
        self.running.pop(number, None)
        self.folder.write_outcome(Outcome(number, kind, exits, losses, now, None, detail))


class Stage:
    """One head's disk and what surrounds it. `agent()` begins a new life of the agent on it."""

    def __init__(self, directory: Path, slices: int = 2) -> None:
        self.clock = FakeClock()
        self.places = Places(directory)
        self.chance = SeededChance(7)
        self.supervisors: dict[str, Supervisor] = {}
        self.submitted: list[str] = []  # every submission that reached Ray, repeated ones too
        self.cloud: dict[QrName, str] = {}  # what it says; absent: healthy
        self.words: dict[QrName, CloudWord] = {}
        self.ray_up = True
        self.lost_hosts: set[tuple[QrName, int]] = set()
        self.store = Store.open(self.places.store, clock=self.clock, create=True)
        claim_store(self.store, ME)
        put_spec(self.store, dump(a_cluster_spec(slices)), CLUSTER, self.clock.now())
        with self.store.transaction() as tx:
            for slot in range(slices):
                tx.put_incarnation(a_ready_slice(slot, self.clock.now()))
        self.new_life()

    def new_life(self) -> None:
        self.store.close()
        self.store = Store.open(self.places.store, clock=self.clock, create=False)
        claim_store(self.store, ME)
        self.folders = Folders(self.places, ME, DETECTION)
        self.round = Round(self.folders, EPOCH, settings_of(DETECTION))

    # What users do.

    def submit(self, name: str, *, request_id: str = "", **fields: object) -> Run:
        spec = RunSpec.model_validate({"name": name, "command": "python train.py", **fields})
        wish = Submission(dump(spec), "", "ada", request_id or f"request-{name}")
        return submit(self.store, self.places, self.folders, wish, self.clock.now(), self.chance)

    def cancel(self, name: str) -> None:
        cancel(self.store, name, self.clock.now())

    # What the world does.

    def take(self, slot: int, phase: Phase = Phase.LOST) -> None:
        """The service takes a slice: the cloud says so, its hosts are gone."""
        row = self.slice_of(slot)
        self.cloud[row.name] = "taken"
        self.lost_hosts |= {(row.name, worker) for worker in range(row.hosts)}
        self.set_phase(slot, phase)

    def replace_slice(self, slot: int) -> None:
        row = self.slice_of(slot)
        with self.store.transaction() as tx:
            tx.put_incarnation(replace(row, phase=Phase.GONE, since=self.clock.now()))
            tx.put_incarnation(a_ready_slice(slot, self.clock.now(), row.n + 1))

    def set_phase(self, slot: int, phase: Phase) -> None:
        with self.store.transaction() as tx:
            tx.put_incarnation(replace(self.slice_of(slot, tx.incarnations()), phase=phase, since=self.clock.now()))

    def slice_of(self, slot: int, rows: tuple[Incarnation, ...] | None = None) -> Incarnation:
        if rows is None:
            with self.store.transaction() as tx:
                rows = tx.incarnations()
        return max((row for row in rows if row.slot == slot), key=lambda row: row.n)

    def restart_ray(self) -> None:
        """The head's Ray dies with all its jobs and comes back empty."""
        self.supervisors.clear()

    # The loop, one second a tick.

    def tick(self, seconds: float = 1.0) -> RoundResult:
        now = self.clock.now()
        for supervisor in self.supervisors.values():
            supervisor.act(now)
        result = self.round.carry_out(self.store, self.seen(), now)
        for supervise in result.supervise:
            self.start(supervise)
        for question in result.questions:
            state = self.cloud.get(question.incarnation, "healthy")
            self.words[question.incarnation] = CloudWord(question.incarnation, state, f"it is {state}", now)
        self.clock.advance(seconds)
        return result

    def ticks(self, count: int) -> RoundResult:
        return [self.tick() for _ in range(count)][-1]

    def until(self, name: str, *states: str, limit: int = 120) -> Run:
        for _ in range(limit):
            run = self.run(name)
            if run.state.value in states:
                return run
            self.tick()
        raise AssertionError(f"{name} is {self.run(name)} after {limit} ticks, not {states}")

    def start(self, supervise: Supervise) -> None:
        self.submitted.append(supervise.job)
        if supervise.job not in self.supervisors:
            self.supervisors[supervise.job] = Supervisor(self.folders.of(supervise.run_id), supervise.activation)

    def seen(self) -> Seen:
        if not self.ray_up:
            return Seen(Unknown("no answer"), None, tuple(self.words.values()))
        jobs: Mapping[str, RayJob] = {
            job: RayJob(job, each.status, ended_at=None) for job, each in self.supervisors.items()
        }
        return Seen(Known(self.table(), self.clock.now(), self.clock.monotonic()), jobs, tuple(self.words.values()))

    def living_rows(self) -> tuple[Incarnation, ...]:
        with self.store.snapshot() as tx:
            return tx.living_incarnations()

    def table(self, rows: tuple[Incarnation, ...] | None = None) -> RayTable:
        rows = self.living_rows() if rows is None else rows
        hosts = [
            RayHost(f"{row.name}-{worker}", row.slice_name, row.name, worker, "boot", "127.0.0.9", 4)
            for row in rows
            for worker in range(row.hosts)
            if (row.name, worker) not in self.lost_hosts
        ]
        return RayTable(tuple(hosts), None)

    # What tests look at.

    def run(self, name: str) -> Run:
        with self.store.transaction() as tx:
            run = tx.newest_run_named(name)
        assert run is not None
        return run

    def attempts(self, name: str) -> tuple[Attempt, ...]:
        run = self.run(name)
        with self.store.transaction() as tx:
            return tx.attempts(run.id)

    def supervisor(self, name: str) -> Supervisor:
        """The one that runs an attempt of this run."""
        run = self.run(name)
        living = [each for job, each in self.supervisors.items() if job.startswith(f"{run.id}-") and each.running]
        assert len(living) == 1, f"{len(living)} supervisors run {name}"
        return living[0]

    def orders(self) -> list[tuple[RunId, Order]]:
        found = []
        for path in sorted(self.places.runs.glob("*")):
            folder = RunFolder(path)
            found += [(RunId(path.name), order) for number in folder.orders() if (order := folder.order(number))]
        return found

    def events(self) -> list[str]:
        with self.store.transaction() as tx:
            return [event.kind for _, event in tx.events_since(0, 10_000)]

    def leased(self) -> dict[SliceName, RunId]:
        with self.store.transaction() as tx:
            return {lease.slice: lease.run_id for lease in tx.leases()}


def exited(order: Order, code: int, now: Instant) -> tuple[RankExit, ...]:
    """Every rank of the gang ended with this code."""
    hosts = [(each, worker) for each in order.slices for worker in range(each.hosts)]
    return tuple(RankExit(rank, each.slice, worker, code, None, now, True) for rank, (each, worker) in enumerate(hosts))


def unreachable(order: Order, now: Instant) -> tuple[HostLoss, ...]:
    first = order.slices[0]
    return (HostLoss(0, first.slice, first.incarnation, 0, "unreachable", now),)
