"""Is this host usable? Asked before every join: a host that cannot compute must not look like one that can."""

from __future__ import annotations

import importlib.metadata
import platform
from dataclasses import dataclass

from tpuctl.hosts.chips import ChipPlaces
from tpuctl.hosts.config import HostConfig


@dataclass(frozen=True, slots=True)
class Versions:
    ray: str
    python: str


def own_versions() -> Versions:
    """Without importing Ray, which costs a second and 100 MB."""
    return Versions(importlib.metadata.version("ray"), platform.python_version())


def why_unusable(config: HostConfig, places: ChipPlaces) -> str | None:
    """None when every expected device is there. Otherwise what is wrong, for people (A17)."""
    found, expected = len(places.chips()), config.chips_per_host
    if found == expected:
        return None
    return (
        f"unusable: {found} of {expected} devices below {places.devices} on a host of {config.accelerator}; "
        "a runtime version for another generation binds no driver"
    )


def why_other_versions(own: Versions, head: Versions) -> str | None:
    """None when they are the same: Ray refuses to join otherwise, down to Python's patch version (A40)."""
    if own == head:
        return None
    here, there = (f"Ray {side.ray} and Python {side.python}" for side in (own, head))
    return f"versions differ: {here} here, {there} on the head"
