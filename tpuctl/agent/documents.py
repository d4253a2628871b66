"""The documents of the API, made of records and of what was seen last. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tpuctl.base.ids import RunId, SliceName, slice_name
from tpuctl.base.units import Instant
from tpuctl.cloud.model import Known
from tpuctl.fleet.adopt import ORPHAN
from tpuctl.fleet.model import RayView
from tpuctl.spec.accelerators import all_accelerators, canonical_name
from tpuctl.spec.cluster import ClusterSpec
from tpuctl.spec.pool import PoolSpec
from tpuctl.store.records import (
    Attempt,
    Event,
    Incarnation,
    Intent,
    Lease,
    PassRecord,
    Phase,
    Run,
    ZoneHold,
)

STATUS_VERSION = 1
# A slot of the spec for which nothing is asked at present. Not a phase: there is no incarnation that could have one.
NOT_ASKED = "NONE"


@dataclass(frozen=True, slots=True)
class Picture:
    """All that the documents show, read at one moment."""

    cluster: str
    epoch: str
    address: str
    spec: ClusterSpec | None
    wanted: bool
    incarnations: tuple[Incarnation, ...]  # without GONE, except the newest of a slot
    holds: tuple[ZoneHold, ...]
    leases: tuple[Lease, ...]
    runs: tuple[Run, ...]
    attempts: Mapping[RunId, Attempt]  # the last one of each run
    last_pass: PassRecord | None
    ray: RayView
    waits: Mapping[RunId, str]
    reasons: Mapping[str, str] = field(default_factory=dict)  # what the last pass held back, and why


def iso(at: Instant | None) -> str | None:
    return None if at is None else at.iso()


def status_document(picture: Picture, now: Instant) -> dict[str, Any]:
    """`tpuctl status --json`, version 1."""
    last = picture.last_pass
    return {
        "version": STATUS_VERSION,
        "at": now.iso(),
        "cluster": picture.cluster,
        "epoch": picture.epoch,
        "wanted": picture.wanted,
        "head": {
            "state": "RUNNING",
            "address": picture.address,
            "ray": "up" if isinstance(picture.ray, Known) else "unknown",
        },
        "last_pass": None
        if last is None
        else {"at": last.ended_at.iso(), "exit": last.exit_code, "summary": last.summary},
        "grant": grant_rows(picture),
        "slices": slice_rows(picture),
        "orphans": orphans_in(picture.reasons),
        "runs": [run_row(run, picture.attempts.get(run.id), picture.waits) for run in picture.runs],
    }


def orphans_in(reasons: Mapping[str, str]) -> list[str]:
    """Queued resources that carry our labels and that neither the records nor the spec know, as the last pass saw."""
    return sorted(subject for subject, reason in reasons.items() if reason.startswith(ORPHAN))


def still_counts(row: Incarnation) -> bool:
    """It exists in the cloud, or may: it holds grant and quota until it is gone."""
    return row.phase is not Phase.GONE and row.intent not in (Intent.REFUSED, Intent.ABANDONED)


def grant_rows(picture: Picture) -> list[dict[str, Any]]:
    if picture.spec is None or picture.spec.grant is None:
        return []
    used: dict[tuple[str, str, str], int] = {}
    for row in filter(still_counts, picture.incarnations):
        known = all_accelerators().get(canonical_name(row.accelerator))
        if known is None:
            continue  # an adopted stranger of a type that this tpuctl does not know: in no grant entry
        key = (row.zone, known.generation, row.tier)
        used[key] = used.get(key, 0) + row.chips
    grant = picture.spec.grant
    return [
        {
            "zone": entry.zone,
            "generation": entry.generation,
            "tier": entry.tier,
            "chips": entry.chips,
            "used": used.get((entry.zone, entry.generation, entry.tier), 0),
            "until": iso(grant.until),
        }
        for entry in grant.entries
    ]


def slice_rows(picture: Picture) -> list[dict[str, Any]]:
    """One row a slot of the spec, and one for each other incarnation that is not gone yet."""
    rows = [slice_row(row, picture) for row in picture.incarnations if still_counts(row)]
    shown = {row["name"] for row in rows}
    if picture.spec is not None and picture.wanted:
        rows += _empty_rows(picture, picture.spec, rows, shown)
    return sorted(rows, key=lambda row: (row["pool"], _slot_of(row["name"]), row["queued_resource"]))


def _empty_rows(
    picture: Picture, spec: ClusterSpec, rows: list[dict[str, Any]], shown: set[str]
) -> list[dict[str, Any]]:
    newest = newest_of_slots(picture.incarnations)
    found: list[dict[str, Any]] = []
    for pool in spec.pools:
        # Of a pool whose number changes, only what its minimum lacks is missed.
        filled = len({row["name"] for row in rows if row["pool"] == pool.name})
        slots = [slice_name(pool.name, slot) for slot in range(spec.most_slices(pool))]
        empty = [name for name in slots if name not in shown][: max(0, pool.slices.min - filled)]
        found += [empty_slot_row(pool, name, newest.get(name), picture.reasons) for name in empty]
    return found


def _slot_of(name: str) -> int:
    return int(name.rpartition("-")[2])


def newest_of_slots(rows: Iterable[Incarnation]) -> dict[SliceName, Incarnation]:
    newest: dict[SliceName, Incarnation] = {}
    for row in rows:
        held = newest.get(row.slice_name)
        if held is None or (row.created_at, row.n) > (held.created_at, held.n):
            newest[row.slice_name] = row
    return newest


def slice_row(row: Incarnation, picture: Picture) -> dict[str, Any]:
    holder = next((lease.run_id for lease in picture.leases if lease.incarnation == row.name), None)
    run = next((run.name for run in picture.runs if run.id == holder), None)
    ray = picture.ray
    joined = len(ray.value.workers_of(row.name)) if isinstance(ray, Known) else row.joined
    return {
        "name": row.slice_name,
        "pool": row.pool,
        "zone": row.zone,
        "accelerator": row.accelerator,
        "queued_resource": row.name,
        "phase": row.phase.value,
        "cloud_state": row.cloud_state,
        "node_state": row.node_state,
        "hosts": {"expected": row.hosts, "joined": joined},
        "run": run,
        "since": row.since.iso(),
        "unseen_since": iso(row.unseen_since),
        "reason": reason_of(row),
    }


def reason_of(row: Incarnation) -> str:
    parts = [row.reason or row.error_text]
    if row.delete_reason and row.delete_reason != row.reason:
        parts.append(f"being deleted: {row.delete_reason}")
    return "; ".join(part for part in parts if part)


def empty_slot_row(
    pool: PoolSpec, name: SliceName, former: Incarnation | None, reasons: Mapping[str, str]
) -> dict[str, Any]:
    """`reasons`: what the last pass said of what it held back, by subject."""
    place = pool.places[0]
    if name in reasons:
        reason = reasons[name]
    elif former is not None:
        reason = f"not asked for now; {former.name}: {reason_of(former) or former.phase.value}"
    else:
        reason = "not asked for yet: the next pass does"
    return {
        "name": name,
        "pool": pool.name,
        "zone": place.zone,
        "accelerator": place.accelerator.name,
        "queued_resource": "",
        "phase": NOT_ASKED,
        "cloud_state": "",
        "node_state": "",
        "hosts": {"expected": place.accelerator.hosts, "joined": 0},
        "run": None,
        "since": iso(former.since) if former is not None else None,
        "unseen_since": None,
        "reason": reason,
    }


def run_row(run: Run, attempt: Attempt | None, waits: Mapping[RunId, str]) -> dict[str, Any]:
    on = attempt.slices if attempt is not None and attempt.ended_at is None else ()
    return {
        "name": run.name,
        "id": run.id,
        "state": run.state.value,
        "attempt": run.attempts,
        "failures": run.failures,
        "preemptions": run.preemptions,
        "losses": run.losses,
        "slices": [name for name, _ in on],
        "since": run.since.iso(),
        "reason": run.reason if run.state.is_over else waits.get(run.id) or run.reason,
        "priority": run.priority,
        "user": run.user,
        "submitted_at": run.submitted_at.iso(),
        "ended_at": iso(run.ended_at),
        "exit_code": run.exit_code,
    }


def attempt_row(attempt: Attempt, ranks: Iterable[int]) -> dict[str, Any]:
    """`ranks`: those whose log is there."""
    return {
        "n": attempt.n,
        "epoch": attempt.epoch,
        "slices": [{"slice": name, "queued_resource": qr} for name, qr in attempt.slices],
        "ordered_at": attempt.ordered_at.iso(),
        "started_at": iso(attempt.started_at),
        "stopping_at": iso(attempt.stopping_at),
        "stop_reason": attempt.stop_reason,
        "ended_at": iso(attempt.ended_at),
        "verdict": None if attempt.verdict is None else attempt.verdict.value,
        "evidence": attempt.evidence,
        "ranks": list(ranks),
    }


def event_row(number: int, event: Event) -> dict[str, Any]:
    return {"id": number, "at": event.at.iso(), "kind": event.kind, "subject": event.subject, "text": event.text}
