"""Hosts on virtual time: what Ray's node table would show of the emulated cloud's nodes, where no process runs.

A host joins `join_s` after its node was READY, and is gone when the node is. Tests kill hosts, restart the head and cut
Ray off; nothing here is told to the cloud.
"""

from __future__ import annotations

from tpuctl.base.ids import IncarnationId, QrName
from tpuctl.base.units import Instant
from tpuctl.cloud.model import Known, Unknown
from tpuctl.emulator.tpu_records import NodeRecord
from tpuctl.fleet.model import RayHost, RayTable, RayView
from tpuctl.testing.in_process import EmulatedCloud


class HostsModel:
    def __init__(self, emulated: EmulatedCloud, *, join_s: float = 5.0) -> None:
        self._emulated = emulated
        self._join_s = join_s
        self._dead: set[tuple[str, int]] = set()
        self._draining: set[str] = set()
        self._head_since = emulated.clock.now().plus(-3600.0)
        self._ready_at: dict[str, Instant] = {}  # by full node name
        self.cut_off = ""  # not empty: Ray cannot be asked, and why

    def kill(self, node_id: str, worker: int) -> None:
        """The host dies silently, for good."""
        self._dead.add((node_id, worker))

    def drain(self, node_id: str) -> None:
        self._draining.add(node_id)

    def restart_head(self) -> None:
        """The Ray head forgets everybody; hosts find the new one after `join_s`."""
        self._head_since = self._emulated.clock.now()

    def view(self) -> RayView:
        clock = self._emulated.clock
        if self.cut_off:
            return Unknown(self.cut_off)
        hosts = [host for node in self._emulated.cloud.tpu.life.nodes.values() for host in self._hosts(node)]
        return Known(RayTable(tuple(hosts), self._head_since), clock.now(), clock.monotonic())

    def _hosts(self, node: NodeRecord) -> list[RayHost]:
        made = IncarnationId.from_labels(dict(node.labels))
        if node.state != "READY" or made is None:
            self._ready_at.pop(node.name, None)
            return []
        now = self._emulated.clock.now()
        since = max(self._ready_since(node), self._head_since)
        if now.since(since) < self._join_s:
            return []
        node_id = node.name.rsplit("/", 1)[1]
        return [
            RayHost(
                f"{node_id}/{worker}", made.slice_name, QrName(node_id), worker, "boot", f"10.0.0.{worker + 1}", 4,
                draining=node_id in self._draining,
            )
            for worker in range(node.accelerator.hosts)
            if (node_id, worker) not in self._dead
        ]  # fmt: skip

    def _ready_since(self, node: NodeRecord) -> Instant:
        if node.name not in self._ready_at:
            changes = (each for each in reversed(self._emulated.cloud.history) if each.resource == node.name)
            self._ready_at[node.name] = next(each.at for each in changes if each.state == "READY")
        return self._ready_at[node.name]
