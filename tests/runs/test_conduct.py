"""An attempt from its order to its outcome, on a gang of which the test says what befalls it and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tpuctl.base.ids import Epoch, PoolName, QrName, RunId, RunName, SliceName, Zone
from tpuctl.runs.conduct import Event, Limits, NotStarted, Output, RankEnded, RankLost
from tpuctl.runs.launcher import Ended
from tpuctl.runs.model import Outcome
from tpuctl.runs.orders import Order, OrderedSlice, RunDocument, RunFolder, StopOrder
from tpuctl.runs.supervisor import Supervisor
from tpuctl.testing.clock import START, FakeClock

SLICE = OrderedSlice(SliceName("v4-0"), QrName("lab-v4-0-t-1"), Zone("z"), PoolName("v4"), "v4-16", 2, 4)
DOCUMENT = RunDocument(RunName("r"), RunId("r-1"), Epoch("t2"), "x", (), "/c", 30.0, "", 25.0, 10.0, PoolName("v4"))
LIMITS = Limits(idle_s=3)
EXIT_0, SIGTERM = Ended(0, None, "exit", ()), Ended(None, 15, "stop", ())


class ScriptedGang:
    """Events come at their seconds after the start. Ranks in `obedient` end one second after a stop."""

    def __init__(self, clock: FakeClock, script: list[tuple[float, Event]], refuses: NotStarted | None = None) -> None:
        self.clock, self.script, self.refuses = clock, script, refuses
        self.obedient = {0, 1}
        self.over: set[int] = set()
        self.stops: list[float] = []
        self.closed = False
        self.began_s = clock.monotonic()

    def open(self, interrupted: Callable[[], bool]) -> NotStarted | None:
        return self.refuses

    def poll(self, timeout_s: float) -> list[Event]:
        self.clock.advance(timeout_s)
        now_s = self.clock.monotonic() - self.began_s
        due = [event for at_s, event in self.script if at_s <= now_s]
        self.script = [(at_s, event) for at_s, event in self.script if at_s > now_s]
        self.over |= {event.rank for event in due if isinstance(event, RankEnded | RankLost)}
        return due

    def stop(self, grace_s: float) -> None:
        self.stops.append(grace_s)
        now_s = self.clock.monotonic() - self.began_s
        self.script += [(now_s + 1, RankEnded(rank, SIGTERM)) for rank in sorted(self.obedient - self.over)]

    def drain(self) -> Iterator[Output]:
        assert not self.closed
        yield Output(0, b"last line\n")

    def lease_end_s(self, rank: int) -> float | None:
        return None if rank in self.obedient else self.clock.monotonic() + 7

    def close(self) -> None:
        self.closed = True


class Stage:
    def __init__(self, path: Path, *script: tuple[float, Event], refuses: NotStarted | None = None) -> None:
        self.clock, self.folder = FakeClock(), RunFolder(path)
        self.folder.create(DOCUMENT)
        self.gang = ScriptedGang(self.clock, list(script), refuses)
        self.supervisor = Supervisor(self.folder, 1, lambda document, order, _limits: self.gang, self.clock, LIMITS)

    def order(self, attempt: int = 1, activation: int = 1, epoch: str = "t2") -> None:
        self.folder.write_order(Order(attempt, Epoch(epoch), activation, (SLICE,), START))

    def serve(self) -> Outcome:
        """Serves until it leaves for want of orders."""
        self.order()
        self.supervisor.serve()
        outcome = self.folder.outcome(1)
        assert outcome is not None
        assert self.gang.closed
        return outcome

    def events(self) -> list[str]:
        return [each.event for each in self.folder.journal(1)[0]]


def test_gang_that_exits_0_is_done_and_its_last_lines_are_kept(tmp_path: Path) -> None:
    stage = Stage(tmp_path, (1, Output(0, b"first\n")), (2, RankEnded(0, EXIT_0)), (60, RankEnded(1, EXIT_0)))

    outcome = stage.serve()

    assert (outcome.kind, outcome.fence_until, stage.gang.stops) == ("done", None, [])
    assert stage.folder.log_path(1, 0).read_bytes() == b"first\nlast line\n"
    assert stage.events() == ["ordered", "gang-up", "started", "rank-exit", "rank-exit"]


def test_first_bad_exit_stops_the_others_at_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path, (5, RankEnded(1, Ended(3, None, "exit", ()))))

    outcome = stage.serve()

    assert outcome.kind == "exits"
    assert [(each.rank, each.code, each.signal, each.before_stop) for each in outcome.exits] == [
        (0, None, 15, False),
        (1, 3, None, True),
    ]
    assert stage.gang.stops == [LIMITS.loss_grace_s]


def test_lost_host_stops_the_rest_and_sets_the_fence(tmp_path: Path) -> None:
    stage = Stage(tmp_path, (5, RankLost(1, "unreachable", "no answer for 8s")))
    stage.gang.obedient = {0}

    outcome = stage.serve()

    assert outcome.kind == "hosts-lost"
    assert [(loss.rank, loss.kind, loss.incarnation) for loss in outcome.losses] == [(1, "unreachable", "lab-v4-0-t-1")]
    assert outcome.fence_until == outcome.at.plus(7 + LIMITS.margin_s)
    assert stage.events()[3:] == ["host-unreachable", "stopping", "rank-exit", "stopped", "fenced-at"]


def test_host_that_does_not_answer_the_stop_is_evidence_too(tmp_path: Path) -> None:
    """A33: a survivor's exit comes first; its silent peer is what matters."""
    stage = Stage(tmp_path, (5, RankEnded(0, Ended(1, None, "exit", ()))))
    stage.gang.obedient = {0}

    outcome = stage.serve()

    assert outcome.kind == "hosts-lost"
    assert [(loss.rank, loss.kind) for loss in outcome.losses] == [(1, "unreachable")]


