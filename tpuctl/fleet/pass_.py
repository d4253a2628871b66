"""One pass: lock, read, observe, plan, apply, save. The same planner serves the dry run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tpuctl.base.chance import Chance
from tpuctl.base.clock import Clock
from tpuctl.base.errors import TpuctlError
from tpuctl.base.ids import ClusterName, Epoch, Zone, epoch_order
from tpuctl.base.units import Instant
from tpuctl.cloud.model import Known, Listing, QueuedResource, TpuApi, Unknown
from tpuctl.fleet.apply import Applied, Applier
from tpuctl.fleet.metadata import NodeMetadata
from tpuctl.fleet.model import FleetRecords, FleetView, Plan, RayView
from tpuctl.fleet.observe import observe_fleet
from tpuctl.fleet.pace import CREATES_PER_MINUTE
from tpuctl.fleet.plan import plan_fleet
from tpuctl.fleet.steps import Clocks, keep_clocks, move_times, step_since
from tpuctl.fleet.wants import Demand
from tpuctl.spec.cluster import ClusterSpec
from tpuctl.spec.document import read_cluster
from tpuctl.store.database import Store, Transaction
from tpuctl.store.lock import PassLock
from tpuctl.store.records import Incarnation, Lease, PassRecord, Phase, Run

OK, PARTIAL = 0, 3
# From living runs to the chips that queued ones would fill, by pool. The runs room knows; the pass is told.
DemandOf = Callable[[tuple[Run, ...], ClusterSpec], Demand]


def nothing_wanted(runs: tuple[Run, ...], spec: ClusterSpec) -> Demand:
    del runs, spec
    return {}


# Of each slot so many GONE incarnations are read: enough to see that several in a row never came up.
PAST = 8
# A submission that was not answered is repeated within minutes, by its own client.
REQUESTS_KEPT_S = 7 * 86400.0
# Keys of the store's meta table.
SURVEYED, REASONS, BEYOND_GRANT, SEEN_USER = "surveyed", "plan_reasons", "beyond_grant", "seen_user_at"


class WrongHeadError(TpuctlError):
    """The store belongs to a newer head, or to another cluster: this process must not act on it."""


@dataclass(frozen=True)
class PassTools:
    store: Store
    lock: PassLock
    tpu: TpuApi
    clock: Clock
    chance: Chance
    metadata: NodeMetadata
    read_ray: Callable[[], RayView]
    demand: DemandOf = nothing_wanted
    parallel: int = 8  # calls in flight; 1: all on one thread
    creates_per_minute: int | None = CREATES_PER_MINUTE  # of the whole project, across passes; None: no limit


@dataclass(frozen=True, slots=True)
class PassResult:
    exit_code: int
    summary: str  # one line
    plan: Plan
    applied: Applied | None  # None: a dry run

    @property
    def is_quiet(self) -> bool:
        """Nothing was done and nothing was learnt."""
        return not (self.plan.creates or self.plan.deletes or self.plan.changes)


@dataclass(frozen=True)
class OnePass:
    """A pass with all that it needs, ready to run."""

    tools: PassTools
    cluster: ClusterName
    epoch: Epoch

    def run(self, *, deadline_s: float, dry_run: bool) -> PassResult:
        return run_pass(self.tools, cluster=self.cluster, epoch=self.epoch, deadline_s=deadline_s, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class _Known:
    spec: ClusterSpec | None
    wanted: bool
    records: FleetRecords
    leases: tuple[Lease, ...]
    runs: tuple[Run, ...] = ()
    beyond_grant: bool = False
    seen_user: Instant | None = None
    orphans: bool = False

    def zones(self) -> tuple[Zone, ...]:
        """Where something of ours is, may be, or shall be."""
        zones = [row.zone for row in self.records.incarnations if row.phase is not Phase.GONE]
        if self.spec is not None:
            zones += [zone for pool in self.spec.pools for zone in pool.zones]
            zones += [entry.zone for entry in self.spec.grant.entries] if self.spec.grant else []
        return tuple(dict.fromkeys(zones))


def run_pass(
    tools: PassTools, *, cluster: ClusterName, epoch: Epoch, deadline_s: float = 120.0, dry_run: bool = False
) -> PassResult:
    """Raises BusyError when another pass holds the lock (a dry run needs none), WrongHeadError, StoreError kinds,
    SpecError for a spec in the store that this version cannot read, InterruptedPassError."""
    if dry_run:
        with tools.store.snapshot() as tx:
            _check_head(tx, cluster, epoch)
            known = _read(tx, epoch)
        _, plan = _decide(tools, known, cluster, epoch)
        return PassResult(_exit(plan, None), _summary(plan, None, known.records.incarnations), plan, None)
    with tools.lock:
        began = Clocks.read(tools.clock)
        known = _begin(tools.store, cluster, epoch, began)
        view, plan = _decide(tools, known, cluster, epoch)
        applier = Applier(
            tools.tpu,
            tools.store,
            tools.lock,
            tools.clock,
            tools.chance,
            tools.metadata,
            in_flight=tools.parallel,
            creates_per_minute=tools.creates_per_minute,
        )
        applied = applier.apply(plan, view, known.spec, began.monotonic_s + deadline_s)
        with tools.store.transaction() as tx:
            rows = tx.existing_incarnations()
            result = PassResult(_exit(plan, applied), _summary(plan, applied, rows), plan, applied)
            _keep(tx, known, view, plan)
            tx.forget_requests(tools.clock.now().plus(-REQUESTS_KEPT_S))
            keep_clocks(tx, began)
            tx.add_pass(PassRecord(began.wall, tools.clock.now(), result.exit_code, result.summary))
        return result


def _decide(tools: PassTools, known: _Known, cluster: ClusterName, epoch: Epoch) -> tuple[FleetView, Plan]:
    view = observe_fleet(tools.tpu, known.zones(), tools.read_ray, tools.clock, parallel=tools.parallel)
    plan = plan_fleet(
        known.spec,
        known.wanted,
        known.records,
        view,
        known.leases,
        tools.clock.now(),
        tools.clock.monotonic(),
        epoch,
        cluster=cluster,
        salt=tools.chance.request_id(),
        demand={} if known.spec is None else tools.demand(known.runs, known.spec),
        beyond_grant=known.beyond_grant,
        seen_user=known.seen_user,
        orphans=known.orphans,
    )
    return view, plan


def _check_head(tx: Transaction, cluster: ClusterName, epoch: Epoch) -> None:
    known_cluster, known_epoch = tx.meta("cluster"), tx.meta("epoch")
    if known_cluster is not None and known_cluster != cluster:
        raise WrongHeadError(f"the store belongs to cluster {known_cluster}, not to {cluster}")
    if known_epoch is not None and epoch_order(Epoch(known_epoch)) > epoch_order(epoch):
        raise WrongHeadError(f"the store belongs to epoch {known_epoch}, which is newer than {epoch}: nothing was done")


def _begin(store: Store, cluster: ClusterName, epoch: Epoch, began: Clocks) -> _Known:
    """Writes only where this head is new to the store or the wall clock stepped: a pass at rest commits once, at its
    end."""
    with store.snapshot() as tx:
        _check_head(tx, cluster, epoch)
        step_s = step_since(tx, began)
        if _is_in_office(tx, cluster, epoch) and not step_s:
            return _read(tx, epoch)
    with store.transaction() as tx:
        _check_head(tx, cluster, epoch)
        _take_office(tx, cluster, epoch)
        if step_s:
            move_times(tx, step_s, began)
        return _read(tx, epoch)


def _is_in_office(tx: Transaction, cluster: ClusterName, epoch: Epoch) -> bool:
    return (tx.meta("cluster"), tx.meta("epoch")) == (cluster, epoch)


def _take_office(tx: Transaction, cluster: ClusterName, epoch: Epoch) -> None:
    if tx.meta("epoch") != epoch:
        tx.put_meta(SURVEYED, "[]")  # a former head may have asked for what these records do not know
    for key, value in (("cluster", cluster), ("epoch", epoch)):
        if tx.meta(key) != value:
            tx.put_meta(key, value)


def _read(tx: Transaction, epoch: Epoch) -> _Known:
    stored = tx.spec()
    spec = None if stored is None else read_cluster(stored.document)
    surveyed = frozenset(Zone(zone) for zone in json.loads(tx.meta(SURVEYED) or "[]"))
    records = FleetRecords(tx.recent_incarnations(PAST), tx.last_numbers(epoch), tx.zone_holds(), surveyed)
    seen_user = tx.meta(SEEN_USER)
    return _Known(
        spec,
        tx.meta("wanted") != "down",
        records,
        tx.leases(),
        tx.living_runs(),
        tx.meta(BEYOND_GRANT) == "yes",
        None if seen_user is None else Instant(float(seen_user)),
        bool(json.loads(tx.meta("down_options") or "{}").get("orphans")),
    )


def _keep(tx: Transaction, known: _Known, view: FleetView, plan: Plan) -> None:
    """What the next pass and `tpuctl why` need of this one: the zones taken in, and why what was not done was not."""
    whole = {zone.zone for zone in view.zones if is_whole(zone.queued_resources)}
    surveyed = known.records.surveyed | whole
    reasons: dict[str, str] = {}
    for hold in plan.holds:
        reasons.setdefault(hold.subject, hold.reason)
    for key, value in ((SURVEYED, json.dumps(sorted(surveyed))), (REASONS, json.dumps(reasons, sort_keys=True))):
        if tx.meta(key) != value:
            tx.put_meta(key, value)


def is_whole(seen: Known[Listing[QueuedResource]] | Unknown) -> bool:
    return isinstance(seen, Known) and seen.value.complete


def _exit(plan: Plan, applied: Applied | None) -> int:
    if any(hold.is_problem for hold in plan.holds):
        return PARTIAL
    return PARTIAL if applied is not None and (applied.problems or applied.left) else OK


def _summary(plan: Plan, applied: Applied | None, rows: tuple[Incarnation, ...]) -> str:
    """`2 slices: 1 READY, 1 WAITING; asked for 1, deleted 1; 1 problem: …`"""
    existing = [row for row in rows if row.phase is not Phase.GONE]
    phases = Counter(row.phase.value for row in existing)
    parts = [f"{len(existing)} slice{'s' * (len(existing) != 1)}"]
    if phases:
        parts[0] += ": " + ", ".join(f"{phases[phase.value]} {phase.value}" for phase in Phase if phases[phase.value])
    if applied is None:
        parts.append(f"would ask for {len(plan.creates)}, delete {len(plan.deletes)}")
        problems, left = [], []
    else:
        if applied.created or applied.deleted:
            parts.append(f"asked for {len(applied.created)}, deleted {len(applied.deleted)}")
        problems, left = applied.problems, applied.left
    if left:
        parts.append(f"{len(left)} left for the next pass ({left[0]})")
    troubles = [str(hold) for hold in plan.holds if hold.is_problem] + problems
    if troubles:
        parts.append(f"{len(troubles)} problem{'s' * (len(troubles) != 1)}: {troubles[0]}")
    return "; ".join(part.replace("\n", " ") for part in parts)
