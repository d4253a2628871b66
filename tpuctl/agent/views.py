"""From records, Ray's table and Ray's jobs to what the runs' planner takes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tpuctl.agent.documents import newest_of_slots, still_counts
from tpuctl.agent.ray_jobs import RayJob
from tpuctl.base.ids import Epoch, QrName, RunId, SliceName
from tpuctl.base.units import Instant
from tpuctl.cloud.model import Known
from tpuctl.fleet.model import RayView
from tpuctl.runs.model import CloudWord, SliceView, SupervisorState
from tpuctl.store.records import Attempt, Incarnation, Lease, Phase

Jobs = Mapping[str, RayJob] | None  # by submission id; None: Ray could not be asked


def job_id(run: RunId, epoch: str, activation: int) -> str:
    """`<run>-<epoch>-<k>`: the same for the same activation, whatever answers were lost (A42)."""
    return f"{run}-{epoch}-{activation}"


def is_whole(row: Incarnation, ray: RayView) -> bool:
    """Every expected host is alive in Ray with this incarnation, and none is draining. Unknown is not whole: nothing
    is started on a slice that cannot be seen."""
    if not isinstance(ray, Known):
        return False
    hosts = [host for host in ray.value.hosts if host.incarnation == row.name]
    alive = {host.worker for host in hosts}
    return row.hosts > 0 and alive >= set(range(row.hosts)) and not any(host.draining for host in hosts)


def slice_views(
    incarnations: Iterable[Incarnation], leases: Iterable[Lease], ray: RayView, kept_off: Mapping[QrName, Instant]
) -> tuple[SliceView, ...]:
    """The newest incarnation of every slot that has one which is not gone."""
    rows = [row for row in incarnations if still_counts(row)]
    holders = {lease.slice: lease.run_id for lease in leases}
    views = [slice_view(row, holders.get(name), ray, kept_off) for name, row in newest_of_slots(rows).items()]
    return tuple(sorted(views, key=lambda view: slot_order(view.slice)))


def slot_order(name: SliceName) -> tuple[str, int]:
    pool, _, slot = name.rpartition("-")
    return pool, int(slot)


def slice_view(row: Incarnation, holder: RunId | None, ray: RayView, kept_off: Mapping[QrName, Instant]) -> SliceView:
    # A deletion that is decided bars new leases, whatever the phase still says.
    phase = Phase.DELETING if row.delete_request_id and row.phase is Phase.READY else row.phase
    return SliceView(
        slice=row.slice_name,
        incarnation=row.name,
        pool=row.pool,
        zone=row.zone,
        accelerator=row.accelerator,
        hosts=row.hosts,
        # By the record and not by the table: an adopted stranger may be of a type that this tpuctl does not know.
        chips_per_host=row.chips // max(1, row.hosts),
        phase=phase,
        whole=is_whole(row, ray),
        lease=holder,
        suspect_until=kept_off.get(row.name),
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """What the loop saw of the world before a round."""

    ray: RayView
    jobs: Jobs
    words: tuple[CloudWord, ...]


def supervisor_state(
    attempt: Attempt | None, jobs: Jobs, epoch: Epoch, began: bool, missed_since: Instant | None
) -> SupervisorState:
    """What is known of the supervisor of this attempt's activation. One of an older epoch went with its head.

    `began`: it wrote its activation file. A job that Ray does not have and that never began is still to be submitted
    (`starting`); one that began and is not there any more was lost with its Ray head (`absent`).
    """
    if attempt is None or attempt.epoch != epoch:
        return SupervisorState("absent")
    if jobs is None:
        return SupervisorState("unknown")
    job = jobs.get(job_id(attempt.run_id, attempt.epoch, attempt.activation))
    if job is None:
        return SupervisorState("absent", missed_since) if began else SupervisorState("starting", attempt.ordered_at)
    if job.is_over:
        return SupervisorState("ended", job.ended_at)
    return SupervisorState("running" if began else "starting", job.started_at)
