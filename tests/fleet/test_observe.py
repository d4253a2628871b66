"""What a pass looks at: one list of each kind a zone, and a zone that hangs costs no other."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from tpuctl.base.clock import SystemClock
from tpuctl.base.ids import Zone
from tpuctl.cloud.errors import TransientError
from tpuctl.cloud.model import Known, Listing, TpuApi, Unknown
from tpuctl.fleet.model import RayView
from tpuctl.fleet.observe import observe_fleet

ZONES = tuple(Zone(f"us-test{number}-a") for number in range(12))


class HangingTpu:
    """Lists of the given zones do not answer before `release`."""

    def __init__(self, *hanging: Zone) -> None:
        self._hanging = hanging
        self.release = threading.Event()
        self.calls: Counter[tuple[str, Zone]] = Counter()
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a look calls {name}")

    def _list(self, kind: str, zone: Zone) -> Listing[Any]:
        with self._lock:
            self.calls[kind, zone] += 1
        if zone in self._hanging:
            self.release.wait(30)
            raise TransientError(f"{kind} in {zone}: no answer in time")
        return Listing(())

    def list_queued_resources(self, zone: Zone) -> Listing[Any]:
        return self._list("queued resources", zone)

    def list_nodes(self, zone: Zone) -> Listing[Any]:
        return self._list("nodes", zone)


def look(tpu: TpuApi, ray: RayView, limit_s: float) -> dict[Zone, Any]:
    view = observe_fleet(tpu, ZONES, lambda: ray, SystemClock(), limit_s=limit_s)
    return {zone.zone: zone.queued_resources for zone in view.zones}


@pytest.fixture
def ray() -> RayView:
    return Unknown("not looked at")


def test_a_look_is_one_list_of_each_kind_a_zone(ray: RayView) -> None:
    tpu = HangingTpu()

    seen = look(tpu, ray, 30.0)

    assert set(tpu.calls.values()) == {1}
    assert set(tpu.calls) == {(kind, zone) for kind in ("queued resources", "nodes") for zone in ZONES}
    assert all(isinstance(each, Known) for each in seen.values())


def test_zones_that_hang_cost_the_others_nothing_however_many_they_are(ray: RayView) -> None:
    tpu = HangingTpu(*ZONES[:10])
    try:
        seen = look(tpu, ray, 0.1)
        calls = dict(tpu.calls)
    finally:
        tpu.release.set()

    assert [zone for zone, each in seen.items() if isinstance(each, Known)] == list(ZONES[10:])
    unknown = [each for each in seen.values() if isinstance(each, Unknown)]
    assert {each.reason for each in unknown} == {"no answer within 0.1 s"}
    assert len(calls) == 10 + 2 * 2  # a hanging zone is asked for its nodes, and for nothing more
    assert set(calls.values()) == {1}
