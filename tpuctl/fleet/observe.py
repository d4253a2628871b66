"""What a pass looks at: one list of queued resources and one of nodes a zone, the zones beside each other.

A list that fails is Unknown with its reason, and takes nothing else of the view with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tpuctl.base.clock import Clock
from tpuctl.base.ids import Zone
from tpuctl.cloud.errors import CloudError
from tpuctl.cloud.model import Known, Listing, TpuApi, Unknown
from tpuctl.fleet.model import FleetView, RayView, ZoneView

T = TypeVar("T")

# Each call has a time limit of its own (20 s), a list has several pages and tries; one zone may take this long and no
# more: what the others showed must still be fresh when it is acted on (scene.FRESH_S).
ZONE_LIMIT_S = 30.0
MOST_AT_ONCE = 64


def observe_fleet(
    tpu: TpuApi,
    zones: Sequence[Zone],
    read_ray: Callable[[], RayView],
    clock: Clock,
    *,
    parallel: int = 8,
    limit_s: float = ZONE_LIMIT_S,
) -> FleetView:
    """Each zone on a thread of its own, so that one that hangs keeps no other waiting for a thread.

    `parallel` 1: one call after the other on this thread, as tests on virtual time want it.
    """
    if parallel <= 1:
        return FleetView(tuple(_zone_view(tpu, zone, clock) for zone in zones), read_ray())
    pool = ThreadPoolExecutor(max_workers=max(1, min(MOST_AT_ONCE, len(zones))), thread_name_prefix="observe")
    try:
        coming = [(zone, pool.submit(_zone_view, tpu, zone, clock)) for zone in zones]
        end_s = clock.monotonic() + limit_s
        ray = read_ray()
        views = []
        for zone, future in coming:
            try:
                views.append(future.result(timeout=max(0.0, end_s - clock.monotonic())))
            except TimeoutError:
                late = Unknown(f"no answer within {limit_s:g} s")
                views.append(ZoneView(zone, late, late))
        return FleetView(tuple(views), ray)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _zone_view(tpu: TpuApi, zone: Zone, clock: Clock) -> ZoneView:
    # Nodes first: a queued resource that turns ACTIVE in between is granted its missing node for a minute.
    nodes = _seen(lambda: tpu.list_nodes(zone), clock)
    return ZoneView(zone, _seen(lambda: tpu.list_queued_resources(zone), clock), nodes)


def _seen(listing: Callable[[], Listing[T]], clock: Clock) -> Known[Listing[T]] | Unknown:
    at, monotonic_s = clock.now(), clock.monotonic()
    try:
        return Known(listing(), at, monotonic_s)
    except CloudError as error:
        return Unknown(str(error))
