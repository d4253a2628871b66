"""Who has this host's TPU chips open. Only looked at, never locked: the lock is libtpu's, or tpuctl.jax's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

DEVICES = ("accel", "vfio/")  # below /dev: up to v4 and v5, and later ones


def device_root(environment: Mapping[str, str]) -> Path:
    """`TPU_DEV_ROOT`, which the emulated image sets; `/dev` on a real VM."""
    return Path(environment.get("TPU_DEV_ROOT") or "/dev")


def holders(root: Path) -> dict[int, str]:
    """Processes with an open chip, each with the chip's path. Those of other users cannot be seen without root."""
    prefixes = tuple(f"{root}/{name}" for name in DEVICES)
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            targets = [str(link.readlink()) for link in (entry / "fd").iterdir()]
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # gone meanwhile, or not ours
        held = next((target for target in targets if target.startswith(prefixes)), None)
        if held is not None and held != f"{root}/vfio/vfio":
            found[int(entry.name)] = held
    return found
