"""Supervisors as Ray jobs on the head: how one is started."""

from __future__ import annotations

import shlex
import sys

from tpuctl.agent.places import Places
from tpuctl.agent.ray_jobs import RayJob, RayJobs
from tpuctl.agent.round import Supervise

# A supervisor that is stopped ends its gang with grace first; Ray's own 3 s would cut that short.
STOP_WAIT_S = 60


class Supervisors:
    """A JobService (agent/dispatch.py) on one Ray head."""

    def __init__(self, jobs: RayJobs, places: Places) -> None:
        self._jobs = jobs
        self._places = places

    def list(self) -> tuple[RayJob, ...]:
        return self._jobs.list()

    def start(self, supervise: Supervise) -> None:
        folder = self._places.runs / supervise.run_id
        # Ray hands the entrypoint to a shell.
        entrypoint = shlex.join(
            (sys.executable, "-P", "-m", "tpuctl.runs.supervisor", str(folder), str(supervise.activation))
        )
        metadata = {"tpuctl-run": supervise.run_id, "tpuctl-activation": str(supervise.activation)}
        self._jobs.submit(supervise.job, entrypoint, {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_S)}, metadata)
