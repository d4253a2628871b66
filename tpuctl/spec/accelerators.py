"""The accelerator table: what a type name means in chips and hosts. Never compute from a name's digits elsewhere."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Accelerator:
    name: str  # as the API calls it, e.g. v5litepod-16
    generation: str  # v2, v3, v4, v5e, v5p, v6e
    chips: int
    hosts: int
    chips_per_host: int
    topology: str  # e.g. 2x2x4
    runtime: str  # the usual one for JAX
