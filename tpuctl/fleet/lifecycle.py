"""The life of one incarnation: what this pass's sight makes of its record. Pure.

    queued resource       node                                          phase
    CREATING              -                                             REQUESTED
    ACCEPTED, WAITING_…   -                                             WAITING
    PROVISIONING          -                                             PROVISIONING
    ACTIVE                none yet, CREATING, STARTING, REPAIRING …     BOOTING
    ACTIVE                READY, hosts missing in Ray                   JOINING; SUSPECT if it was READY
    ACTIVE                READY, all hosts in Ray                       READY
    ACTIVE                PREEMPTED, TERMINATED, STOPPED …, gone        LOST
    SUSPENDING, SUSPENDED, FAILED, DELETING (not by us)                 LOST
    absent                -                                             GONE
    a word we do not know, or a list that failed                        as it was, with `unseen_since`

Whether a deletion follows is not decided here, except that LOST always ends in one (fleet/loss.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from tpuctl.base.units import show_duration
from tpuctl.cloud.model import Initiator, Node, NodeState, QrState, QueuedResource, UnrecognisedState
from tpuctl.fleet.model import Hold
from tpuctl.fleet.scene import Absent, Foreign, Scene, Sight, Unseen, node_text, state_text
from tpuctl.store.records import Event, Incarnation, Intent, Phase

# The node list may lag behind the queued resource by a moment.
NODE_GRACE_S = 60.0
# A notice that nothing follows (an announced maintenance that was called off) keeps a slice out of use only so long.
DRAIN_LIMIT_S = 600.0
# A create that was sent and is in no list after this long has had no effect, or will not have one that is of use.
SENT_LIMIT_S = 600.0
# Complete lists in a row that must lack what was never seen, or vanished unasked, before it counts as gone: one list
# may have been made a moment before the resource was.
ABSENT_PASSES = 2
ABSENT_S = 60.0

NAME_CONFLICT = "name-conflict"
EXPIRED = "expired"  # how the reason of a request begins that was not fulfilled within its window

_NODE_TAKEN = frozenset(
    {NodeState.PREEMPTED, NodeState.TERMINATED, NodeState.STOPPED, NodeState.STOPPING, NodeState.DELETING}
)


@dataclass(frozen=True, slots=True)
class Step:
    """The record as this pass sees it. `lost`: why the service's word ends it; it is to be deleted."""

    row: Incarnation
    lost: str = ""
    hold: Hold | None = None
    events: tuple[Event, ...] = ()


def advance(row: Incarnation, sight: Sight, scene: Scene) -> Step:
    queued = sight.queued
    if isinstance(queued, Unseen):
        return _unseen(row, scene, queued.reason)
    if isinstance(queued, Foreign):
        return _foreign(row, queued.queued)
    if isinstance(queued, Absent):
        return _absent(row, sight, scene)
    return _present(row, queued, sight.node, scene)


def enter(row: Incarnation, phase: Phase, scene: Scene, reason: str = "") -> Incarnation:
    """In that phase, since now unless it already was. An empty reason keeps the present one of the same phase."""
    if row.phase is phase:
        return replace(row, reason=reason or row.reason)
    if phase.is_over and not row.phase.is_over:
        row = replace(row, ended_at=scene.now, was_lost=phase is Phase.LOST, idle_since=None)
    return replace(row, phase=phase, since=scene.now, reason=reason)


UNKNOWN = "unknown: "  # how the reason of a row begins while its state cannot be read


def _unseen(row: Incarnation, scene: Scene, reason: str, *, is_problem: bool = False) -> Step:
    return Step(
        replace(row, unseen_since=row.unseen_since or scene.now, reason=f"{UNKNOWN}{reason}"),
        hold=Hold(row.name, f"{reason}; kept as it is", is_problem),
    )


