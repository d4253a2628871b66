"""Instants and durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.base.ids import ClusterName, Epoch, IncarnationId, PoolName, base36, epoch_of, epoch_order
from tpuctl.base.units import Instant, parse_duration, show_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("2h", 7200), ("1h30m", 5400), ("250ms", 0.25), ("7d", 604800), ("0s", 0)]
)
def test_duration_is_read_with_its_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "s", "1h 30", "-5s", "1e3s", "5 s", "2hours"])
def test_duration_without_a_clear_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.41, "0.4s"), (12, "12s"), (200, "3m20s"), (7500, "2h05m"), (273600, "3d04h"), (59.9, "1m00s")],
)
def test_duration_is_shown_for_people(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


def test_nanoseconds_and_offsets_of_google_are_read() -> None:
    assert Instant.parse("2026-12-01T16:28:11.123456789Z") == Instant.parse("2026-12-01T17:28:11.123456+01:00")
    with pytest.raises(ValueError, match="offset"):
        Instant.parse("2026-12-01T16:28:11")


@given(st.floats(min_value=0, max_value=4e9))
def test_instant_survives_its_text_to_the_millisecond(unix_s: float) -> None:
    assert abs(Instant.parse(Instant(unix_s).iso()).since(Instant(unix_s))) < 0.0011


@given(st.integers(min_value=0, max_value=36**8))
def test_base36_is_read_back(number: int) -> None:
    assert int(base36(number), 36) == number


@given(st.integers(1_000_000_000, 2_100_000_000), st.integers(1_000_000_000, 2_100_000_000))
def test_epochs_order_as_their_heads_were_created(first: int, second: int) -> None:
    one, two = epoch_of(Instant(first)), epoch_of(Instant(second))
    assert (epoch_order(one) < epoch_order(two)) == (first < second) == (one < two)


def test_longest_names_still_fit_the_cloud() -> None:
    longest = IncarnationId(ClusterName("c" * 16), PoolName("p" * 16), 9999, Epoch("zzzzzz"), 999_999)
    assert len(longest.qr_name) <= 63
    assert IncarnationId.from_labels(dict(longest.labels)) == longest


@pytest.mark.parametrize("missing", ["tpuctl-cluster", "tpuctl-pool", "tpuctl-slot", "tpuctl-epoch", "tpuctl-n"])
def test_incomplete_labels_are_not_ours(missing: str) -> None:
    labels = IncarnationId(ClusterName("c"), PoolName("p"), 0, Epoch("t"), 1).labels
    del labels[missing]
    assert IncarnationId.from_labels(labels) is None
