"""The accelerator table: what a type name means in chips and hosts. Never compute from a name's digits elsewhere.

The number in a name counts TensorCores for v2, v3, v4 and v5p, and chips for v5e and v6e. Source: the public
"Cloud TPU system architecture" pages, one a generation; v5p's rule: every multiple of 128 cores that is A x B x C with
each side a multiple of 4.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tpuctl.base.errors import UserError


@dataclass(frozen=True, slots=True)
class Accelerator:
    name: str  # as the API calls it, e.g. v5litepod-16
    generation: str  # v2, v3, v4, v5e, v5p, v6e
    chips: int
    hosts: int
    chips_per_host: int
    topology: str  # e.g. 2x2x4
    runtime: str  # the usual one for JAX

    @property
    def joins_gangs(self) -> bool:
        """Several slices of it can be one multislice gang. Source: docs/facts.md, accelerators."""
        return self.generation not in ("v2", "v3")


class UnknownAcceleratorError(UserError):
    """No such type; `near` are the names that look like it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.near = near_names(name)
        known = f"nearest: {', '.join(self.near)}" if self.near else f"known: {', '.join(_EXAMPLES)}"
        super().__init__(f"unknown accelerator type {name!r} ({known})")


_EXAMPLES = ("v2-8", "v3-8", "v4-8", "v5litepod-16", "v5p-8", "v6e-8")

GENERATIONS = ("v2", "v3", "v4", "v5e", "v5p", "v6e")
USUAL_RUNTIME = {
    "v2": "tpu-ubuntu2204-base",
    "v3": "tpu-ubuntu2204-base",
    "v4": "tpu-ubuntu2204-base",
    "v5e": "v2-alpha-tpuv5-lite",
    "v5p": "v2-alpha-tpuv5",
    "v6e": "v2-alpha-tpuv6e",
}
# Names of a generation that people and pages use, besides our own.
_GENERATION_ALIAS = {"v5litepod": "v5e", "v5lite": "v5e"}

# chips -> topology
_V2 = {4: "2x2", 16: "4x4", 64: "8x8", 128: "8x16", 256: "16x16"}
_V3 = {4: "2x2", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16", 512: "16x32", 1024: "32x32"}
_FLAT = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
_SMALL_CUBES = {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4"}
_V4_CUBES = (64, 128, 256, 512, 1024, 2048)
_V5P_LARGEST = 6144  # chips; the pod has 8960, the largest slice is this


def canonical_name(name: str) -> str:
    """`v5e-16` is `v5litepod-16` to the API; every other name stands for itself."""
    return re.sub(r"^v5e-", "v5litepod-", name)


def canonical_generation(name: str) -> str | None:
    """v2, v3, v4, v5e, v5p or v6e, or None."""
    found = _GENERATION_ALIAS.get(name, name)
    return found if found in GENERATIONS else None


def accelerator(name: str) -> Accelerator:
    """The type of that name, or of the alias `v5e-N`. Raises UnknownAcceleratorError: a type is never guessed."""
    found = all_accelerators().get(canonical_name(name))
    if found is None:
        raise UnknownAcceleratorError(name)
    return found


def near_names(name: str) -> tuple[str, ...]:
    """Up to three known types that look like `name`."""
    wanted = canonical_name(name.strip().lower().replace("_", "-"))
    known = all_accelerators()
    if wanted in known:
        return (wanted,)
    generation, _, size = wanted.partition("-")
    same = [each for each in known if each.partition("-")[0] == generation]
    if same and size.isdecimal() and len(size) < 9:
        near = sorted(same, key=lambda each: abs(math.log((int(size) or 1) / int(each.partition("-")[2]))))[:2]
        return tuple(sorted(near, key=lambda each: int(each.partition("-")[2])))
    return tuple(difflib.get_close_matches(wanted, list(known), n=3, cutoff=0.6))


@cache
def all_accelerators() -> dict[str, Accelerator]:
    """Every known type by its API name, smallest first within a generation."""
    return {each.name: each for each in _table()}


def _table() -> Iterator[Accelerator]:
    for generation, flat in (("v2", _V2), ("v3", _V3)):
        for chips, topology in flat.items():
            yield _by_cores(generation, chips, topology)
    for chips, topology in _SMALL_CUBES.items():
        yield _by_cores("v4", chips, topology)
    for chips in _V4_CUBES:
        yield _by_cores("v4", chips, _cube(chips))
    for chips, topology in _SMALL_CUBES.items():
        yield _by_cores("v5p", chips, topology)
    for chips in range(64, _V5P_LARGEST + 1, 64):
        yield _by_cores("v5p", chips, _cube(chips))
    for generation, prefix in (("v5e", "v5litepod"), ("v6e", "v6e")):
        for chips, topology in _FLAT.items():
            hosts = 1 if chips <= 8 else chips // 4
            yield Accelerator(
                f"{prefix}-{chips}", generation, chips, hosts, chips // hosts, topology, USUAL_RUNTIME[generation]
            )


def _by_cores(generation: str, chips: int, topology: str) -> Accelerator:
    """Two cores a chip, four chips a host, one host at least."""
    return Accelerator(
        f"{generation}-{chips * 2}", generation, chips, chips // 4, 4, topology, USUAL_RUNTIME[generation]
    )


def _cube(chips: int) -> str:
    """The default shape of a multiple of 64 chips: sides are multiples of 4, as near to a cube as they can be."""
    blocks = chips // 64
    shapes = [
        (a, b, blocks // (a * b))
        for a in range(1, round(blocks ** (1 / 3)) + 2)
        for b in range(a, math.isqrt(blocks // a) + 1)
        if blocks % (a * b) == 0
    ]
    a, b, c = min(shapes, key=lambda shape: (shape[2], -shape[0]))
    return f"{4 * a}x{4 * b}x{4 * c}"
