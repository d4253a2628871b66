"""The dead-man rule: a head whose last pass is long ago keeps nothing alive, and every command says so.

What is known comes with answers that a command asked for anyway, or from what this machine remembers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpuctl.base.units import Instant, show_duration

SILENT_AFTER_S = 600.0
# With each answer of the agent: whole seconds since its last completed pass, by its own clock.
PASS_AGE_HEADER = "X-Tpuctl-Pass-Age"


def silence_of(age_s: float | None) -> str:
    """A line for people; "" while all is well, or when nothing is known."""
    if age_s is None or age_s <= SILENT_AFTER_S:
        return ""
    return (
        f"no pass was completed for {show_duration(float(int(age_s)))}: lost slices are not replaced. "
        "See 'tpuctl status'; 'tpuctl reconcile' runs one"
    )


def pass_age(headers: Mapping[str, str]) -> float | None:
    """From an answer's headers, names in lower case."""
    text = headers.get(PASS_AGE_HEADER.lower(), "")
    return float(text) if text.isascii() and text.isdigit() else None


def remembered_age(document: Mapping[str, Any] | None, now: Instant) -> float | None:
    """Of the last pass that a remembered `status` document knows, as of now. It may have passed since, unseen."""
    try:
        return None if document is None else max(0.0, now.since(Instant.parse(document["last_pass"]["at"])))
    except (KeyError, TypeError, ValueError):
        return None
