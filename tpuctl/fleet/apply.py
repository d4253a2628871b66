"""Doing what the plan says: deletes, then creates, a few at a time, each after its intent and its checks.

All records are written by the one thread that runs `apply`; workers only speak to the cloud. A pass that dies anywhere
leaves an intent for every call that may have taken effect.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from tpuctl.base.chance import Chance
from tpuctl.base.clock import Clock
from tpuctl.base.errors import TpuctlError
from tpuctl.base.ids import QrName
from tpuctl.cloud.errors import CloudError
from tpuctl.cloud.model import Known, TpuApi
from tpuctl.fleet.calls import Outcome, create, delete, request_for
from tpuctl.fleet.metadata import NodeMetadata
from tpuctl.fleet.model import Create, Delete, FleetView, Plan
from tpuctl.fleet.outcomes import record_delete_failure, record_outcome
from tpuctl.fleet.pace import CREATES_PER_MINUTE, Pace
from tpuctl.fleet.save import save_plan
from tpuctl.fleet.scene import FRESH_S
from tpuctl.spec.cluster import ClusterSpec
from tpuctl.store.database import Store
from tpuctl.store.lock import PassLock
from tpuctl.store.records import Event, Incarnation, Intent, Phase

T = TypeVar("T")

# At most so many creates in flight kept clear of internal errors of the service, as operators saw it.
IN_FLIGHT = 8
# A pass holds the lock: it waits no longer for the budget of creates; the next pass goes on.
MAX_WAIT_S = 10.0


class InterruptedPassError(TpuctlError):
    """The user stopped the pass. `names`: queued resources that may exist although nobody heard an answer."""

    exit_code = 130

    def __init__(self, names: tuple[QrName, ...]) -> None:
        may = f"may exist: {', '.join(names)}; the next pass looks" if names else "no call was under way"
        super().__init__(f"interrupted; {may}")
        self.names = names


@dataclass
class Applied:
    """What came of a plan. `left`: actions that were not begun, with the reason; the next pass has them again."""

    created: list[QrName] = field(default_factory=list)
    deleted: list[QrName] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Applier:
    tpu: TpuApi
    store: Store
    lock: PassLock
    clock: Clock
    chance: Chance
    metadata: NodeMetadata
    in_flight: int = IN_FLIGHT  # 1: on this thread, one after the other
    creates_per_minute: int | None = CREATES_PER_MINUTE  # None: no limit

    def apply(self, plan: Plan, view: FleetView, spec: ClusterSpec | None, end_s: float) -> Applied:
        """`end_s`: on the monotonic clock; nothing is begun after it. Raises InterruptedPassError."""
        work = _Work(self, view, end_s)
        work.dropped = save_plan(self.store, plan)
        work.applied.left += [f"{name}: its record changed meanwhile" for name in sorted(work.dropped)]
        flying = _Flying(self.in_flight)
        try:
            for deletion in plan.deletes:
                if work.may_delete(deletion):
                    doomed = deletion.incarnation
                    flying.start(partial(delete, self.tpu, doomed), partial(work.deleted, doomed))
            flying.land_all()
            if spec is not None:
                for creation in plan.creates:
                    flying.make_room()  # what is counted as leaving leaves
                    if (row := work.begin_create(creation)) is not None:
                        first = creation.incarnation.intent is Intent.PLANNED
                        flying.start(self._create_call(row, creation, spec), partial(work.created, row, first))
            flying.land_all()
        except KeyboardInterrupt as interrupt:
            raise InterruptedPassError(tuple(work.unanswered)) from interrupt
        finally:
            flying.close()
        return work.applied

    def _create_call(self, row: Incarnation, creation: Create, spec: ClusterSpec) -> Callable[[], Outcome]:
        request = request_for(row, creation.pool, spec.cluster, spec.network, self.metadata)
        return partial(create, self.tpu, request, row.request_id, creation.pool)


class _Work:
    """The checks before each effect, and the records after it."""

    def __init__(self, tools: Applier, view: FleetView, end_s: float) -> None:
        self._tools = tools
        self._pace = Pace(tools.store, tools.clock, tools.creates_per_minute)
        self._end_s = end_s
        self._seen_s = {
            zone.zone: zone.queued_resources.monotonic_s
            for zone in view.zones
            if isinstance(zone.queued_resources, Known)
        }
        self._stopped: dict[tuple[str, str], str] = {}  # (zone, accelerator) or ("*", "*") -> why no more creates
        self.dropped: frozenset[QrName] = frozenset()
        self.unanswered: list[QrName] = []
        self.applied = Applied()

    def may_delete(self, action: Delete) -> bool:
        row = action.incarnation
        obstacle = self._obstacle(row, 0.0)
        if not obstacle:
            with self._tools.store.snapshot() as tx:
                present = tx.incarnation(row.name)
                if present is None or present.delete_request_id != row.delete_request_id:
                    obstacle = "its record changed meanwhile"
                elif present.phase is not Phase.LOST and (holder := tx.holder_of(row.name)) is not None:
                    obstacle = f"run {holder} holds it"
        if obstacle:
            self.applied.left.append(f"delete {row.name}: {obstacle}")
        return not obstacle

    def deleted(self, row: Incarnation, error: CloudError | None) -> None:
        if error is None:
            self.applied.deleted.append(row.name)
            return
        self.applied.problems.append(f"delete {row.name}: {error}")
        record_delete_failure(self._tools.store, row.name, error)

    def begin_create(self, action: Create) -> Incarnation | None:
        """Commit that the call leaves, and return the row as it now is; None when it must not."""
        row = action.incarnation
        wait_s = self._pace.wait_s()
        obstacle = self._create_obstacle(action, wait_s)
        if not obstacle and wait_s:
            self._tools.clock.sleep(wait_s)
            obstacle = self._obstacle(row, 0.0)  # the wait may have made the observation old
        if obstacle:
            self._leave(action, obstacle)
            return None
        sent = replace(row, intent=Intent.SENT)
        with self._tools.store.transaction() as tx:
            if tx.incarnation(row.name) != row:
                obstacle = "its record changed meanwhile"
            elif tx.meta("wanted") == "down":
                obstacle = "the cluster is to go down since a moment ago"
            elif self._pace.wait_in(tx):
                obstacle = "another pass asks too"
            else:
                self._pace.count(tx)
                if row.intent is Intent.PLANNED:
                    tx.put_incarnation(sent)
                    tx.add_event(Event(self._tools.clock.now(), "requested", row.name, action.reason))
        if obstacle:
            self._leave(action, obstacle)
            return None
        self.unanswered.append(row.name)
        return sent

    def created(self, row: Incarnation, first: bool, outcome: Outcome) -> None:
        self.unanswered.remove(row.name)
        result = record_outcome(self._tools.store, self._tools.clock, self._tools.chance, row, outcome, first=first)
        if not result.problem:
            self.applied.created.append(row.name)
            return
        self.applied.problems.append(f"create {row.name}: {result.problem}")
        if result.stops is not None:
            self._stopped[result.stops] = result.problem

    def _leave(self, action: Create, obstacle: str) -> None:
        self.applied.left.append(f"create {action.incarnation.name}: {obstacle}")

    def _create_obstacle(self, action: Create, wait_s: float) -> str:
        row = action.incarnation
        missing = [name for name in action.after if name not in self.applied.deleted]
        if missing:
            return f"{', '.join(missing)} could not be deleted first"
        for key in ((row.zone, row.accelerator), (row.zone, "*"), ("*", "*")):
            if key in self._stopped:
                return f"as before it in this pass: {self._stopped[key]}"
        if wait_s > MAX_WAIT_S:
            return f"{self._tools.creates_per_minute} creates a minute is all that the project may ask for"
        return self._obstacle(row, wait_s)

    def _obstacle(self, row: Incarnation, delay_s: float) -> str:
        """Why nothing may be done about the row now."""
        now_s = self._tools.clock.monotonic() + delay_s
        if row.name in self.dropped:
            return "its record changed meanwhile"
        if not self._tools.lock.is_held:
            return "the pass lock is no longer ours"
        if now_s > self._end_s:
            return "the pass's deadline"
        seen_s = self._seen_s.get(row.zone)
        if seen_s is None or now_s - seen_s > FRESH_S:
            return f"{row.zone} was seen too long ago"
        return ""


class _Flying:
    """Calls under way. Results are taken on the thread that started them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pool = ThreadPoolExecutor(max_workers=limit, thread_name_prefix="apply") if limit > 1 else None
        self._landing: dict[Future[Any], Callable[[Any], None]] = {}

    def start(self, call: Callable[[], T], then: Callable[[T], None]) -> None:
        if self._pool is None:
            then(call())
            return
        self.make_room()
        self._landing[self._pool.submit(call)] = then

    def make_room(self) -> None:
        while self._pool is not None and len(self._landing) >= self._limit:
            self._land()

    def land_all(self) -> None:
        while self._landing:
            self._land()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _land(self) -> None:
        done, _ = wait(self._landing, return_when=FIRST_COMPLETED)
        for future in done:
            self._landing.pop(future)(future.result())
