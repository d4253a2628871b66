"""Queued runs are news for the fleet where a pool grows with them."""

from __future__ import annotations

from pathlib import Path

from tests.agent.stage import CLUSTER, Stage, a_cluster_spec
from tpuctl.agent.intake import put_spec
from tpuctl.agent.round import Facts, demand_in, read_facts
from tpuctl.spec.document import dump
from tpuctl.spec.pool import SliceRange


def facts(stage: Stage) -> Facts:
    found = read_facts(stage.store, stage.clock.now())
    assert found is not None
    return found


def test_queued_runs_are_demand_only_where_a_pool_grows(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    run = stage.submit("digits")
    assert demand_in(facts(stage)) == frozenset()

    spec = a_cluster_spec()
    growing = spec.pools[0].model_copy(update={"slices": SliceRange(min=0, max=9)})
    put_spec(stage.store, dump(spec.model_copy(update={"pools": (growing,)})), CLUSTER, stage.clock.now())

    assert demand_in(facts(stage)) == frozenset({run.id})
    stage.cancel("digits")
    assert demand_in(facts(stage)) == frozenset()
