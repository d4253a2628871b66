"""Reading several specs together: what `tpuctl validate` tells. No call is made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tpuctl.base.errors import UserError
from tpuctl.base.units import Instant
from tpuctl.spec.accelerators import accelerator
from tpuctl.spec.cluster import ClusterSpec
from tpuctl.spec.errors import SpecError
from tpuctl.spec.pool import PoolSpec
from tpuctl.spec.run import RunSpec, UseEntry
from tpuctl.spec.yaml import check_grant, lint_run, load_cluster, load_run


@dataclass(frozen=True, slots=True)
class Inspection:
    good: tuple[str, ...]  # one a spec without problems
    warnings: tuple[str, ...]
    wrong: tuple[str, ...]  # FILE:LINE:COLUMN: text, or FILE: text


def inspect(cluster_file: Path | None, run_files: tuple[Path, ...], now: Instant) -> Inspection:
    """Read all; a problem in one does not hide those of the others."""
    good, warnings, wrong = list[str](), list[str](), list[str]()
    cluster: ClusterSpec | None = None
    if cluster_file is not None:
        try:
            cluster = load_cluster(cluster_file)
            check_grant(cluster, now)
            good.append(f"{cluster_file}: {about_cluster(cluster)}")
        except UserError as error:
            wrong += _lines(cluster_file, error)
    for path in run_files:
        try:
            run = load_run(path)
        except UserError as error:
            wrong += _lines(path, error)
            continue
        misfits = [] if cluster is None else misfits_of(run, cluster)
        if run.workdir and not (path.parent / run.workdir).is_dir():
            misfits.append(f"workdir {run.workdir!r}: there is no directory {str(path.parent / run.workdir)!r}")
        wrong += [f"{path}: {text}" for text in misfits]
        warnings += [f"{path}: warning: {text}" for text in lint_run(run)]
        if not misfits:
            good.append(f"{path}: run {run.name}")
    return Inspection(tuple(good), tuple(warnings), tuple(wrong))


def _lines(path: Path, error: UserError) -> list[str]:
    return list(error.lines) if isinstance(error, SpecError) else [f"{path}: {error}"]


def about_cluster(spec: ClusterSpec) -> str:
    """`cluster lab: v4 2 x v4-32 (64 chips)`."""
    pools = [
        f"{pool.name} {pool.slices} x {' or '.join(pool.accelerators)} ({_chips(spec, pool)} chips)"
        for pool in spec.pools
    ]
    return f"cluster {spec.cluster}: {', '.join(pools) or 'no pools'}"


def _chips(spec: ClusterSpec, pool: PoolSpec) -> str:
    """`64`, or `0 to 128` where sizes or numbers may differ."""
    sizes = [accelerator(name).chips for name in pool.accelerators]
    least, most = pool.slices.min * min(sizes), spec.most_slices(pool) * max(sizes)
    return str(least) if least == most else f"{least} to {most}"


def misfits_of(run: RunSpec, cluster: ClusterSpec) -> list[str]:
    """Why this run could never start on this cluster, whatever the cloud gives. Each says what to do.

    An accelerator type that no pool has is no misfit while another entry of `use` fits: a run may serve many clusters.
    """
    misfits = list[str]()
    known = ", ".join(f"{pool.name} ({' or '.join(pool.accelerators)})" for pool in cluster.pools) or "none"
    for name in (entry.pool for entry in run.use if entry.pool and cluster.pool(entry.pool) is None):
        misfits.append(f"use: cluster {cluster.cluster!r} has no pool {name!r} (pools: {known})")
    fitting = [pool for pool in cluster.pools if not run.use or any(_fits(entry, pool) for entry in run.use)]
    if not misfits and not fitting:
        misfits.append(f"use: nothing that it names is a pool of cluster {cluster.cluster!r} (pools: {known})")
    # A gang has one accelerator type and one zone, but may come from several pools.
    sizes = dict[tuple[str, str], int]()
    for pool in fitting:
        for place in pool.places:
            key = (place.zone, place.accelerator.name)
            if not run.use or any(_fits_type(entry, pool, key[1]) for entry in run.use):
                sizes[key] = sizes.get(key, 0) + cluster.most_slices(pool)
    alone = {name for _, name in sizes if not accelerator(name).joins_gangs}
    if sizes and run.min_slices > 1 and len(alone) == len({name for _, name in sizes}):
        misfits.append(
            f"slices: {run.min_slices} are wanted at once, and {', '.join(sorted(alone))} cannot be joined: multislice "
            "needs v4 or later; write 1, or use another pool"
        )
    elif fitting and run.min_slices > max(sizes.values()):
        misfits.append(
            f"slices: {run.min_slices} are wanted, but no type in one zone has more than {max(sizes.values())}; "
            "lower slices, or raise those of a pool"
        )
    if "{storage}" in run.checkpoint.dir and not cluster.storage:
        misfits.append(
            f"checkpoint.dir is {run.checkpoint.dir!r}, but cluster {cluster.cluster!r} has no storage; "
            "add 'storage: {us: gs://…}' to it, or write a full path"
        )
    return misfits


def _fits(entry: UseEntry, pool: PoolSpec) -> bool:
    return any(_fits_type(entry, pool, name) for name in pool.accelerators)


def _fits_type(entry: UseEntry, pool: PoolSpec, name: str) -> bool:
    return pool.name == entry.pool if entry.pool else name == entry.accelerator
