from __future__ import annotations

from typing import Any

import pytest

from tpuctl.agent.ray_jobs import RayJobs, RayRefusedError, RayUnavailableError
from tpuctl.base.errors import StaleError
from tpuctl.base.units import Instant
from tpuctl.testing.web import Asked, Reply, ScriptedServer

EXISTS = (
    "Traceback …\nValueError: Job with submission_id a-t6m8gb-1 already exists. Please use a different submission_id."
)


class FakeRay:
    """Ray's job service as far as we use it: bodies and statuses as Ray 2.60 sends them."""

    def __init__(self, lose_answers: int = 0) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.lose_answers = lose_answers

    def __call__(self, asked: Asked) -> Reply:
        parts = asked.path.removeprefix("/api/jobs/").split("/")
        if asked.method == "POST" and parts == [""]:
            return self._submit(asked.document())
        if parts == [""]:
            return Reply([*self.jobs.values(), {"type": "DRIVER", "submission_id": None, "status": "RUNNING"}])
        job = self.jobs.get(parts[0])
        if job is None:
            return Reply(f"Job {parts[0]} does not exist", status=404)
        if parts[1:] == ["stop"]:
            job["status"] = "STOPPED"
            return Reply({"stopped": True})
        return Reply(job)

    def _submit(self, document: dict[str, Any]) -> Reply:
        name = document["submission_id"]
        if name in self.jobs:
            return Reply(EXISTS, status=500)
        self.jobs[name] = {
            "submission_id": name,
            "status": "RUNNING",
            "message": "Job is currently running.",
            "metadata": document["metadata"],
            "start_time": 1_796_000_000_500,
            "end_time": None,
            "driver_exit_code": None,
            "entrypoint": document["entrypoint"],
            "runtime_env": document["runtime_env"],
        }
        if self.lose_answers:
            self.lose_answers -= 1
            return Reply("proxy error", status=502)
        return Reply({"job_id": name, "submission_id": name})


def submit(jobs: RayJobs, **metadata: str) -> Any:
    return jobs.submit("a-t6m8gb-1", "python -m x", {"RAY_JOB_STOP_WAIT_TIME_S": "60"}, metadata)


def test_a_submitted_job_asks_for_no_resources_and_can_be_looked_up() -> None:
    ray = FakeRay()
    with ScriptedServer(ray) as server:
        jobs = RayJobs(server.url, "secret")

        assert submit(jobs, run="a") is None
        job = jobs.get("a-t6m8gb-1")

        assert job is not None
        assert (job.status, job.is_over, job.started_at) == ("RUNNING", False, Instant(1_796_000_000.5))
        assert not [key for key in server.asked[0].document() if key.startswith("entrypoint_")]
        assert all(asked.headers["authorization"] == "Bearer secret" for asked in server.asked)


def test_a_submit_whose_answer_was_lost_runs_one_job_and_the_retry_succeeds() -> None:
    ray = FakeRay(lose_answers=1)
    with ScriptedServer(ray) as server:
        jobs = RayJobs(server.url, "secret")
        with pytest.raises(RayUnavailableError, match="502"):
            submit(jobs, run="a")

        found = submit(jobs, run="a")

        assert found is not None
        assert found.status == "RUNNING"
        assert len(ray.jobs) == 1


def test_an_id_that_another_job_has_is_not_taken_for_ours() -> None:
    with ScriptedServer(FakeRay()) as server:
        jobs = RayJobs(server.url, "secret")
        submit(jobs, run="a")

        with pytest.raises(StaleError, match="other metadata"):
            submit(jobs, run="b")


def test_an_unknown_job_is_absent_and_there_is_nothing_to_stop() -> None:
    with ScriptedServer(FakeRay()) as server:
        jobs = RayJobs(server.url, "secret")

        assert jobs.get("nope") is None
        assert jobs.stop("nope") is False


def test_a_stopped_job_is_over_and_drivers_without_an_id_are_not_listed() -> None:
    with ScriptedServer(FakeRay()) as server:
        jobs = RayJobs(server.url, "secret")
        submit(jobs)

        assert jobs.stop("a-t6m8gb-1") is True
        assert [(job.submission_id, job.is_over) for job in jobs.list()] == [("a-t6m8gb-1", True)]


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_an_answer_that_proves_nothing_is_unavailable_and_not_absent(status: int) -> None:
    with (
        ScriptedServer(lambda _: Reply("No available agent to submit job", status=status)) as server,
        pytest.raises(RayUnavailableError, match=str(status)),
    ):
        RayJobs(server.url, "secret").get("a")


def test_a_call_that_ray_refuses_is_not_worth_repeating() -> None:
    with ScriptedServer(lambda _: Reply("bad entrypoint", status=400)) as server, pytest.raises(RayRefusedError):
        submit(RayJobs(server.url, "secret"))


def test_a_dashboard_that_is_not_there_is_unavailable() -> None:
    with ScriptedServer(FakeRay()) as server:
        url = server.url

    with pytest.raises(RayUnavailableError):
        RayJobs(url, "secret").list()
