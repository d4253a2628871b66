from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.hosts.detection import DetectionError, check, settings_for


def test_the_usual_hold_gets_the_robust_settings() -> None:
    usual = settings_for(25.0, 90.0)

    assert (usual.health_period_ms, usual.timeout_ms, usual.threshold, usual.reconnect_s) == (2000, 3000, 4, 15)
    assert usual.lease_s == 10.0
    assert (usual.silent_earliest_s, usual.silent_latest_s) == (18.0, 20.0)


def test_a_short_hold_gets_the_quick_ones() -> None:
    quick = settings_for(8.0, 30.0)

    assert (quick.health_period_ms, quick.timeout_ms, quick.threshold) == (1000, 1000, 3)
    assert quick.lease_s < quick.silent_earliest_s == 5.0


@given(hold_s=st.floats(0.1, 600), rejoin_s=st.floats(0.1, 600))
def test_whatever_is_accepted_fences_a_host_before_the_head_may_call_it_dead(hold_s: float, rejoin_s: float) -> None:
    try:
        settings = settings_for(hold_s, rejoin_s)
    except DetectionError:
        assert hold_s < 6.0 or rejoin_s < 30.0
        return
    assert settings.lease_s + settings.lease_margin_s <= settings.silent_earliest_s
    assert settings.silent_latest_s <= hold_s
    assert settings.reconnect_s < rejoin_s


@pytest.mark.parametrize(
    ("hold_s", "rejoin_s", "words"),
    [
        (5.0, 90.0, "set hold to at least 6s"),
        (25.0, 29.0, "set rejoin to at least 30s"),
        (8.0, 19.0, "set rejoin to at least 20s"),
    ],
)
def test_durations_that_do_not_fit_are_refused_with_the_one_that_does(
    hold_s: float, rejoin_s: float, words: str
) -> None:
    with pytest.raises(DetectionError, match=words):
        settings_for(hold_s, rejoin_s)


def test_a_lease_longer_than_rays_patience_is_refused() -> None:
    with pytest.raises(DetectionError, match="two attempts could run at once"):
        check(replace(settings_for(25.0, 90.0), lease_s=17.0))
