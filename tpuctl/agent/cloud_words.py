"""What the cloud says of a slice when a verdict depends on it: asked at once, not left to the next pass."""

from __future__ import annotations

from collections.abc import Callable

from tpuctl.base.clock import Clock
from tpuctl.base.ids import QrName, Zone
from tpuctl.cloud.errors import CloudError, NotFoundError
from tpuctl.cloud.model import Node, NodeState, QrState, QueuedResource, TpuApi
from tpuctl.runs.model import CloudWord

_QR_TAKEN = frozenset({QrState.SUSPENDING, QrState.SUSPENDED, QrState.FAILED, QrState.DELETING})
# Everything in which the hosts of a slice that worked do not work any more, or not for us.
_NODE_TAKEN = frozenset(
    {
        NodeState.PREEMPTED,
        NodeState.TERMINATED,
        NodeState.STOPPING,
        NodeState.STOPPED,
        NodeState.DELETING,
        NodeState.REPAIRING,
        NodeState.REIMAGING,
        NodeState.RESTARTING,
        NodeState.HIDING,
        NodeState.HIDDEN,
    }
)


def ask_cloud(client: Callable[[], TpuApi], zone: Zone, name: QrName, clock: Clock) -> CloudWord:
    """Raises nothing of the cloud's, nor of a client that cannot be made for want of credentials: what failed is
    `unknown`, and nothing follows from it (A35)."""
    asked_at = clock.now()
    try:
        tpu = client()
        queued = tpu.get_queued_resource(zone, name)
        if queued.state in _QR_TAKEN:
            return CloudWord(name, "taken", f"queued resource {name} is {state_text(queued)}", asked_at)
        node = _node(tpu, zone, name)
    except NotFoundError as error:
        return CloudWord(name, "taken", f"gone: {error}", asked_at)
    except CloudError as error:
        return CloudWord(name, "unknown", str(error), asked_at)
    if node is None:
        return CloudWord(name, "taken", f"node {name} is gone", asked_at, node_gone=True)
    if node.state in _NODE_TAKEN:
        return CloudWord(name, "taken", f"node {name} is {state_text(node)}", asked_at)
    if queued.state is QrState.ACTIVE and node.state is NodeState.READY:
        return CloudWord(name, "healthy", f"{name} is ACTIVE, its node READY", asked_at)
    return CloudWord(name, "unknown", f"{name} is {state_text(queued)}, its node {state_text(node)}", asked_at)


def _node(tpu: TpuApi, zone: Zone, name: QrName) -> Node | None:
    """None: the service says that there is none."""
    try:
        return tpu.get_node(zone, name)
    except NotFoundError:
        return None


def state_text(thing: QueuedResource | Node) -> str:
    state = thing.state
    return state.name if isinstance(state, QrState | NodeState) else state.raw
