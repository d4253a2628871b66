"""From what a user submits to what the planner and the supervisor need."""

from __future__ import annotations

from tpuctl.base.chance import Chance
from tpuctl.base.errors import UserError
from tpuctl.base.ids import Epoch, RunId, RunName, base36
from tpuctl.base.units import Instant
from tpuctl.runs.model import RunWant
from tpuctl.runs.orders import RunDocument
from tpuctl.spec.checkpoint import expand_dir
from tpuctl.spec.cluster import ClusterSpec
from tpuctl.spec.pool import Place, PoolSpec
from tpuctl.spec.run import RunSpec, UseEntry

MAX_LOSSES = 10  # host faults and losses of contact together. A guess: enough for a bad night, no endless loop.
LEASE_S = 10.0  # a host cut off from the head ends its program after this long


def mint_run_id(name: RunName, now: Instant, chance: Chance) -> RunId:
    """`<name>-<base36 second>-<4 random>`: unique, sorts by time within a name, and says whose it is."""
    draw = base36(int(chance.unit() * 36**4)).rjust(4, "0")
    return RunId(f"{name}-{base36(int(now.unix_s))}-{draw}")


def resolve(spec: RunSpec, cluster: ClusterSpec) -> RunWant:
    """Where it may run. Raises UserError, with what to change, when it can never run on this cluster."""
    if spec.min_slices > spec.max_slices:
        raise UserError(f"run {spec.name!r}: slices min {spec.min_slices} is more than max {spec.max_slices}")
    pools = _pools(spec, cluster)
    if spec.min_slices > 1 and not any(
        place.accelerator.joins_gangs for pool in pools for place in _places(spec, pool)
    ):
        kinds = ", ".join(dict.fromkeys(place.accelerator.name for pool in pools for place in _places(spec, pool)))
        raise UserError(
            f"run {spec.name!r} wants {spec.min_slices} slices at once, and {kinds} cannot be joined: multislice needs "
            "v4 or later; write 'slices: 1', or use another pool"
        )
    largest = _largest_gang(spec, cluster, pools)
    if spec.min_slices > largest:
        names = ", ".join(pool.name for pool in pools)
        raise UserError(
            f"run {spec.name!r} wants {spec.min_slices} slices of one type in one zone; "
            f"its pools ({names}) have at most {largest}: ask for fewer, or raise `slices` of the pool"
        )
    return RunWant(
        tuple(pool.name for pool in pools),
        tuple(dict.fromkeys(place.accelerator.name for pool in pools for place in _gang_places(spec, pool))),
        spec.min_slices,
        spec.max_slices,
        spec.max_failures,
        MAX_LOSSES,
        spec.checkpoint.grace_s,
    )


def document_of(
    spec: RunSpec, cluster: ClusterSpec, want: RunWant, run_id: RunId, epoch: Epoch, bundle: str
) -> RunDocument:
    """run.json: the same for all attempts, so that checkpoints are found again (A54)."""
    return RunDocument(
        RunName(spec.name),
        run_id,
        epoch,
        spec.command,
        spec.env,
        checkpoint_dir(spec, cluster, run_id),
        spec.checkpoint.grace_s,
        bundle,
        cluster.detection.hold_s,
        LEASE_S,
        want.pools[0],
    )


def checkpoint_dir(spec: RunSpec, cluster: ClusterSpec, run_id: RunId) -> str:
    """With the placeholders filled in. Raises UserError if it needs a storage that the cluster has not."""
    storage = cluster.storage[0][1].rstrip("/") if cluster.storage else ""
    return expand_dir(spec.checkpoint.dir, storage, spec.name, run_id)


def _pools(spec: RunSpec, cluster: ClusterSpec) -> tuple[PoolSpec, ...]:
    """In the order of preference; a pool counts once."""
    found: list[PoolSpec] = []
    for entry in spec.use or (UseEntry(),):
        fitting = [pool for pool in cluster.pools if _fits(entry, pool)]
        if not fitting:
            names = ", ".join(pool.name for pool in cluster.pools) or "none"
            wanted = f"pool {entry.pool!r}" if entry.pool else f"a pool of {entry.accelerator!r}"
            raise UserError(f"run {spec.name!r} wants {wanted}; pools of cluster {cluster.cluster!r}: {names}")
        found += [pool for pool in fitting if pool not in found]
    return tuple(found)


def _fits(entry: UseEntry, pool: PoolSpec) -> bool:
    return any(_is_for(entry, pool, place) for place in pool.places)


def _is_for(entry: UseEntry, pool: PoolSpec, place: Place) -> bool:
    return entry.pool in ("", pool.name) and entry.accelerator in ("", place.accelerator.name)


def _places(spec: RunSpec, pool: PoolSpec) -> tuple[Place, ...]:
    """Those of the pool that the run may use."""
    entries = spec.use or (UseEntry(),)
    return tuple(place for place in pool.places if any(_is_for(entry, pool, place) for entry in entries))


def _gang_places(spec: RunSpec, pool: PoolSpec) -> tuple[Place, ...]:
    """Those where its smallest gang can be: several slices of v2 or v3 cannot be one (A19)."""
    return tuple(place for place in _places(spec, pool) if spec.min_slices == 1 or place.accelerator.joins_gangs)


def _largest_gang(spec: RunSpec, cluster: ClusterSpec, pools: tuple[PoolSpec, ...]) -> int:
    """The most slices of one type in one zone that these pools may ever have."""
    sizes: dict[Place, int] = {}
    for pool in pools:
        for place in _gang_places(spec, pool):
            sizes[place] = sizes.get(place, 0) + cluster.most_slices(pool)
    return max(sizes.values(), default=0)
