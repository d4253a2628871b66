"""What a rank's program is started with: its argv and its environment, byte for byte (A27 to A31, A37). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tpuctl.runs.orders import Order, OrderedSlice, RunDocument

# Of Ray's workers, of the platform and of tpuctl itself; none of it describes this attempt.
# OMP_NUM_THREADS is Ray's number of CPUs, which is 1 or less here. MEGASCALE_* and TPU bounds may be stale (A37).
_SCRUBBED = re.compile(
    r"RAY_.*|OMP_NUM_THREADS|TPU_VISIBLE_CHIPS|TPU_.*_BOUNDS|MEGASCALE_.*|TPUCTL_.*|JAX_COORDINATOR_ADDRESS"
)
# Always ours: with one slice the program must see none of them.
_MEGASCALE = ("MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_PORT", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank of an attempt runs."""

    rank: int
    slice_id: int
    worker: int
    slice: OrderedSlice


@dataclass(frozen=True, slots=True)
class Coordinator:
    """On the host of rank 0, ports free when they were chosen."""

    address: str
    port: int
    megascale_port: int


def places(order: Order) -> tuple[Place, ...]:
    """Rank order is (slice, worker)."""
    pairs = [(index, each, worker) for index, each in enumerate(order.slices) for worker in range(each.hosts)]
    return tuple(Place(rank, index, worker, each) for rank, (index, each, worker) in enumerate(pairs))


def argv_of(command: str | tuple[str, ...]) -> list[str]:
    """A line goes to bash as it is; a list is the argv."""
    return ["bash", "-eo", "pipefail", "-c", command] if isinstance(command, str) else list(command)


def environment_of(
    own: Mapping[str, str], document: RunDocument, order: Order, place: Place, coordinator: Coordinator
) -> dict[str, str]:
    """`own` is the environment of the Ray worker on that host; the spec's `env` beats it, our names beat both."""
    kept = {name: value for name, value in own.items() if not _SCRUBBED.fullmatch(name)}
    if kept.get("PYTHONBREAKPOINT", "").startswith("ray."):
        del kept["PYTHONBREAKPOINT"]  # Ray's debugger, which would wait for a client
    asked = {name: value for name, value in document.env if name not in _MEGASCALE}
    return {**kept, **asked, **_ours(document, order, place, coordinator)}


def _ours(document: RunDocument, order: Order, place: Place, coordinator: Coordinator) -> dict[str, str]:
    at = f"{coordinator.address}:{coordinator.port}"
    slices = len(order.slices)
    ours = {
        "TPUCTL_RUN": document.run,
        "TPUCTL_RUN_ID": document.id,
        "TPUCTL_ATTEMPT": str(order.attempt),
        "TPUCTL_CHECKPOINT_DIR": document.checkpoint_dir,
        "TPUCTL_RANK": str(place.rank),
        "TPUCTL_WORLD_SIZE": str(sum(each.hosts for each in order.slices)),
        "TPUCTL_SLICE_ID": str(place.slice_id),
        "TPUCTL_NUM_SLICES": str(slices),
        "TPUCTL_COORDINATOR": at,
        "JAX_COORDINATOR_ADDRESS": at,
        "TPUCTL_ACCELERATOR": place.slice.accelerator,
        "TPUCTL_CHIPS": str(place.slice.chips_per_host),
        "TPUCTL_POOL": place.slice.pool,
        "TPUCTL_ZONE": place.slice.zone,
    }
    if slices > 1:
        values = (coordinator.address, str(coordinator.megascale_port), str(slices), str(place.slice_id))
        ours |= dict(zip(_MEGASCALE, values, strict=True))
    return ours
