"""Events by id, time, kind and subject."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuctl.store.database import Store
from tpuctl.store.events import EventFilter
from tpuctl.store.records import Event
from tpuctl.testing.clock import START, FakeClock


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store.open(tmp_path / "store.sqlite3", clock=FakeClock(), create=True)
    rows = (
        ("requested", "lab-v4-0-t6m8gb-1"), ("ready", "lab-v4-0-t6m8gb-1"), ("submitted", "v4-0"),
        ("lost", "lab-v4-01-x"),
        ("requested", "lab-v4-1-t6m8gb-1"), ("spec", "lab"), ("requested", "lab-v5-0-t6m8gb-1"),
    )  # fmt: skip
    with made.transaction() as tx:
        for at, (kind, subject) in enumerate(rows):
            tx.add_event(Event(START.plus(at), kind, subject, ""))
    return made


@pytest.mark.parametrize(
    ("after", "limit", "wanted", "ids"),
    [
        (0, 10, EventFilter(), [1, 2, 3, 4, 5, 6, 7]),
        (2, 3, EventFilter(), [3, 4, 5]),
        (0, 10, EventFilter(since=START.plus(4)), [5, 6, 7]),
        (0, 10, EventFilter(kinds=("lost", "spec")), [4, 6]),
        (0, 10, EventFilter(subject="v4-0", cluster="lab"), [1, 2, 3]),
        (0, 10, EventFilter(subject="v4", cluster="lab"), [1, 2, 4, 5]),
        (0, 10, EventFilter(subject="lab-v4-1-t6m8gb-1", cluster="lab"), [5]),
        (0, 10, EventFilter(subject="%", cluster="lab"), []),
        (1, 1, EventFilter(START.plus(1), ("requested",), "v4", "lab"), [5]),
    ],
)
def test_filter_chooses(store: Store, after: int, limit: int, wanted: EventFilter, ids: list[int]) -> None:
    with store.snapshot() as tx:
        assert [number for number, _ in tx.events_since(after, limit, wanted)] == ids
