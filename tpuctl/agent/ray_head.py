"""What the keeper of the Ray head published: `ray.json` on the data disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuctl.base.files import read_json
from tpuctl.base.units import Instant


@dataclass(frozen=True, slots=True)
class RayHead:
    address: str  # host:port of the GCS
    dashboard: str  # URL
    version: str
    python: str
    started_at: Instant

    def document(self) -> dict[str, Any]:
        """As `/v1/head` shows it to hosts."""
        return {
            "address": self.address,
            "dashboard": self.dashboard,
            "version": self.version,
            "python": self.python,
            "started_at": self.started_at.iso(),
        }


def read_ray_head(path: Path) -> RayHead | None:
    """None while Ray is not up, also when the file is not what the keeper writes: then hosts wait, which harms none."""
    try:
        document = read_json(path)
        if document is None:
            return None
        started = document["started_at"]
        return RayHead(
            str(document["address"]),
            str(document["dashboard"]),
            str(document["version"]),
            str(document["python"]),
            Instant(float(started)) if isinstance(started, int | float) else Instant.parse(str(started)),
        )
    except (ValueError, KeyError, TypeError):
        return None
