"""Who this head is, and its places on the data disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tpuctl.base.ids import ClusterName, Epoch


@dataclass(frozen=True, slots=True)
class Identity:
    cluster: ClusterName
    epoch: Epoch
    address: str  # the head's own, where the service listens


@dataclass(frozen=True, slots=True)
class Places:
    """On the head's data disk."""

    data: Path

    @property
    def store(self) -> Path:
        return self.data / "store.sqlite3"

    @property
    def runs(self) -> Path:
        return self.data / "runs"

    @property
    def bundles(self) -> Path:
        return self.data / "bundles"

    @property
    def ray_json(self) -> Path:
        return self.data / "ray.json"

    @property
    def lock(self) -> Path:
        return self.data / "agent.lock"
