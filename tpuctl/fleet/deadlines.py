"""How long each phase may last. Pure.

A deadline is only ever found passed by looking: what could not be looked at in this pass is not late. Where Ray's word
is what is waited for, the time before this Ray head started does not count: it knew nobody then.
"""

from __future__ import annotations

from tpuctl.base.units import Instant, show_duration
from tpuctl.fleet.lifecycle import SENT_LIMIT_S
from tpuctl.fleet.scene import Scene, Unseen
from tpuctl.spec.pool import DeadlineSpec
from tpuctl.store.records import Incarnation, Intent, Phase

# Reasons of deletions that count as fruitless when they come in a row: see `fruitless`.
BOOT, JOIN = "boot deadline", "join deadline"
QUEUE, PROVISION = "queue deadline", "provision deadline"
MAX_FRUITLESS = 3


def overdue(row: Incarnation, deadlines: DeadlineSpec, scene: Scene) -> str:
    """Why this incarnation is given up; "" if it is not."""
    if row.unseen_since is not None:
        return ""
    if row.intent is Intent.SENT:
        limit_s: float | None = SENT_LIMIT_S
        return _late(row.since, limit_s, scene, f"create sent {_ago(row.since, scene)} ago and never seen")
    match row.phase:
        case Phase.REQUESTED | Phase.WAITING:
            return _late(row.created_at, deadlines.queue_s, scene, f"{QUEUE}: {row.cloud_state}")
        case Phase.PROVISIONING:
            return _late(row.since, deadlines.provision_s, scene, f"{PROVISION}: {row.cloud_state}")
        case Phase.BOOTING:
            state = row.node_state or "no node"
            return _late(row.since, deadlines.boot_s, scene, f"{BOOT}: node {state} for {_ago(row.since, scene)}")
        case Phase.JOINING:
            start = proven_since(row.since, scene)
            if start is None:
                return ""
            text = f"{JOIN}: {row.joined}/{row.hosts} hosts joined in {_ago(start, scene)}"
            return _late(start, deadlines.join_s, scene, text)
        case _:
            return ""


def proven_since(start: Instant, scene: Scene) -> Instant | None:
    """From when on Ray's not knowing a host proves something; None: not at all."""
    ray = scene.ray
    if isinstance(ray, Unseen) or ray.head_since is None:
        return None
    return max(start, ray.head_since)


def fruitless(history: tuple[Incarnation, ...], digest: str) -> int:
    """How many of the slot's last incarnations, newest first in a row, were given up before they were READY.

    Those of another spec do not count: the user may have mended what ailed them.
    """
    count = 0
    for row in sorted(history, key=lambda row: (row.created_at, row.n), reverse=True):
        if row.ready_at is not None or not row.delete_reason.startswith((BOOT, JOIN)) or row.spec_digest != digest:
            break
        count += 1
    return count


def _late(start: Instant, limit_s: float | None, scene: Scene, text: str) -> str:
    return text if limit_s is not None and scene.now.since(start) > limit_s else ""


def _ago(start: Instant, scene: Scene) -> str:
    return show_duration(scene.now.since(start))
