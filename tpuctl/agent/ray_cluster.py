"""Who is alive: Ray's node table over plain HTTP, with our labels. No import of ray.

Source: Ray 2.60, GET /api/v0/nodes of the dashboard; `detail=true` adds `start_time_ms`. The REST answer does not show
draining nodes: that a host drains is known from its own report of the notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tpuctl.base.clock import Clock
from tpuctl.base.ids import QrName, SliceName
from tpuctl.base.units import Instant
from tpuctl.base.web import NoAnswerError, call
from tpuctl.cloud.model import Known, Unknown
from tpuctl.fleet.model import RayHost, RayTable, RayView

_LIMIT = 10_000  # the most that Ray accepts; it answers 400 to more
_QUERY = f"limit={_LIMIT}&detail=true&filter_keys=state&filter_predicates=%3D&filter_values=ALIVE"


def read_ray_table(
    dashboard_url: str, token: str, clock: Clock, *, head_since: Instant | None, timeout_s: float = 3.0
) -> RayView:
    """The living hosts of this cluster, or Unknown(reason). Raises nothing.

    `head_since`: when this Ray head started (ray.json). An answer that Ray calls partial or truncated is Unknown: a
    host missing from it may well be alive.
    """
    at, monotonic_s = clock.now(), clock.monotonic()
    try:
        answer = call("GET", f"{dashboard_url}/api/v0/nodes?{_QUERY}", token=token, timeout_s=timeout_s)
        if answer.status in (401, 403):
            return Unknown(f"Ray's dashboard at {dashboard_url} refused the cluster's token ({answer.status})")
        document = answer.document()
    except NoAnswerError as error:
        return Unknown(f"Ray's dashboard gives no node table: {error}")
    if answer.status != 200 or not _is_success(document):
        return Unknown(f"Ray's dashboard at {dashboard_url} answered {answer.status}: {answer.text()[:200]}")
    table = document["data"]["result"]
    if lack := _what_is_missing(table):
        return Unknown(f"Ray's node table is not whole: {lack}")
    return Known(RayTable(hosts_of(table["result"]), head_since), at, monotonic_s)


def hosts_of(rows: Iterable[Mapping[str, Any]]) -> tuple[RayHost, ...]:
    """Our hosts among the table's rows, by slice and worker. Rows without a whole set of our labels are not ours.

    A host that rejoins before Ray has declared its former self dead stands there twice: the newest is kept.
    """
    newest: dict[tuple[str, int], tuple[int, RayHost]] = {}
    for row in rows:
        host = _host(row)
        if host is None or row.get("state") != "ALIVE":
            continue
        key, started = (host.incarnation, host.worker), int(row.get("start_time_ms") or 0)
        if key not in newest or started > newest[key][0]:
            newest[key] = (started, host)
    hosts = (host for _, host in newest.values())
    return tuple(sorted(hosts, key=lambda host: (host.slice, host.incarnation, host.worker)))


def _host(row: Mapping[str, Any]) -> RayHost | None:
    labels = row.get("labels") or {}
    try:
        return RayHost(
            node_id=str(row["node_id"]),
            slice=SliceName(labels["tpuctl/slice"]),
            incarnation=QrName(labels["tpuctl/incarnation"]),
            worker=int(labels["tpuctl/worker"]),
            boot_id=str(labels["tpuctl/boot"]),
            address=str(row["node_ip"]),
            chips=int((row.get("resources_total") or {}).get("TPU", 0)),
        )
    except (KeyError, ValueError):
        return None


def _is_success(document: Any) -> bool:
    try:
        return document["result"] is True and isinstance(document["data"]["result"]["result"], list)
    except (KeyError, TypeError):
        return False


def _what_is_missing(table: Mapping[str, Any]) -> str:
    """Why the list is not the whole truth; "" when it is."""
    if warning := table.get("partial_failure_warning"):
        return str(warning)
    # `total` counts dead nodes too, so that it says nothing about the living ones.
    kept, filtered = len(table["result"]), table.get("num_filtered")
    if kept >= _LIMIT:
        return f"more than {_LIMIT} nodes"
    return f"{kept} of {filtered} living nodes" if isinstance(filtered, int) and kept < filtered else ""
