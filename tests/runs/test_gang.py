"""A gang's clocks and leases on a played Ray: what hosts are granted when they are not all equally quick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tpuctl.base.ids import Epoch, PoolName, QrName, RunId, RunName, SliceName, Zone
from tpuctl.runs import gang as module
from tpuctl.runs.conduct import Event, Limits, Output, RankEnded, RankLost
from tpuctl.runs.gang import RayGang
from tpuctl.runs.launcher import Beat, Ended, Prepared
from tpuctl.runs.orders import Order, OrderedSlice, RunDocument
from tpuctl.runs.program import Coordinator
from tpuctl.testing.clock import START, FakeClock

SLICE = OrderedSlice(SliceName("v4-0"), QrName("lab-v4-0-t-1"), Zone("z"), PoolName("v4"), "v4-16", 2, 4)
LEASE_S = 10.0
DOCUMENT = RunDocument(RunName("r"), RunId("r-1"), Epoch("t2"), "x", (), "/c", 30.0, "", 25.0, LEASE_S, PoolName("v4"))
ORDER = Order(1, Epoch("t2"), 1, (SLICE,), START)
CALL_S = 0.01
NEVER_S = 1e9


@dataclass(eq=False)
class Ref:
    """An answer that comes at `due_s`; made when it is read, so that it tells of that moment."""

    due_s: float
    make: Callable[[], Any]


@dataclass
class Call:
    run: Callable[..., Ref]

    def remote(self, *arguments: Any) -> Ref:
        return self.run(*arguments)


class Host:
    """One rank's launcher on a clock that is `ahead_s` of the supervisor's. `spare_s`: the least that a lease had."""

    def __init__(
        self, clock: FakeClock, prepare_s: float = CALL_S, start_s: float = CALL_S, ahead_s: float = 0.0
    ) -> None:
        self.clock, self.prepare_s, self.start_s, self.ahead_s = clock, prepare_s, start_s, ahead_s
        self.until_s, self.spare_s, self.beats = 0.0, NEVER_S, 0
        self.beat_s, self.ends_s, self.log = CALL_S, NEVER_S, b""
        self.prepare, self.start = Call(self._prepare), Call(self._start)
        self.beat, self.wait = Call(self._beat), Call(lambda: Ref(self.ends_s, lambda: Ended(0, None, "exit", ())))

    def _at(self, due_s: float) -> float:
        return due_s + self.ahead_s

    def _prepare(self, *_: Any) -> Ref:
        due_s = self.clock.monotonic() + self.prepare_s
        return Ref(due_s, lambda: Prepared(self._at(due_s), Coordinator("127.0.0.1", 8500, 8501)))

    def _start(self, _: Any, until_s: float) -> Ref:
        self._granted(until_s)
        return Ref(self.clock.monotonic() + self.start_s, lambda: None)

    def _beat(self, until_s: float, offset: int) -> Ref:
        self.beats += 1
        self._granted(until_s)
        due_s = self.clock.monotonic() + self.beat_s
        return Ref(due_s, lambda: Beat(self._at(due_s), self.log[offset:]))

    def _granted(self, until_s: float) -> None:
        now_s = self._at(self.clock.monotonic())
        if self.until_s:
            self.spare_s = min(self.spare_s, self.until_s - now_s)
        self.until_s = max(self.until_s, until_s)
        self.spare_s = min(self.spare_s, self.until_s - now_s)


class PlayedRay:
    """`ray`, as far as a gang that is placed uses it."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    def wait(
        self, refs: Sequence[Ref], *, num_returns: int, timeout: float, fetch_local: bool = True
    ) -> tuple[list[Ref], list[Ref]]:
        until_s = min(max(ref.due_s for ref in refs), self.clock.monotonic() + timeout)
        self.clock.advance(max(0.0, until_s - self.clock.monotonic()))
        ready = [ref for ref in refs if ref.due_s <= self.clock.monotonic()]
        return ready, [ref for ref in refs if ref not in ready]

    def get(self, ref: Ref) -> Any:
        assert ref.due_s <= self.clock.monotonic()
        return ref.make()

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": str(rank), "Alive": True} for rank in range(SLICE.hosts)]

    def get_draining_nodes(self) -> dict[str, int]:
        return {}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def a_gang(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Callable[[Host, Host], RayGang]:
    played = PlayedRay(clock)
    monkeypatch.setattr(module, "ray", played)
    monkeypatch.setattr(module, "ray_state", played)

    def make(*hosts: Host) -> RayGang:
        monkeypatch.setattr(module, "find_nodes", lambda *_: ["0", "1"])
        monkeypatch.setattr(module, "reserve", lambda *_: None)
        monkeypatch.setattr(module, "launchers", lambda *_: list(hosts))
        return RayGang(DOCUMENT, ORDER, clock, Limits())

    return make


def polled(gang: RayGang, clock: FakeClock, seconds: float) -> list[Event]:
    events: list[Event] = []
    end_s = clock.monotonic() + seconds
    while clock.monotonic() < end_s:
        events += gang.poll(0.2)
    return events


@pytest.mark.parametrize("ahead_s", [0.0, 5000.0, -500.0])
def test_host_that_prepared_long_before_the_last_gets_a_whole_lease(
    clock: FakeClock, a_gang: Callable[[Host, Host], RayGang], ahead_s: float
) -> None:
    """E.g. one slice has the working directory already and the other fetches it."""
    quick, slow = Host(clock, prepare_s=1.0, ahead_s=ahead_s), Host(clock, prepare_s=60.0)
    gang = a_gang(quick, slow)

    assert gang.open(lambda: False) is None
    events = polled(gang, clock, 5.0)

    assert not [event for event in events if isinstance(event, RankLost)]
    assert quick.spare_s > LEASE_S - 2
    assert quick.until_s - (clock.monotonic() + ahead_s) <= LEASE_S, "never beyond what the fence waits for"


def test_programs_that_run_keep_their_lease_while_the_last_one_starts(
    clock: FakeClock, a_gang: Callable[[Host, Host], RayGang]
) -> None:
    quick, slow = Host(clock), Host(clock, start_s=15.0)
    quick.log = b"first words\n"
    gang = a_gang(quick, slow)

    assert gang.open(lambda: False) is None
    beats, spare_s = quick.beats, quick.spare_s
    events = polled(gang, clock, 5.0)

    assert beats > 10
    assert spare_s > LEASE_S - 2
    assert [event for event in events if isinstance(event, RankLost)] == []
    assert [event for event in events if isinstance(event, Output)] == [Output(0, b"first words\n")]


def test_rank_that_ends_while_a_beat_is_under_way_ends_once(
    clock: FakeClock, a_gang: Callable[[Host, Host], RayGang]
) -> None:
    """A second end would come after the stop, and make of the program's own failure an end that was asked for."""
    first, second = Host(clock), Host(clock)
    first.beat_s, first.ends_s = 0.5, clock.monotonic() + 3.3
    gang = a_gang(first, second)

    assert gang.open(lambda: False) is None
    events = polled(gang, clock, 8.0)

    assert [event.rank for event in events if isinstance(event, RankEnded)] == [0]
