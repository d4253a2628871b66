"""Why something is as it is: a run, a slice or a queued resource, in lines for people. Pure.

For a run that waits, the first line is the planner's own reason, as it decided with it: nothing is guessed again here.
"""

from __future__ import annotations

from typing import Any

from tpuctl.agent.answers import MissingError
from tpuctl.agent.documents import Picture, empty_slot_row, newest_of_slots, reason_of, still_counts
from tpuctl.base.ids import SliceName
from tpuctl.base.units import Instant, show_duration
from tpuctl.cloud.model import Known, Unknown
from tpuctl.spec.pool import PoolSpec
from tpuctl.store.records import Incarnation, Run, RunState


def why_document(picture: Picture, name: str, now: Instant) -> dict[str, Any]:
    """Raises MissingError, which names what there is."""
    return {"subject": name, "lines": lines_about(picture, name, now)}


def lines_about(picture: Picture, name: str, now: Instant) -> list[str]:
    for run in picture.runs:
        if name in (run.name, run.id):
            return about_run(picture, run, now)
    row = next((row for row in picture.incarnations if row.name == name), None)
    if row is not None:
        return about_incarnation(picture, row, now)
    newest = newest_of_slots(picture.incarnations).get(SliceName(name))
    if newest is not None and still_counts(newest):
        return about_incarnation(picture, newest, now)
    pool = pool_of_slice(picture, name)
    if pool is not None:
        reason = str(empty_slot_row(pool, SliceName(name), newest, picture.reasons)["reason"])
        return [line for line in (reason, troubled_pass(picture)) if line]
    known = [run.name for run in picture.runs] + sorted({row.slice_name for row in picture.incarnations})
    raise MissingError(f"no run, slice or queued resource {name!r}; there are: {', '.join(known) or 'none'}")


def pool_of_slice(picture: Picture, name: str) -> PoolSpec | None:
    pool_name, _, slot = name.rpartition("-")
    pool = None if picture.spec is None else picture.spec.pool(pool_name)
    if pool is None or picture.spec is None or not slot.isdecimal():
        return None
    return pool if int(slot) < picture.spec.most_slices(pool) else None


def about_run(picture: Picture, run: Run, now: Instant) -> list[str]:
    lines = [f"{run.name} ({run.id}) is {run.state.value} since {show_duration(max(0.0, now.since(run.since)))}"]
    waits = "" if run.state.is_over else picture.waits.get(run.id, "")
    lines += [reason for reason in dict.fromkeys((waits, run.reason)) if reason]
    if run.not_before is not None and run.not_before > now and not run.state.is_over:
        lines.append(f"pauses {show_duration(run.not_before.since(now))} more before its next attempt")
    attempt = picture.attempts.get(run.id)
    if attempt is not None:
        on = ", ".join(name for name, _ in attempt.slices)
        verdict = "is open" if attempt.verdict is None else f"ended: {attempt.verdict.value}"
        stopping = f"; stopping: {attempt.stop_reason}" if attempt.stop_reason and attempt.verdict is None else ""
        lines.append(f"attempt {attempt.n} on {on} {verdict}{stopping}")
        if attempt.evidence:
            lines.append(attempt.evidence)
    if run.failures or run.preemptions or run.losses:
        lines.append(f"so far: {run.failures} failed, {run.preemptions} preempted, {run.losses} lost")
    if run.state is RunState.QUEUED and (told := troubled_pass(picture)):
        lines.append(told)
    if isinstance(picture.ray, Unknown) and not run.state.is_over:
        lines.append(f"Ray cannot be seen: {picture.ray.reason}")
    return lines


def troubled_pass(picture: Picture) -> str:
    """What the last pass could not do; "" when it did all. It knows why no slice is asked for, e.g. a paused pool."""
    last = picture.last_pass
    return f"the last pass: {last.summary}" if last is not None and last.exit_code else ""


def about_incarnation(picture: Picture, row: Incarnation, now: Instant) -> list[str]:
    lines = [f"{row.slice_name}: {row.name} is {row.phase.value} since {show_duration(max(0.0, now.since(row.since)))}"]
    if reason := reason_of(row):
        lines.append(reason)
    if row.cloud_state or row.node_state:
        lines.append(
            f"the cloud says: queued resource {row.cloud_state or 'unseen'}, node {row.node_state or 'unseen'}"
        )
    if row.unseen_since is not None:
        lines.append(
            f"not seen for {show_duration(max(0.0, now.since(row.unseen_since)))}: a list failed or was not whole"
        )
    lines.append(hosts_line(picture, row))
    holder = next((lease for lease in picture.leases if lease.incarnation == row.name), None)
    if holder is not None:
        run = next((run.name for run in picture.runs if run.id == holder.run_id), holder.run_id)
        lines.append(f"held by run {run}, attempt {holder.attempt}")
    lines += [
        f"no new requests of {hold.accelerator} in {hold.zone} until {hold.until.iso()}: {hold.kind}: {hold.text}"
        for hold in picture.holds
        if hold.zone == row.zone and hold.accelerator == row.accelerator and hold.until > now
    ]
    return lines


def hosts_line(picture: Picture, row: Incarnation) -> str:
    if isinstance(picture.ray, Unknown):
        return f"hosts: {row.joined}/{row.hosts} when last seen; Ray cannot be seen: {picture.ray.reason}"
    assert isinstance(picture.ray, Known)
    workers = picture.ray.value.workers_of(row.name)
    missing = sorted(set(range(row.hosts)) - workers)
    lacking = f"; missing: worker {', '.join(map(str, missing))}" if missing else ""
    return f"hosts: {len(workers)}/{row.hosts} in Ray{lacking}"
