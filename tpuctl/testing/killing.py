"""A pass that is killed at a counted point: at each commit of its store and at three points of each call.

killer = Killer(at=17)
world.run_until_killed(killer)   # fleet_world.py
"""

from __future__ import annotations

from tpuctl.base.ids import QrName, Zone
from tpuctl.cloud.model import Listing, Node, QrRequest, QueuedResource, TpuApi


class KilledError(BaseException):
    """SIGKILL in process: nothing catches it, what was not committed is lost."""


class Killer:
    """Counts crash points, and kills at the n-th."""

    def __init__(self, at: int | None = None) -> None:
        self._at = at
        self.count = 0
        self.killed = ""

    def point(self, name: str) -> None:
        self.count += 1
        if self.count == self._at:
            self.killed = name
            raise KilledError(name)


class KillingTpu:
    """Three points a call: before it is sent, after its effect before its answer, after its answer.

    The middle one is a call that took effect and whose caller died before anything came back, so nothing between the
    effect and the caller may run: the result is dropped here.
    """

    def __init__(self, tpu: TpuApi, killer: Killer) -> None:
        self._tpu, self._killer = tpu, killer

    def list_queued_resources(self, zone: Zone) -> Listing[QueuedResource]:
        self._killer.point("list before")
        answer = self._tpu.list_queued_resources(zone)
        self._killer.point("list answered")
        return answer

    def list_nodes(self, zone: Zone) -> Listing[Node]:
        self._killer.point("nodes before")
        answer = self._tpu.list_nodes(zone)
        self._killer.point("nodes answered")
        return answer

    def get_queued_resource(self, zone: Zone, name: QrName) -> QueuedResource:
        self._killer.point("get before")
        answer = self._tpu.get_queued_resource(zone, name)
        self._killer.point("get answered")
        return answer

    def get_node(self, zone: Zone, node_id: str) -> Node:
        return self._tpu.get_node(zone, node_id)

    def create_queued_resource(self, request: QrRequest, request_id: str) -> None:
        self._killer.point("create before")
        self._tpu.create_queued_resource(request, request_id)
        self._killer.point("create took effect")
        self._killer.point("create answered")

    def delete_queued_resource(self, zone: Zone, name: QrName, request_id: str) -> None:
        self._killer.point("delete before")
        self._tpu.delete_queued_resource(zone, name, request_id)
        self._killer.point("delete took effect")
        self._killer.point("delete answered")
