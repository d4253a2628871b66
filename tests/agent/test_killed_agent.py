"""The agent is killed at every commit and every file it writes; its next life heals.

Each point is one run of the same story: submit, preempt, resume, fail once, cancel another, succeed. The story first
runs once undisturbed to count its points, so that a point cannot be forgotten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.stage import Stage, exited
from tpuctl.base import files
from tpuctl.store.records import RunState, Verdict


class Killed(BaseException):
    """Not an Exception: nothing may catch it, as nothing catches SIGKILL."""


class Killer:
    """Dies at the n-th point; counts them all when n is 0."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.armed = False
        self.points: list[str] = []

    def pass_by(self, point: str) -> None:
        if self.armed:
            self.points.append(point)
            if len(self.points) == self._at:
                self.armed = False
                raise Killed(point)


def watch_files(killer: Killer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after each file that is renamed into place, and at each submission to Ray."""
    from tpuctl.runs import orders

    write: Callable[..., None] = files.write_json_atomic

    def watched(path: Path, document: object, **options: int) -> None:
        killer.pass_by(f"before {path.name}")
        write(path, document, **options)
        killer.pass_by(f"after {path.name}")

    monkeypatch.setattr(orders, "write_json_atomic", watched)


class Story:
    """Drives the agent through everything that it does, in a new life whenever it was killed."""

    def __init__(self, stage: Stage, killer: Killer) -> None:
        self.stage = stage
        self.killer = killer
        self.lives = 1
        self.start = stage.start
        stage.start = self._start  # type: ignore[method-assign]  # to be killed around the call to Ray too
        self._watch()

    def _watch(self) -> None:
        self.stage.store.on_commit = self.killer.pass_by

    def _start(self, supervise: object) -> None:
        self.killer.pass_by("before the submission")
        self.killer.armed, armed = False, self.killer.armed  # what Ray does is not the agent's to be killed in
        self.start(supervise)  # type: ignore[arg-type]
        self.killer.armed = armed
        self.killer.pass_by("after the submission")

    def tick(self) -> None:
        for supervisor in self.stage.supervisors.values():
            supervisor.act(self.stage.clock.now())
        self.survive(lambda: self.stage.tick(2.0))
        check_invariants(self.stage)

    def survive(self, deed: Callable[[], object]) -> bool:
        """Do it; if the agent is killed in it, the next life begins. False then: it is to be repeated by who asked."""
        self.killer.armed = True
        try:
            deed()
        except Killed:
            self.lives += 1
            self.stage.new_life()
            self._watch()
            self.stage.clock.advance(2.0)
            return False
        finally:
            self.killer.armed = False
        return True

    def ask(self, deed: Callable[[], object]) -> None:
        """A client's call: it repeats what got no answer."""
        while not self.survive(deed):
            check_invariants(self.stage)

    def until(self, name: str, *states: RunState) -> None:
        for _ in range(100):
            if self.stage.run(name).state in states:
                return
            self.tick()
        raise AssertionError(f"{name} is {self.stage.run(name)}")

    def end(self, name: str, kind: str, code: int) -> None:
        supervisor = self.stage.supervisor(name)
        (number, order), *_ = supervisor.running.items()
        supervisor.end(number, self.stage.clock.now(), kind, exited(order, code, self.stage.clock.now()))

    def tell(self) -> None:
        stage = self.stage
        self.ask(lambda: stage.submit("digits"))
        self.ask(lambda: stage.submit("other"))
        self.until("digits", RunState.RUNNING)
        self.until("other", RunState.RUNNING)
        stage.take(0)
        self.until("digits", RunState.QUEUED)
        stage.replace_slice(0)
        self.until("digits", RunState.RUNNING)
        self.end("digits", "exits", 3)
        self.until("digits", RunState.QUEUED)
        self.until("digits", RunState.RUNNING)
        self.ask(lambda: stage.cancel("other"))
        self.until("other", RunState.CANCELLED)
        self.end("digits", "done", 0)
        self.until("digits", RunState.SUCCEEDED)
        for _ in range(4):
            self.tick()


def check_invariants(stage: Stage) -> None:
    """Never two open orders for one slice, no attempt ordered twice, no lease without its attempt."""
    with stage.store.transaction() as tx:
        runs, leases = tx.runs(), tx.leases()
        attempts = [attempt for run in runs for attempt in tx.attempts(run.id)]
    open_slices = [name for attempt in attempts if attempt.ended_at is None for name, _ in attempt.slices]
    assert len(open_slices) == len(set(open_slices)), "two open attempts share a slice"
    assert sorted(lease.slice for lease in leases) == sorted(open_slices), "leases and open attempts differ"
    running = Counter(
        each.slice
        for supervisor in stage.supervisors.values()
        for o in supervisor.running.values()
        for each in o.slices
    )
    assert not running or max(running.values()) == 1, f"programs share a slice: {running}"
    known = {(attempt.run_id, attempt.n): attempt for attempt in attempts}
    for run_id, order in stage.orders():
        attempt = known[run_id, order.attempt]  # a KeyError here is an order that no record has
        assert (order.activation, order.epoch) == (attempt.activation, attempt.epoch)
        assert tuple((each.slice, each.incarnation) for each in order.slices) == attempt.slices


def tell_story(directory: Path, at: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Story, Killer]:
    killer = Killer(at)
    with monkeypatch.context() as patch:
        watch_files(killer, patch)
        story = Story(Stage(directory), killer)
        story.tell()
    return story, killer


@pytest.mark.slow
def test_agent_killed_at_any_point_heals_in_its_next_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    _, counted = tell_story(undisturbed, 0, monkeypatch)
    points = len(counted.points)
    assert points >= 50, f"only {points} points: the story does not do what it should"
    assert {"before run.json", "after 1.json", "after 1.stop.json", "after the submission"} <= set(counted.points)

    for at in range(1, points + 1):
        directory = tmp_path / str(at)
        directory.mkdir()
        story, killer = tell_story(directory, at, monkeypatch)
        what = f"killed at point {at}: {killer.points[at - 1]}"
        stage = story.stage
        assert story.lives == 2, what
        digits, other = stage.run("digits"), stage.run("other")
        assert (digits.attempts, digits.preemptions, digits.failures, digits.losses) == (3, 1, 1, 0), what
        verdicts = [attempt.verdict for attempt in stage.attempts("digits")]
        assert verdicts == [Verdict.PREEMPTED, Verdict.FAILED, Verdict.SUCCEEDED], what
        assert (other.attempts, [attempt.verdict for attempt in stage.attempts("other")]) == (1, [Verdict.CANCELLED])
        assert stage.leased() == {}, what
        assert all(each.status == "SUCCEEDED" for each in stage.supervisors.values()), what
        stage.store.close()
