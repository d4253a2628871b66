"""What clients and hosts bring in: a spec, a run, a cancel, the end, a report. One transaction each, with its event."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from tpuctl.agent.answers import BadRequestError, ConflictError, MissingError
from tpuctl.agent.bundles import is_digest
from tpuctl.agent.documents import orphans_in, still_counts
from tpuctl.agent.folders import Folders
from tpuctl.agent.picture import find_run
from tpuctl.agent.places import Places
from tpuctl.agent.sign_of_life import note_user
from tpuctl.base.chance import Chance
from tpuctl.base.ids import ClusterName, QrName, RunName
from tpuctl.base.units import Instant
from tpuctl.fleet.pass_ import BEYOND_GRANT, REASONS
from tpuctl.runs.submit import mint_run_id
from tpuctl.spec.cluster import ClusterSpec
from tpuctl.spec.document import digest as digest_of
from tpuctl.spec.document import dump, read_cluster, read_run
from tpuctl.store.database import Store, Transaction
from tpuctl.store.records import Event, Phase, Run, RunState

_REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")


@dataclass(frozen=True, slots=True)
class Submission:
    spec: Any  # RunSpec as JSON, text or object
    bundle: str  # digest; "" = no working directory
    user: str
    request_id: str

    def check(self) -> None:
        if not _REQUEST_ID.fullmatch(self.request_id):
            raise BadRequestError("request_id must be 8 to 64 letters, digits, dashes or underscores")
        if self.bundle and not is_digest(self.bundle):
            raise BadRequestError(f"bundle {self.bundle[:80]!r} is not a SHA-256 in 64 lower-case hex digits")


def as_text(document: Any) -> str:
    return document if isinstance(document, str) else json.dumps(document)


def submit(store: Store, places: Places, folders: Folders, wish: Submission, now: Instant, chance: Chance) -> Run:
    """The new run, or the one that the same request id made before (A42).

    Raises UserError (spec), MissingError (bundle), ConflictError (a run of that name lives; going down).
    """
    spec = read_run(as_text(wish.spec))
    with store.transaction() as tx:
        if (known := tx.meta(f"request:{wish.request_id}")) is not None:
            run = tx.run(known)
            if run is not None:
                return run
        if is_leaving(tx):
            raise ConflictError("the cluster is going down: no run is taken. 'tpuctl up' makes it wanted again")
        stored = tx.spec()
        if stored is None:
            raise ConflictError("the cluster has no spec yet: run 'tpuctl up' first")
        living = next((run for run in tx.living_runs() if run.name == spec.name), None)
        if living is not None:
            raise ConflictError(
                f"a run named {spec.name!r} is {living.state.value} ({living.id}, by {living.user}): "
                f"choose another name, or 'tpuctl cancel {spec.name}' first"
            )
        if wish.bundle and not (places.bundles / wish.bundle).is_file():
            raise MissingError(f"bundle {wish.bundle[:12]}… is not here: send it first", kind="no-bundle")
        run = Run(
            id=mint_run_id(RunName(spec.name), now, chance),
            name=RunName(spec.name),
            spec_json=dump(spec),
            user=wish.user,
            priority=spec.priority,
            state=RunState.QUEUED,
            since=now,
            submitted_at=now,
            bundle=wish.bundle,
        )
        document = folders.document(run, spec, read_cluster(stored.document))  # refuses what could never run
        tx.put_run(run)
        tx.put_meta(f"request:{wish.request_id}", run.id)
        note_user(tx, now)
        tx.add_event(Event(now, "submitted", run.name, f"{run.id} by {run.user}"))
    folders.prepare(run, document)  # if this life ends here, the next one writes it with the first order
    return run


def cancel(store: Store, name: str, now: Instant, *, by_user: bool = False) -> RunState:
    """Its state afterwards. A run that holds nothing is CANCELLED at once; else the loop stops its attempt first."""
    with store.transaction() as tx:
        run = find_run(tx, name)
        if by_user:
            note_user(tx, now)
        if run.state.is_over or run.cancel_asked:
            return run.state
        attempt = tx.last_attempt(run.id)
        if attempt is None or attempt.ended_at is not None:
            tx.put_run(
                replace(run, state=RunState.CANCELLED, since=now, reason="cancelled", cancel_asked=True, ended_at=now)
            )
            tx.add_event(Event(now, "cancelled", run.name, "before it ran" if attempt is None else "between attempts"))
            return RunState.CANCELLED
        tx.put_run(replace(run, cancel_asked=True))
        tx.add_event(Event(now, "cancel-asked", run.name, f"while {run.state.value}"))
        return run.state


def put_spec(
    store: Store, document: Any, cluster: ClusterName, now: Instant, *, beyond_grant: bool = False
) -> dict[str, Any]:
    """Store the spec and mark the cluster wanted. Raises SpecError; ConflictError for another cluster's spec.

    A changed spec is the user's word to try anew what only such a change could mend. `beyond_grant` holds until the
    spec is sent without it.
    """
    spec = read_cluster(as_text(document))
    if spec.cluster != cluster:
        raise ConflictError(f"this head is of cluster {cluster!r}, the spec of {spec.cluster!r}")
    digest = digest_of(spec)
    with store.transaction() as tx:
        stored = tx.spec()
        changed = stored is None or stored.digest != digest or tx.meta("wanted") != "up" or is_leaving(tx)
        note_user(tx, now)
        tx.put_meta(BEYOND_GRANT, "yes" if beyond_grant else "no")
        if changed:
            tx.clear_endless_holds(now)
            tx.put_spec(dump(spec), digest, now)
            tx.put_meta("wanted", "up")
            tx.put_meta("down_options", "{}")
            tx.add_event(Event(now, "spec", cluster, f"digest {digest}: {slots_text(spec)}"))
    return {"digest": digest, "changed": changed}


def slots_text(spec: ClusterSpec) -> str:
    return (
        ", ".join(
            f"{pool.slices} x {' or '.join(pool.accelerators)} in {' or '.join(pool.zones)}" for pool in spec.pools
        )
        or "no pools"
    )


def has_spec(store: Store) -> bool:
    """Whether a spec was ever sent to these records."""
    with store.snapshot() as tx:
        return tx.spec() is not None


def begin_down(store: Store, now: Instant, *, wait_runs: bool, orphans: bool = False) -> None:
    """Nothing is wanted from now on; with `wait_runs` only once no run lives. `orphans` go too.

    Only the wish is stored: the loop cancels what lives, or waits for it, in every round until nothing does.
    """
    with store.transaction() as tx:
        note_user(tx, now)
        living = len(tx.living_runs())
        waiting = wait_runs and living > 0
        tx.put_meta("wanted", "up" if waiting else "down")
        tx.put_meta("down_options", json.dumps({"wait_runs": waiting, "orphans": orphans}))
        text = f"once {living} runs are over" if waiting else "nothing is wanted any more"
        text += ", orphans go too" if orphans else ""
        tx.add_event(Event(now, "down", tx.meta("cluster") or "", text))


def is_leaving(tx: Transaction) -> bool:
    """Going down, at once or when the runs are over: no new run is taken."""
    return tx.meta("wanted") == "down" or bool(json.loads(tx.meta("down_options") or "{}").get("wait_runs"))


def carry_on_down(store: Store, now: Instant) -> None:
    """One step of going down, for the loop's every round."""
    with store.snapshot() as tx:
        if not is_leaving(tx):
            return
    with store.transaction() as tx:
        if not is_leaving(tx):
            return
        living = tx.living_runs()
        if tx.meta("wanted") != "down" and not living:
            tx.put_meta("wanted", "down")
            options = json.loads(tx.meta("down_options") or "{}") | {"wait_runs": False}
            tx.put_meta("down_options", json.dumps(options))
            tx.add_event(Event(now, "down", tx.meta("cluster") or "", "all runs are over: nothing is wanted any more"))
        if tx.meta("wanted") != "down":
            return
    for run in living:
        if not run.cancel_asked:
            cancel(store, run.id, now)


