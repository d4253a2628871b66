"""The files of a run's folder read back as they were written, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpuctl.base.ids import Epoch, PoolName, QrName, RunId, RunName, SliceName, Zone
from tpuctl.base.units import Instant
from tpuctl.runs.model import HostLoss, Outcome, RankExit
from tpuctl.runs.orders import Activation, Order, OrderedSlice, RunDocument, RunFolder, StopOrder

T = Instant(1_796_000_000.25)
SLICE = OrderedSlice(SliceName("v4-0"), QrName("lab-v4-0-t-1"), Zone("z"), PoolName("v4"), "v4-16", 2, 4)


def a_document(command: str | tuple[str, ...] = "true", env: tuple[tuple[str, str], ...] = ()) -> RunDocument:
    return RunDocument(
        RunName("r"), RunId("r-1"), Epoch("t"), command, env, "/c", 30.0, "ab" * 32, 25.0, 10.0, PoolName("v4")
    )


def a_folder(path: Path) -> RunFolder:
    folder = RunFolder(path / "run")
    folder.create(a_document())
    return folder


values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(command=values | st.lists(values, min_size=1).map(tuple), env=st.lists(st.tuples(values, values)).map(tuple))
@settings(max_examples=50, deadline=None)
def test_command_and_environment_survive_their_file_to_the_byte(
    command: str | tuple[str, ...], env: tuple[tuple[str, str], ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("orders")
    folder = RunFolder(path)
    folder.create(a_document(command, env))

    assert folder.document() == a_document(command, env)


def test_environment_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)

    assert (folder.path / "run.json").stat().st_mode & 0o777 == 0o600
    assert folder.path.stat().st_mode & 0o777 == 0o700


def test_orders_stops_and_activations_read_back(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    order, stop, activation = Order(2, Epoch("t"), 1, (SLICE,), T), StopOrder("cancelled", 5.0, T), Activation(7, T)
    assert (folder.order(2), folder.stop(2), folder.activation(1), folder.outcome(2)) == (None, None, None, None)

    folder.write_order(order)
    folder.write_stop(2, stop)
    folder.write_activation(1, activation)
    folder.end_activation(1, T)

    assert (folder.order(2), folder.stop(2), folder.activation(1)) == (order, stop, activation)
    assert folder.orders() == (2,), "a stop is not an order"
    assert folder.is_ended(1)
    assert not folder.is_ended(2)


def test_outcome_reads_back(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    exits = (RankExit(0, SLICE.slice, 0, 3, None, T, True), RankExit(1, SLICE.slice, 1, None, 15, T, False))
    losses = (HostLoss(1, SLICE.slice, SLICE.incarnation, 1, "unreachable", T),)
    outcome = Outcome(3, "hosts-lost", exits, losses, T, T.plus(12), "why")

    folder.write_outcome(outcome)

    assert folder.outcome(3) == outcome


def test_torn_last_line_of_the_journal_is_left_until_it_is_whole(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    folder.append(1, T, "ordered", slices=["v4-0"])
    path = folder.attempt_path(1) / "journal.jsonl"
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(b'{"at": "2026-12-01T17:00:00Z", "event": "star')

    events, offset = folder.journal(1)
    folder.append(1, T, "started")
    later, _ = folder.journal(1, offset)

    assert ([each.event for each in events], offset) == (["ordered"], whole)
    assert events[0].fields == {"slices": ["v4-0"]}
    assert [each.event for each in later] == ["torn", "started"]


def test_journal_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    assert a_folder(tmp_path).journal(4) == ((), 0)
