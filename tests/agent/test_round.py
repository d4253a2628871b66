"""Rounds of dispatch on a real store and real folders, with scripted supervisors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.stage import DETECTION, ME, Stage, a_ready_slice, exited, unreachable
from tpuctl.agent.documents import status_document
from tpuctl.agent.home import Scene
from tpuctl.agent.picture import read_picture
from tpuctl.base.ids import SliceName
from tpuctl.runs.conduct import Limits
from tpuctl.store.records import Phase, RunState, Verdict


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def succeed(stage: Stage, name: str) -> None:
    supervisor = stage.supervisor(name)
    (number, order), *_ = supervisor.running.items()
    supervisor.end(number, stage.clock.now(), "done", exited(order, 0, stage.clock.now()))


def test_run_goes_from_the_queue_to_success(stage: Stage) -> None:
    stage.submit("digits")
    stage.until("digits", "RUNNING")
    assert stage.leased() == {"v4-0": stage.run("digits").id}

    succeed(stage, "digits")
    run = stage.until("digits", "SUCCEEDED")

    assert (run.exit_code, run.attempts, run.failures) == (0, 1, 0)
    assert stage.leased() == {}
    stage.ticks(2)
    assert [each.status for each in stage.supervisors.values()] == ["SUCCEEDED"]  # told to leave, and left
    told = [kind for kind in stage.events() if kind not in ("spec", "epoch")]
    assert told == ["submitted", "attempt-ordered", "started", "verdict", "succeeded"]


def test_preempted_run_resumes_on_the_slice_that_is_left(stage: Stage) -> None:
    stage.submit("digits")
    stage.until("digits", "RUNNING")

    stage.take(0)
    stage.until("digits", "STOPPING", "QUEUED")
    run = stage.until("digits", "RUNNING")

    assert (run.attempts, run.preemptions, run.failures, run.losses) == (2, 1, 0, 0)
    first, second = stage.attempts("digits")
    assert first.verdict is Verdict.PREEMPTED
    assert second.slices[0][0] == "v4-1"
    assert first.activation == second.activation  # the supervisor that lives takes the next order
    assert len(stage.submitted) == 1


def test_supervisor_that_may_be_leaving_for_want_of_orders_gets_none(stage: Stage) -> None:
    stage.submit("digits")
    stage.until("digits", "RUNNING")
    stage.set_phase(1, Phase.WAITING)
    stage.take(0)
    stage.until("digits", "QUEUED")
    stage.tick(Limits().idle_s - 1)

    stage.set_phase(1, Phase.READY)
    stage.until("digits", "RUNNING")

    first, second = stage.attempts("digits")
    assert second.activation == first.activation + 1
    assert stage.folders.of(second.run_id).is_ended(first.activation)


def test_notice_stops_the_attempt_within_a_round(stage: Stage) -> None:
    stage.submit("digits")
    stage.until("digits", "RUNNING")

    stage.set_phase(0, Phase.DRAINING)
    stage.tick()

    run = stage.run("digits")
    assert run.state is RunState.STOPPING
    stop = stage.folders.of(run.id).stop(1)
    assert stop is not None
    assert "told that it goes" in stop.reason


def test_own_failures_spend_the_budget_and_then_the_run_is_failed(stage: Stage) -> None:
    stage.submit("digits", max_failures=1)
    for attempt in (1, 2):
        stage.until("digits", "RUNNING", limit=60)
        supervisor = stage.supervisor("digits")
        supervisor.end(attempt, stage.clock.now(), "exits", exited(supervisor.running[attempt], 3, stage.clock.now()))
        before = stage.clock.now()
        stage.tick()
        assert stage.run("digits").state is RunState.RUNNING, "a non-zero exit is held first"
        stage.until("digits", "QUEUED", "FAILED", limit=60)
        assert stage.clock.now().since(before) >= 8.0

    run = stage.run("digits")
    assert (run.state, run.failures, run.exit_code, run.attempts) == (RunState.FAILED, 2, 3, 2)
    assert [each.verdict for each in stage.attempts("digits")] == [Verdict.FAILED, Verdict.FAILED]
    assert stage.leased() == {}
    assert stage.ticks(30).supervise == ()  # later rounds do not start it again (A34)


def test_survivors_exit_codes_before_the_cloud_speaks_spend_no_budget(stage: Stage) -> None:
    stage.submit("digits", max_failures=0)
    stage.until("digits", "RUNNING")
    supervisor = stage.supervisor("digits")
    supervisor.end(1, stage.clock.now(), "exits", exited(supervisor.running[1], 134, stage.clock.now()))
    stage.ticks(3)
    assert stage.run("digits").failures == 0

    stage.take(0)
    run = stage.until("digits", "QUEUED", "FAILED", limit=5) and stage.until("digits", "RUNNING")

    assert (run.failures, run.preemptions) == (0, 1)


def test_slice_that_lost_contact_is_kept_off(stage: Stage) -> None:
    stage.submit("digits")
    stage.until("digits", "RUNNING")
    supervisor = stage.supervisor("digits")
    now = stage.clock.now()
    supervisor.end(1, now, "hosts-lost", losses=unreachable(supervisor.running[1], now))

    run = stage.until("digits", "QUEUED") and stage.until("digits", "RUNNING")

    assert (run.losses, run.failures) == (1, 0)
    assert stage.attempts("digits")[-1].slices[0][0] == "v4-1"
    stage.submit("other")
    stage.ticks(3)
    assert "kept off" in stage.tick().waits[stage.run("other").id]


def test_loss_that_the_cloud_explains_later_is_charged_to_it(stage: Stage) -> None:
    stage.submit("digits")
    stage.until("digits", "RUNNING")
    supervisor = stage.supervisor("digits")
    now = stage.clock.now()
    supervisor.end(1, now, "hosts-lost", losses=unreachable(supervisor.running[1], now))
    stage.until("digits", "QUEUED")
    assert stage.run("digits").losses == 1

    stage.take(0)
    stage.ticks(5)

    run = stage.run("digits")
    assert (run.losses, run.preemptions) == (0, 1)
    assert stage.attempts("digits")[0].verdict is Verdict.PREEMPTED


def test_restart_of_ray_on_the_head_resumes_the_run_once(stage: Stage) -> None:
    stage.submit("digits")
    stage.until("digits", "RUNNING")

    stage.restart_ray()
    stage.until("digits", "QUEUED")
    run = stage.until("digits", "RUNNING")

    assert (run.attempts, run.losses, run.activation) == (2, 1, 2)
    assert len(stage.submitted) == len(set(stage.submitted)) == 2


def test_no_other_run_meets_the_programs_of_a_supervisor_that_vanished(stage: Stage) -> None:
    stage.set_phase(1, Phase.JOINING)
    stage.submit("digits")
    stage.until("digits", "RUNNING")

    stage.restart_ray()
    stage.cancel("digits")
    stage.until("digits", "CANCELLED")
    stage.submit("other")
    closed_at = stage.run("digits").since

    run = stage.until("other", "STARTING", "RUNNING")
    assert run.since.since(closed_at) >= DETECTION.lease_s + DETECTION.lease_margin_s


def test_run_whose_document_does_not_read_is_written_anew_and_stops_no_other(stage: Stage) -> None:
    run = stage.submit("digits")
    (stage.folders.of(run.id).path / "run.json").write_text('{"run": "digits", "of": "another version"}')
    stage.submit("other")

    stage.until("digits", "RUNNING")
    stage.until("other", "RUNNING")

    document = stage.folders.of(run.id).document()
    assert document is not None
    assert document.checkpoint_dir == "gs://lab-us/runs/digits"


def test_adopted_slice_of_an_unknown_type_stops_nothing(stage: Stage) -> None:
    """A newer tpuctl made it, or the service has renamed its types: the records then say 0 chips on 0 hosts."""
    now = stage.clock.now()
    stranger = replace(a_ready_slice(7, now), accelerator="v9-16", chips=0, hosts=0, joined=0)
    with stage.store.transaction() as tx:
        tx.put_incarnation(stranger)
    stage.submit("digits", min_slices=2, max_slices=3)

    stage.until("digits", "RUNNING")

    assert set(stage.leased()) == {"v4-0", "v4-1"}
    status = status_document(read_picture(stage.store, ME, Scene()), now)
    assert [row["accelerator"] for row in status["slices"]] == ["v4-16", "v4-16", "v9-16"]


def test_nothing_follows_while_ray_cannot_be_seen(stage: Stage) -> None:
    stage.submit("digits")
    stage.until("digits", "RUNNING")
    stage.submit("other")
    supervisor = stage.supervisor("digits")
    supervisor.end(1, stage.clock.now(), "exits", exited(supervisor.running[1], 1, stage.clock.now()))

    stage.ray_up = False
    stage.ticks(60)

    assert stage.run("digits").state is RunState.RUNNING
    assert stage.run("other").state is RunState.QUEUED

    stage.ray_up = True
    stage.until("digits", "QUEUED", limit=30)
    assert stage.attempts("digits")[0].verdict is Verdict.FAILED


def test_three_runs_on_two_slices_within_a_second(stage: Stage) -> None:
    """A39: placements are rows before anything starts, so no two runs can share a slice."""
    for name in ("a", "b", "c"):
        stage.submit(name)
    stage.ticks(3)

    assert [stage.run(name).state.value for name in ("a", "b", "c")] == ["RUNNING", "RUNNING", "QUEUED"]
    ordered = [(each.slice, each.incarnation) for _, order in stage.orders() for each in order.slices]
    assert len(ordered) == len(set(ordered)) == 2
    reason = stage.tick().waits[stage.run("c").id]
    assert "v4-0 is held by run a" in reason
    assert "v4-1 is held by run b" in reason

    succeed(stage, "b")
    stage.until("c", "RUNNING")
    assert stage.leased()[SliceName("v4-1")] == stage.run("c").id


def test_gang_of_two_slices_shrinks_to_the_healthy_one(stage: Stage) -> None:
    stage.submit("gang", min_slices=1, max_slices=2)
    stage.until("gang", "RUNNING")
    assert len(stage.attempts("gang")[0].slices) == 2

    stage.take(1)
    stage.until("gang", "STOPPING", "QUEUED")
    stage.until("gang", "RUNNING")

    assert [name for name, _ in stage.attempts("gang")[1].slices] == ["v4-0"]


@pytest.mark.parametrize("state", ["QUEUED", "STARTING", "RUNNING", "STOPPING"])
def test_cancel_ends_a_run_in_every_state(stage: Stage, state: str) -> None:
    if state == "QUEUED":
        for slot in (0, 1):
            stage.set_phase(slot, Phase.JOINING)
    stage.submit("digits")
    if state == "STOPPING":
        stage.until("digits", "RUNNING")
        stage.set_phase(0, Phase.DRAINING)
        stage.tick()
    elif state != "QUEUED":
        stage.until("digits", state)
    assert stage.run("digits").state.value == state

    stage.cancel("digits")
    stage.cancel("digits")
    run = stage.until("digits", "CANCELLED", limit=90)

    assert stage.leased() == {}
    assert run.ended_at is not None
    stage.ticks(3)
    assert all(each.status == "SUCCEEDED" for each in stage.supervisors.values())


def test_cancel_of_an_over_run_changes_nothing(stage: Stage) -> None:
    stage.submit("digits")
    stage.until("digits", "RUNNING")
    succeed(stage, "digits")
    over = stage.until("digits", "SUCCEEDED")

    stage.cancel("digits")

    assert stage.run("digits") == over


def test_supervisor_that_dies_before_it_begins_costs_a_loss_and_not_the_run(stage: Stage) -> None:
    stage.submit("digits")
    result = stage.tick()
    stage.supervisors[result.supervise[0].job].status = "FAILED"

    run = stage.until("digits", "QUEUED") and stage.until("digits", "RUNNING")

    assert (run.losses, run.activation) == (1, 2)
