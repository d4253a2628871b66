"""Ray's Jobs API over plain HTTP: how supervisors are started, looked up and stopped. No import of ray.

Source: Ray 2.60, /api/jobs/. Submitting asks for no resources, so that the job runs on the head: with
`entrypoint_num_cpus` a head of 0 CPUs would put it on a TPU host, the thing that gets preempted.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tpuctl.base.errors import RetryLaterError, StaleError, TpuctlError
from tpuctl.base.units import Instant
from tpuctl.base.web import Answer, NoAnswerError, call


class RayUnavailableError(RetryLaterError):
    """Ray gave no usable answer: whether the job exists is unknown."""


class RayRefusedError(TpuctlError):
    """Ray does not accept the call; the same call again would be refused again."""


@dataclass(frozen=True, slots=True)
class RayJob:
    submission_id: str
    status: str  # PENDING, RUNNING, STOPPED, SUCCEEDED, FAILED
    message: str = ""
    started_at: Instant | None = None
    ended_at: Instant | None = None
    exit_code: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return self.status in ("STOPPED", "SUCCEEDED", "FAILED")


class RayJobs:
    """Every method raises RayUnavailableError when Ray cannot be asked: nothing follows from that."""

    def __init__(self, dashboard_url: str, token: str, *, timeout_s: float = 10.0) -> None:
        self._root = f"{dashboard_url.rstrip('/')}/api/jobs/"
        self._token = token
        self._timeout_s = timeout_s

    def submit(
        self, submission_id: str, entrypoint: str, env: Mapping[str, str], metadata: Mapping[str, str]
    ) -> RayJob | None:
        """Start the job, or find that it was started before (A42): the same id runs once, whatever answers were lost.

        Returns the job that was there already, None when this call started it. Raises StaleError when another job
        (other metadata) has the id.
        """
        answer = self._call(
            "POST",
            "",
            {
                "submission_id": submission_id,
                "entrypoint": entrypoint,
                "runtime_env": {"env_vars": dict(env)},
                "metadata": dict(metadata),
            },
        )
        if answer.status == 200:
            return None
        # Ray says it with 500 and a traceback; the words are all there is to go by.
        if "already exists" not in answer.text():
            raise self._error(f"start of job {submission_id!r}", answer)
        found = self.get(submission_id)
        if found is None:
            raise RayUnavailableError(f"Ray says that job {submission_id!r} exists, and does not find it", 2.0)
        if dict(found.metadata) != dict(metadata):
            raise StaleError(f"job {submission_id!r} exists with other metadata: {dict(found.metadata)}")
        return found

    def get(self, submission_id: str) -> RayJob | None:
        """None: Ray answered and has no such job."""
        answer = self._call("GET", urllib.parse.quote(submission_id, safe=""))
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise self._error(f"look-up of job {submission_id!r}", answer)
        return _job(answer.document())

    def stop(self, submission_id: str) -> bool:
        """Ask for its end: SIGTERM, and SIGKILL after RAY_JOB_STOP_WAIT_TIME_S of the job's env (3 s if unset).

        False when there was nothing to stop.
        """
        answer = self._call("POST", f"{urllib.parse.quote(submission_id, safe='')}/stop")
        if answer.status == 404:
            return False
        if answer.status != 200:
            raise self._error(f"stop of job {submission_id!r}", answer)
        return bool(answer.document().get("stopped"))

    def list(self) -> tuple[RayJob, ...]:
        """All jobs with a submission id that this Ray head remembers."""
        answer = self._call("GET", "")
        if answer.status != 200:
            raise self._error("list of jobs", answer)
        return tuple(_job(row) for row in answer.document() if row.get("submission_id"))

    def _call(self, method: str, path: str, document: Any = None) -> Answer:
        try:
            return call(method, self._root + path, token=self._token, document=document, timeout_s=self._timeout_s)
        except NoAnswerError as error:
            raise RayUnavailableError(f"Ray's job service gives no answer: {error}", 2.0) from error

    def _error(self, what: str, answer: Answer) -> TpuctlError:
        text = f"{what}: Ray answered {answer.status}: {answer.text().strip()[-300:]}"
        # 401 and 403 pass once the token was read again; 500 also means "no agent yet", for seconds after a start.
        if answer.status >= 500 or answer.status in (401, 403):
            return RayUnavailableError(text, 2.0)
        return RayRefusedError(text)


def _job(document: Mapping[str, Any]) -> RayJob:
    return RayJob(
        submission_id=str(document.get("submission_id") or ""),
        status=str(document.get("status") or ""),
        message=str(document.get("message") or ""),
        started_at=_instant(document.get("start_time")),
        ended_at=_instant(document.get("end_time")),
        exit_code=document.get("driver_exit_code"),
        metadata=document.get("metadata") or {},
    )


def _instant(milliseconds: Any) -> Instant | None:
    return Instant(milliseconds / 1000) if isinstance(milliseconds, int | float) and milliseconds > 0 else None
