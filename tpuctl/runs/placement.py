"""Where in Ray the hosts of an attempt are, and what holds them: all of them or none.

One STRICT_SPREAD placement group whose bundles are pinned by our labels `tpuctl/incarnation` and `tpuctl/worker`: it is
atomic, rank order is bundle order, and a host that rejoined under another incarnation can never be taken for the old
one. Ray's own slice reservation does neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray
from ray._private.state import state as ray_state
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from tpuctl.base.clock import Clock
from tpuctl.runs.conduct import NotStarted, RankLost
from tpuctl.runs.launcher import Launcher
from tpuctl.runs.program import Place


def find_nodes(
    wanted: tuple[Place, ...], clock: Clock, limit_s: float, interrupted: Callable[[], bool]
) -> list[str] | NotStarted:
    """Ray's node of each rank. A worker that Ray lists twice (rejoined, its ghost not yet dead) is waited for."""
    give_up_s = clock.monotonic() + limit_s
    while True:
        by_place = _nodes_by_place()
        found = [by_place.get((place.slice.incarnation, str(place.worker)), []) for place in wanted]
        if all(len(nodes) == 1 for nodes in found):
            return [nodes[0] for nodes in found]
        if interrupted() or clock.monotonic() >= give_up_s:
            missing = [(place, nodes) for place, nodes in zip(wanted, found, strict=True) if len(nodes) != 1]
            lost = tuple(RankLost(place.rank, "dead", f"Ray has {len(nodes)} of it") for place, nodes in missing)
            return NotStarted("not all hosts are in Ray", lost)
        clock.sleep(0.1)


def _nodes_by_place() -> dict[tuple[str, str], list[str]]:
    """Ids of the living nodes that do not drain, by (incarnation, worker)."""
    by_place: dict[tuple[str, str], list[str]] = {}
    draining = ray_state.get_draining_nodes()
    for node in ray.nodes():
        labels = node["Labels"]
        if node["Alive"] and node["NodeID"] not in draining:
            key = (labels.get("tpuctl/incarnation", ""), labels.get("tpuctl/worker", ""))
            by_place.setdefault(key, []).append(node["NodeID"])
    return by_place


def reserve(name: str, wanted: tuple[Place, ...]) -> Any:
    """The group; Ray makes it in the background."""
    return placement_group(
        [{"TPU": place.slice.chips_per_host} for place in wanted],
        strategy="STRICT_SPREAD",
        name=name,
        bundle_label_selector=[
            {"tpuctl/incarnation": place.slice.incarnation, "tpuctl/worker": str(place.worker)} for place in wanted
        ],
    )


def launchers(group: Any, wanted: tuple[Place, ...], clock: Clock) -> list[Any]:
    """One actor a rank, in rank order; they come up in the background."""
    # max_concurrency: `wait` blocks one thread for the whole attempt, beats and stops need others.
    actor = ray.remote(max_restarts=0, max_task_retries=0, max_concurrency=6, num_cpus=0)(Launcher)
    actors = []
    for place in wanted:
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=place.rank)
        options = actor.options(resources={"TPU": place.slice.chips_per_host}, scheduling_strategy=strategy)
        actors.append(options.remote(clock))
    return actors