def test_host_that_goes_after_all_ranks_ended_well_takes_nothing_away(tmp_path: Path) -> None:
    at_once = (5, RankEnded(0, EXIT_0)), (5, RankEnded(1, EXIT_0)), (5, RankLost(1, "draining", "its node drains"))

    outcome = Stage(tmp_path, *at_once).serve()

    assert (outcome.kind, [each.code for each in outcome.exits]) == ("done", [0, 0])


def test_notice_gives_the_runs_own_grace_and_stays_the_reason(tmp_path: Path) -> None:
    stage = Stage(tmp_path, (5, RankLost(1, "draining", "its node drains")), (5.5, RankLost(1, "dead", "node died")))

    outcome = stage.serve()

    assert stage.gang.stops == [DOCUMENT.grace_s]
    assert [(loss.rank, loss.kind) for loss in outcome.losses] == [(1, "draining")]


def test_lease_that_ran_out_is_a_loss_of_contact_and_not_an_exit(tmp_path: Path) -> None:
    outcome = Stage(tmp_path, (5, RankEnded(1, Ended(None, 9, "lease", ())))).serve()

    assert (outcome.kind, [loss.kind for loss in outcome.losses]) == ("hosts-lost", ["unreachable"])
    assert [each.rank for each in outcome.exits] == [0]


def test_processes_that_would_not_die_keep_the_host_off(tmp_path: Path) -> None:
    stage = Stage(tmp_path, (5, RankEnded(0, EXIT_0)), (6, RankEnded(1, Ended(0, None, "exit", (77,)))))

    outcome = stage.serve()

    assert [(loss.rank, loss.kind) for loss in outcome.losses] == [(1, "left")]
    assert "77" in outcome.detail


def test_stop_order_stops_with_its_grace_and_a_later_one_may_shorten_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.gang.obedient = set()
    stage.folder.write_stop(1, StopOrder("cancelled", 30.0, START))
    poll = stage.gang.poll

    def hurry(timeout_s: float) -> list[Event]:
        if len(stage.gang.stops) == 1 and stage.clock.monotonic() > stage.gang.began_s + 5:
            stage.folder.write_stop(1, StopOrder("now", 0.0, START))
            stage.gang.obedient = {0, 1}
        return poll(timeout_s)

    stage.gang.poll = hurry  # type: ignore[method-assign]  # this test's only way to act in mid-attempt
    (tmp_path / "orders/1.stop.json").rename(tmp_path / "later")
    original_open = stage.gang.open

    def open_then_stop(interrupted: Callable[[], bool]) -> NotStarted | None:
        (tmp_path / "later").rename(tmp_path / "orders/1.stop.json")
        return original_open(interrupted)

    stage.gang.open = open_then_stop  # type: ignore[method-assign]
    outcome = stage.serve()

    assert outcome.kind == "stopped"
    assert stage.gang.stops[:2] == [30.0, 0.0]
    assert all(not each.before_stop for each in outcome.exits)


def test_order_that_was_stopped_before_it_began_starts_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.folder.write_stop(1, StopOrder("cancelled", 5.0, START))

    outcome = stage.serve()

    assert (outcome.kind, outcome.detail) == ("stopped", "cancelled")
    assert stage.events() == ["ordered"]


def test_refusal_to_start_is_told_with_its_host(tmp_path: Path) -> None:
    refused = NotStarted("its chips are in use", (RankLost(1, "refused", "its chips are in use"),))

    outcome = Stage(tmp_path, refuses=refused).serve()

    assert (outcome.kind, [loss.kind for loss in outcome.losses]) == ("not-started", ["refused"])
    assert "host 1 of v4-0: its chips are in use" in outcome.detail


def test_supervisor_serves_only_its_activation_and_leaves_after_a_while(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.order(1, activation=2)
    began_s = stage.clock.monotonic()

    stage.supervisor.serve()

    assert stage.folder.outcome(1) is None
    assert 3 < stage.clock.monotonic() - began_s < 4
    assert stage.folder.activation(1) is not None


def test_order_of_an_older_epoch_is_refused(tmp_path: Path) -> None:
    stage = Stage(tmp_path, (1, RankEnded(0, EXIT_0)), (1, RankEnded(1, EXIT_0)))
    stage.order(2, epoch="t1")

    stage.serve()

    refused = stage.folder.outcome(2)
    assert refused is not None
    assert (refused.kind, refused.detail) == ("not-started", "epoch t1 is over: t2 came")


def test_supervisor_leaves_when_its_activation_is_ended(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.folder.end_activation(1, START)
    began_s = stage.clock.monotonic()

    stage.supervisor.serve()

    assert stage.clock.monotonic() == began_s
