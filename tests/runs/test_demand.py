"""What queued runs would fill, by pool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tpuctl.runs.demand import demand_of
from tpuctl.spec.document import dump
from tpuctl.spec.pool import SliceRange
from tpuctl.spec.run import RunSpec, UseEntry
from tpuctl.store.records import Run, RunState
from tpuctl.testing.builders import a_cluster_spec, a_pool, a_run

GROWING = SliceRange(min=0, max=4)
CLUSTER = a_cluster_spec(
    a_pool("fixed"), a_pool("small", slices=GROWING), a_pool("large", accelerator="v4-32", slices=GROWING)
)


def queued(name: str = "digits", *, slices: int = 1, **spec: Any) -> Run:
    made = RunSpec(name=name, command=("true",), min_slices=1, max_slices=slices, **spec)
    return replace(a_run(name), spec_json=dump(made))


def test_a_queued_run_counts_with_all_slices_it_can_use_in_the_pool_it_likes_best() -> None:
    large = queued("a", slices=2, use=(UseEntry(pool="large"), UseEntry(pool="small")))
    small = queued("b", use=(UseEntry(accelerator="v4-16"),))

    assert demand_of((large, small), CLUSTER) == {"large": 32, "small": 8}


def test_a_pool_that_may_grow_comes_before_one_that_may_not() -> None:
    assert demand_of((queued(use=(UseEntry(pool="fixed"), UseEntry(pool="small"))),), CLUSTER) == {"small": 8}
    assert demand_of((queued(use=(UseEntry(pool="fixed"),)),), CLUSTER) == {"fixed": 8}


def test_runs_that_hold_slices_are_over_leave_or_can_never_run_are_no_demand() -> None:
    runs = (
        replace(queued("a"), state=RunState.RUNNING),
        replace(queued("b"), state=RunState.SUCCEEDED),
        replace(queued("c"), cancel_asked=True),
        queued("d", use=(UseEntry(pool="elsewhere"),)),
    )

    assert demand_of(runs, CLUSTER) == {}