def what_remains(store: Store) -> dict[str, Any]:
    """`orphans`: what the last pass saw and left alone."""
    with store.snapshot() as tx:
        rows = [row.name for row in tx.existing_incarnations() if still_counts(row)]
        orphans = orphans_in(json.loads(tx.meta(REASONS) or "{}"))
        return {"remaining": rows, "runs": [run.name for run in tx.living_runs()], "orphans": orphans}


@dataclass(frozen=True, slots=True)
class HostReport:
    incarnation: QrName
    worker: int
    stage: str
    detail: str


def take_report(store: Store, report: HostReport, now: Instant) -> bool:
    """Note what a host tells. True when the loop should look at once.

    A notice makes the incarnation DRAINING: its slice will be taken within seconds, and the gang is to save its work.
    Reports of incarnations that are over, or that we do not know, change nothing.
    """
    with store.transaction() as tx:
        row = tx.incarnation(report.incarnation)
        if row is None or row.phase.is_over:
            return False
        host = f"worker {report.worker}" + (f": {report.detail}" if report.detail else "")
        if report.stage == "notice":
            if row.phase is Phase.DRAINING:
                return False
            tx.put_incarnation(replace(row, phase=Phase.DRAINING, since=now, reason=f"notice of preemption, {host}"))
            tx.add_event(Event(now, "notice", row.name, host))
            return True
        if report.stage == "refused":
            tx.put_incarnation(replace(row, reason=f"refused to join, {host}"))
        tx.add_event(Event(now, f"host-{report.stage}", row.name, host))
    return report.stage in ("joined", "left")
