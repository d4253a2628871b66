"""How many chips queued runs would fill, by pool: what the fleet's planner grows pools by. Pure."""

from __future__ import annotations

from tpuctl.base.errors import UserError
from tpuctl.base.ids import PoolName
from tpuctl.runs.submit import resolve
from tpuctl.spec.accelerators import accelerator
from tpuctl.spec.cluster import ClusterSpec
from tpuctl.spec.document import read_run
from tpuctl.store.records import Run, RunState


def demand_of(runs: tuple[Run, ...], cluster: ClusterSpec) -> dict[PoolName, int]:
    """Each queued run counts with the most slices that it can use, in the pool that it likes best and that may grow
    (else in the one that it likes best). A run that this cluster can never run, or that is being cancelled, asks for
    nothing. Runs that hold slices are not demand: the slices count as held."""
    chips: dict[PoolName, int] = {}
    for run in runs:
        if run.state is not RunState.QUEUED or run.cancel_asked:
            continue
        try:
            want = resolve(read_run(run.spec_json), cluster)
        except UserError:
            continue  # `why` says of the run what is the matter
        pools = [pool for name in want.pools if (pool := cluster.pool(name)) is not None]
        best = next((pool for pool in pools if not pool.slices.is_fixed), pools[0])
        size = next(accelerator(name).chips for name in best.accelerators if name in want.accelerators)
        chips[best.name] = chips.get(best.name, 0) + want.max_slices * size
    return chips