def _foreign(row: Incarnation, queued: QueuedResource) -> Step:
    text = (
        f"{queued.zone} has a queued resource {queued.name} ({queued.accelerator_type}) without our labels: not touched"
    )
    row = replace(row, error_kind=NAME_CONFLICT, error_text=text)
    return Step(row, hold=Hold(row.name, f"name conflict: {text}. Remove it, or rename the pool", is_problem=True))


def _absent(row: Incarnation, sight: Sight, scene: Scene) -> Step:
    if row.intent in (Intent.PLANNED, Intent.REFUSED):
        return Step(replace(row, unseen_since=None))
    if row.intent is Intent.SEEN and isinstance(sight.node, Node) and not row.delete_request_id:
        return _unseen(row, scene, f"no queued resource, but its node is {state_text(sight.node.state)}")
    row = replace(row, absent_passes=row.absent_passes + 1, cloud_state="", node_state="", joined=0)
    if row.intent is Intent.SENT:
        return _never_seen(row, scene)
    if row.delete_request_id or row.absent_passes >= ABSENT_PASSES:
        why = row.delete_reason or "it vanished: neither deleted by us nor listed"
        gone = replace(enter(row, Phase.GONE, scene, why), unseen_since=None)
        events = () if row.phase.is_over else (Event(scene.now, "lost", row.name, why),)
        return Step(gone, events=(*events, Event(scene.now, "gone", row.name, why)))
    return _unseen(row, scene, "missing from a complete list; one more look")


def _never_seen(row: Incarnation, scene: Scene) -> Step:
    """Sent, and in no list so far."""
    waited_s = scene.now.since(row.since)
    if not row.delete_request_id:
        return Step(replace(row, unseen_since=None))  # sent again (creation.py), or given up (deadlines.py)
    if row.absent_passes >= ABSENT_PASSES and waited_s >= ABSENT_S:
        gone = replace(enter(row, Phase.GONE, scene, "given up: never seen"), intent=Intent.ABANDONED)
        return Step(gone, events=(Event(scene.now, "gone", row.name, "given up: its create had no effect"),))
    return Step(row)


def _present(row: Incarnation, queued: QueuedResource, node: Node | Absent | Unseen, scene: Scene) -> Step:
    if row.intent is not Intent.SEEN:
        row = replace(row, intent=Intent.SEEN, error_kind="", error_text="")
    row = replace(row, cloud_state=state_text(queued.state), absent_passes=0)
    state = queued.state
    if isinstance(state, UnrecognisedState):
        text = f"queued resource in state {state.raw!r}, which this tpuctl does not know"
        return _unseen(row, scene, text, is_problem=True)
    unseen_since = row.unseen_since
    row = replace(row, unseen_since=None, reason="" if row.reason.startswith(UNKNOWN) else row.reason)
    if row.delete_request_id:
        return Step(row)
    match state:
        case QrState.CREATING:
            return Step(enter(row, Phase.REQUESTED, scene))
        case QrState.ACCEPTED | QrState.WAITING_FOR_RESOURCES:
            return Step(enter(row, Phase.WAITING, scene))
        case QrState.PROVISIONING:
            return Step(enter(row, Phase.PROVISIONING, scene))
        case QrState.SUSPENDING | QrState.SUSPENDED | QrState.FAILED | QrState.DELETING:
            return _lost(row, scene, _end_of(row, queued, scene))
        case QrState.ACTIVE:
            step = _active(replace(row, active_at=row.active_at or scene.now), node, scene)
            if step.row.unseen_since is None or unseen_since is None:
                return step
            return replace(step, row=replace(step.row, unseen_since=unseen_since))  # its node is what was not seen
        case _:
            assert_never(state)


def _end_of(row: Incarnation, queued: QueuedResource, scene: Scene) -> str:
    if queued.state is QrState.FAILED and row.expires_at is not None and scene.now >= row.expires_at:
        return f"{EXPIRED}: not fulfilled by {row.expires_at.iso()}"
    if queued.state is QrState.FAILED:
        return f"queued resource FAILED: {queued.error or 'no reason given'}"
    who = {Initiator.SERVICE: " by the service", Initiator.USER: " by a user"}.get(
        queued.initiator or Initiator.SERVICE
    )
    if queued.state is QrState.DELETING:
        return "queued resource DELETING, not by us"
    return f"queued resource {state_text(queued.state)}{who if queued.initiator else ''}"


