"""Slices that Ray alone calls dead: when suspicion is enough. Pure.

A slice that stays SUSPECT is given up only after the rejoin window, counted from when this Ray head could have seen
its hosts, when at least two passes saw it so beside a fresh list of the cloud, and only a few a pass: a fault of Ray's
or of ours that makes all hosts look dead must not cost all slices before somebody looks.
"""

from __future__ import annotations

from collections.abc import Iterable

from tpuctl.base.ids import QrName
from tpuctl.base.units import show_duration
from tpuctl.fleet.deadlines import proven_since
from tpuctl.fleet.scene import Scene
from tpuctl.store.records import Incarnation, Phase

SUSPECT_PASSES = 2
SHARE = 0.2


def given_up(rows: Iterable[Incarnation], scene: Scene) -> dict[QrName, str]:
    """Names of suspects that are to be deleted in this pass, with the reason; those first that were so for longest."""
    living = [row for row in rows if not row.phase.is_over]
    suspects = [row for row in living if row.phase is Phase.SUSPECT and not row.delete_request_id]
    ripe = sorted(
        (row for row in suspects if _is_ripe(row, scene) and scene.holder_of(row.name) is None),
        key=lambda row: (row.suspect_since or scene.now, row.name),
    )
    limit = max(1, int(SHARE * len(living)))
    return {row.name: _reason(row, scene) for row in ripe[:limit]}


def _is_ripe(row: Incarnation, scene: Scene) -> bool:
    if row.suspect_since is None or row.unseen_since is not None or row.suspect_passes < SUSPECT_PASSES:
        return False
    start = proven_since(row.suspect_since, scene)
    return start is not None and scene.now.since(start) >= scene.detection.rejoin_s


def _reason(row: Incarnation, scene: Scene) -> str:
    since = row.suspect_since or scene.now
    lost_s = show_duration(scene.now.since(since))
    return f"lost contact: {row.joined}/{row.hosts} hosts in Ray for {lost_s}, the cloud calls it healthy"
