"""The startup script's text, for whoever creates a VM (attribute `startup-script`)."""

from __future__ import annotations

from importlib import resources


def startup_script() -> str:
    """The same text for head and hosts; everything that differs is in the attribute `tpuctl-config`."""
    return resources.files("tpuctl.hosts").joinpath("startup.sh").read_text(encoding="utf-8")