def _lost(row: Incarnation, scene: Scene, why: str) -> Step:
    lost = replace(enter(row, Phase.LOST, scene, why), joined=0)
    events = () if row.phase is Phase.LOST else (Event(scene.now, "lost", row.name, why),)
    return Step(lost, lost=why, events=events)


def _active(row: Incarnation, node: Node | Absent | Unseen, scene: Scene) -> Step:
    early = row.phase in (Phase.REQUESTED, Phase.WAITING, Phase.PROVISIONING)
    if isinstance(node, Unseen):
        return _unseen(enter(row, Phase.BOOTING, scene) if early else row, scene, node.reason)
    if isinstance(node, Absent):
        row = replace(row, node_state="")
        if row.node_seen:
            return _lost(row, scene, "its node is gone from a complete list")
        waited_s = scene.now.since(row.active_at or scene.now)
        if waited_s > NODE_GRACE_S:
            return _lost(row, scene, f"ACTIVE for {show_duration(waited_s)} without a node")
        return Step(enter(row, Phase.BOOTING, scene))
    row = replace(row, node_seen=True, node_state=node_text(node))
    if isinstance(node.state, UnrecognisedState):
        text = f"node in state {node.state.raw!r}, which this tpuctl does not know"
        return _unseen(enter(row, Phase.BOOTING, scene) if early else row, scene, text, is_problem=True)
    if node.state in _NODE_TAKEN:
        return _lost(row, scene, f"node {node.state.name}")
    if node.state is NodeState.READY:
        return _hosts(row, scene)
    # CREATING, STARTING, RESTARTING, REPAIRING, HIDING …, UNKNOWN may come (back): the boot deadline ends it.
    return Step(replace(enter(row, Phase.BOOTING, scene, f"node {node.state.name}"), joined=0))


def _hosts(row: Incarnation, scene: Scene) -> Step:
    """The node is READY: READY is what Ray sees of its hosts."""
    ray = scene.ray
    if isinstance(ray, Unseen):
        known = row.phase in (Phase.JOINING, Phase.READY, Phase.SUSPECT, Phase.DRAINING)
        return Step(row if known else enter(row, Phase.JOINING, scene), hold=Hold(row.name, f"hosts: {ray.reason}"))
    joined = len(ray.workers_of(row.name) & frozenset(range(row.hosts)))
    row = replace(row, joined=joined)
    if any(host.draining for host in ray.hosts_of(row.name)):
        return Step(enter(row, Phase.DRAINING, scene, "a host drains"))
    if row.phase is Phase.DRAINING and scene.now.since(row.since) < DRAIN_LIMIT_S:
        return Step(row)
    hosts = f"{joined}/{row.hosts} hosts"
    if joined == row.hosts:
        ready = replace(
            enter(row, Phase.READY, scene, hosts),
            ready_at=row.ready_at or scene.now,
            suspect_since=None,
            suspect_passes=0,
        )
        events = () if row.phase is Phase.READY else (Event(scene.now, "ready", row.name, f"{hosts} joined"),)
        return Step(ready, events=events)
    if row.phase in (Phase.READY, Phase.SUSPECT, Phase.DRAINING) and row.ready_at is not None:
        suspect = replace(
            enter(row, Phase.SUSPECT, scene, hosts),
            reason=hosts,
            suspect_since=row.suspect_since or scene.now,
            suspect_passes=row.suspect_passes + 1,
        )
        text = f"{hosts} in Ray, the cloud calls it healthy"
        events = () if row.phase is Phase.SUSPECT else (Event(scene.now, "suspect", row.name, text),)
        return Step(suspect, events=events)
    return Step(replace(enter(row, Phase.JOINING, scene, hosts), reason=hosts))
