"""From specs to what the planner and the supervisor get."""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.base.chance import SeededChance
from tpuctl.base.errors import UserError
from tpuctl.base.ids import ClusterName, Epoch, PoolName, RunId, RunName, Zone
from tpuctl.base.units import Instant
from tpuctl.runs.submit import document_of, mint_run_id, resolve
from tpuctl.spec.cluster import ClusterSpec, HeadSpec
from tpuctl.spec.pool import PoolSpec, fixed
from tpuctl.spec.run import CheckpointSpec, RunSpec, UseEntry


def a_pool(name: str, accelerator: str = "v4-16", slices: int = 2, zone: str = "b") -> PoolSpec:
    return PoolSpec(
        name=PoolName(name), accelerators=(accelerator,), zones=(Zone(zone),), runtime="r", slices=fixed(slices)
    )


def a_cluster(*pools: PoolSpec, storage: str = "gs://lab-us/") -> ClusterSpec:
    roots = (("us", storage),) if storage else ()
    head = HeadSpec(zone=Zone("b"))
    return ClusterSpec(
        cluster=ClusterName("lab"), project="p", head=head, storage=roots, pools=pools or (a_pool("v4"),)
    )


def a_spec(**fields: Any) -> RunSpec:
    return RunSpec(**{"name": "digits", "command": "python train.py", **fields})


def test_run_without_use_may_go_anywhere_in_the_specs_order() -> None:
    want = resolve(a_spec(), a_cluster(a_pool("x"), a_pool("y", "v5litepod-16")))

    assert (want.pools, want.accelerators) == (("x", "y"), ("v4-16", "v5litepod-16"))


def test_use_is_an_order_of_preference_and_a_pool_counts_once() -> None:
    cluster = a_cluster(a_pool("a"), a_pool("b", "v5litepod-16"), a_pool("c"))
    spec = a_spec(use=(UseEntry(accelerator="v5litepod-16"), UseEntry(pool="c"), UseEntry(accelerator="v4-16")))

    want = resolve(spec, cluster)

    assert (want.pools, want.accelerators) == (("b", "c", "a"), ("v5litepod-16", "v4-16"))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"use": (UseEntry(pool="v9"),)}, "pool 'v9'; pools of cluster 'lab': v4"),
        ({"min_slices": 3, "max_slices": 3}, "wants 3 slices.*at most 2"),
        ({"min_slices": 2, "max_slices": 1}, "min 2 is more than max 1"),
    ],
)
def test_run_that_can_never_run_is_refused_with_what_to_change(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        resolve(a_spec(**fields), a_cluster())


def test_slices_of_a_type_without_multislice_make_no_gang() -> None:  # A19
    old, new = a_pool("old", "v2-8"), a_pool("new")

    with pytest.raises(UserError, match=r"v2-8 cannot be joined: multislice needs v4 or later"):
        resolve(a_spec(min_slices=2, max_slices=2), a_cluster(old))
    assert resolve(a_spec(min_slices=2, max_slices=2), a_cluster(old, new)).accelerators == ("v4-16",)
    assert resolve(a_spec(min_slices=1, max_slices=2), a_cluster(old)).accelerators == ("v2-8",)


def test_slices_of_two_zones_do_not_make_a_gang() -> None:
    with pytest.raises(UserError, match="in one zone"):
        resolve(a_spec(min_slices=3, max_slices=3), a_cluster(a_pool("a", zone="b"), a_pool("c", zone="z")))


@pytest.mark.parametrize(
    ("storage", "directory", "expected"),
    [
        ("gs://lab-us/", "{storage}/runs/{run}", "gs://lab-us/runs/digits"),
        ("file:///tmp/bucket", "{storage}/runs/{run}", "/tmp/bucket/runs/digits"),
        ("", "/mnt/x", "/mnt/x"),
        ("gs://lab-us/", "{storage}/{run_id}", "gs://lab-us/digits-1-abcd"),
    ],
)
def test_checkpoint_directory_is_the_same_in_all_attempts(storage: str, directory: str, expected: str) -> None:
    spec, cluster = a_spec(checkpoint=CheckpointSpec(dir=directory)), a_cluster(storage=storage)

    document = document_of(spec, cluster, resolve(spec, cluster), RunId("digits-1-abcd"), Epoch("t"), "")

    assert document.checkpoint_dir == expected
    assert (document.command, document.hold_s, document.pool) == ("python train.py", 25.0, "v4")


def test_checkpoint_in_a_storage_that_is_not_there_is_refused() -> None:
    spec, cluster = a_spec(), a_cluster(storage="")

    with pytest.raises(UserError, match="storage:"):
        document_of(spec, cluster, resolve(spec, cluster), RunId("digits-1-abcd"), Epoch("t"), "")


def test_run_ids_say_whose_they_are_and_differ_within_a_second() -> None:
    chance, now = SeededChance(1), Instant(1_796_000_000.0)

    first, second = mint_run_id(RunName("digits"), now, chance), mint_run_id(RunName("digits"), now, chance)

    assert first != second
    assert [len(part) for part in first.split("-")] == [6, 6, 4]
