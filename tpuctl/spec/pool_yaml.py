"""From the tree of a cluster spec's pools to their models."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from tpuctl.base.ids import MAX_NAME, ClusterName, Epoch, IncarnationId, PoolName, Zone
from tpuctl.base.units import Instant
from tpuctl.spec.accelerators import Accelerator, UnknownAcceleratorError, accelerator
from tpuctl.spec.cluster_keys import POOL
from tpuctl.spec.fields import Fields, Problems, shown
from tpuctl.spec.model import Tier
from tpuctl.spec.pool import (
    MAX_POOL_NAME,
    MAX_POOL_SLICES,
    DataDiskSpec,
    DeadlineSpec,
    PoolSpec,
    SliceRange,
    WindowSpec,
    fixed,
)
from tpuctl.spec.tree import Mapping, Node, Scalar
from tpuctl.spec.tree import Sequence as ListNode

T = TypeVar("T")

ZONE = r"[a-z]+(?:-[a-z]+)+[0-9]+-[a-z0-9]+"
ZONE_HINT = "a zone looks like us-central2-b"
# The longest epoch and number that the names of queued resources must have room for.
LAST_EPOCH, LAST_N = Epoch("zzzzzz"), 999_999
# Stands in for a value that was refused, so that reading goes on; a spec with any problem is never made.
_STAND_IN = PoolName("p")
_OUR_METADATA = ("tpuctl-config", "startup-script", "enable-guest-attributes")


@dataclass(frozen=True, slots=True)
class PlacedPool:
    """A pool with where it stands in the file. Accelerators and zones that were refused are not in it."""

    spec: PoolSpec
    accelerators: tuple[Accelerator, ...]
    zones: tuple[Zone, ...]
    node: Mapping


def read_pools(top: Fields, cluster: ClusterName) -> tuple[PlacedPool, ...]:
    problems = top.problems
    pools: list[PlacedPool] = []
    for node in top.items("pools"):
        mapping = problems.mapping(node, "a pool")
        if mapping is None:
            continue
        pool = _pool(Fields(mapping, POOL, problems, "pool"))
        twin = next((other for other in pools if other.spec.name == pool.spec.name), None)
        at = mapping.get("name") or mapping
        if twin is not None:
            problems.add(at, f"a second pool {pool.spec.name!r}, first on line {twin.node.line}; rename one of the two")
        _check_names(problems, at, cluster, pool.spec)
        pools.append(pool)
    return tuple(pools)


def _check_names(problems: Problems, at: Node, cluster: ClusterName, pool: PoolSpec) -> None:
    """The names made of these must fit the cloud's limit, our own suffixes counted (A25)."""
    most = MAX_POOL_SLICES if pool.slices.max is None else pool.slices.max
    longest = IncarnationId(cluster, pool.name, max(most - 1, 0), LAST_EPOCH, LAST_N).qr_name
    if len(longest) > MAX_NAME:
        problems.add(at, f"names like {longest} have {len(longest)} characters, the cloud takes {MAX_NAME}: shorten it")


def _pool(fields: Fields) -> PlacedPool:
    problems = fields.problems
    nothing: tuple[Accelerator, ...] = ()
    nowhere: tuple[Zone, ...] = ()
    made = fields.read("accelerator", lambda node, what: _accelerators(problems, node, what), nothing)
    zones = fields.read("zones", lambda node, what: _zones(problems, node, what), nowhere)
    spec = PoolSpec(
        name=PoolName(fields.name("name", MAX_POOL_NAME) or _STAND_IN),
        accelerators=tuple(each.name for each in made) or ("v4-8",),
        zones=zones or (Zone(""),),
        tier=cast("Tier", fields.choice("tier", ("spot", "on-demand", "reserved"), "spot")),
        reservation=fields.matching("reservation", r"|[a-z0-9][a-zA-Z0-9._/:-]*", "write its name or path"),
        runtime=_runtime(fields, made),
        slices=fields.read("slices", lambda node, what: _slices(problems, node, what), fixed(0)),
        idle_s=_idle(fields),
        valid=_window(fields),
        labels=_pairs(fields, "labels", _label),
        metadata=_pairs(fields, "metadata", _attribute),
        data_disks=_disks(fields, made),
        deadlines=_deadlines(fields),
    )
    if spec.reservation and spec.tier != "reserved":
        problems.add(
            fields.get("reservation") or fields.node,
            f"a reservation is used by tier reserved only, and this pool's tier is {spec.tier}; write 'tier: reserved'",
        )
    if spec.idle_s is not None and spec.slices.is_fixed:
        problems.add(
            fields.get("idle") or fields.node,
            f"idle gives back slices above slices.min, and this pool has always {spec.slices.min}; write "
            f"'slices: {{min: 0, max: {spec.slices.min}}}', or 'idle: never'",
        )
    return PlacedPool(spec, made, zones, fields.node)


def _accelerators(problems: Problems, node: Node, what: str) -> tuple[Accelerator, ...]:
    nodes: Sequence[Node] = node.items if isinstance(node, ListNode) else (node,)
    if not nodes:
        problems.add(node, f"{what}: write at least one type")
    return _each_once(problems, nodes, what, lambda each: _accelerator(problems, each, what))


def _accelerator(problems: Problems, node: Node, what: str) -> Accelerator | None:
    text = problems.text(node, what)
    if text is None:
        return None
    try:
        return accelerator(text)
    except UnknownAcceleratorError as error:
        problems.add(node, str(error))
        return None


def _zones(problems: Problems, node: Node, what: str) -> tuple[Zone, ...]:
    items = problems.items(node, what)
    if items is not None and not items:
        problems.add(node, f"{what}: write at least one zone")
    return _each_once(problems, items or (), what, lambda each: _zone(problems, each))


def _zone(problems: Problems, node: Node) -> Zone | None:
    text = problems.text(node, "a zone")
    if text is not None and not re.fullmatch(ZONE, text):
        problems.add(node, f"{shown(text)} is no zone; {ZONE_HINT}")
        return None
    return None if text is None else Zone(text)


def _each_once(problems: Problems, nodes: Sequence[Node], what: str, read: Callable[[Node], T | None]) -> tuple[T, ...]:
    found: list[T] = []
    for node in nodes:
        value = read(node)
        if value is not None and value in found:
            problems.add(node, f"{what}: this is there twice; remove one of the two")
        elif value is not None:
            found.append(value)
    return tuple(found)


def _runtime(fields: Fields, made: tuple[Accelerator, ...]) -> str:
    runtime = fields.matching("runtime", r"[a-z0-9][a-zA-Z0-9._-]*", "a runtime looks like tpu-ubuntu2204-base")
    at = fields.get("runtime") or fields.node
    generations = {each.generation for each in made}
    if runtime and len(generations) > 1:
        fields.problems.add(
            at,
            f"runtime {runtime!r} cannot be right for {' and '.join(sorted(generations))} at once; leave it out, and "
            "each gets its usual one",
        )
    elif runtime == "tpu-ubuntu2204-base" and "v6e" in generations:
        fields.problems.add(
            at, f"runtime {runtime!r} has no driver for v6e and silently computes on the CPU; write {made[0].runtime!r}"
        )
    return runtime


def _slices(problems: Problems, node: Node, what: str) -> SliceRange | None:
    if not isinstance(node, Mapping):
        number = problems.whole(node, what, 0, MAX_POOL_SLICES)
        return None if number is None else fixed(number)
    least, most = 0, None
    known = {"min", "max"}
    for key, _ in node.items:
        if key.text not in known:
            problems.add(key, f"{what}: unknown key {shown(key.text)} (known here: min, max)")
    if (low := node.get("min")) is not None:
        least = problems.whole(low, f"{what}.min", 0, MAX_POOL_SLICES) or 0
    high = node.get("max")
    if high is None:
        problems.add(node, f"{what}: missing key 'max' (a number, or grant)")
    elif not (isinstance(high, Scalar) and high.text == "grant"):
        most = problems.whole(high, f"{what}.max", 0, MAX_POOL_SLICES)
        if most is not None and most < least:
            problems.add(high, f"{what}.max ({most}) is less than min ({least}); raise it")
            most = None
    return SliceRange(min=least, max=most)


def _idle(fields: Fields) -> float | None:
    node = fields.get("idle")
    if node is None or (isinstance(node, Scalar) and node.text == "never"):
        return None
    return fields.problems.duration(node, fields.path("idle"))


def _window(pool: Fields) -> WindowSpec:
    fields = pool.block("valid")
    if fields is None:
        return WindowSpec()
    after = fields.read("after", lambda node, what: _moment(fields.problems, node, what), None)
    node = fields.get("until")
    if node is None:
        return WindowSpec(after=after)
    if isinstance(node, Scalar) and "T" in node.text:
        until = _moment(fields.problems, node, fields.path("until"))
        if until is not None and after is not None and until <= after:
            fields.problems.add(node, f"{fields.path('until')} is not after {fields.path('after')}")
        return WindowSpec(after=after, until=until)
    return WindowSpec(after=after, until_s=fields.deadline("until", None))


def _moment(problems: Problems, node: Node, what: str) -> Instant | None:
    text = problems.as_written(node, what)
    if text is None:
        return None
    try:
        return Instant.parse(text)
    except ValueError:
        problems.add(node, f"{what} must be a time like 2026-12-05T08:00:00Z, not {shown(text)}")
        return None


def _pairs(fields: Fields, name: str, check: Callable[[Problems, Scalar, str], None]) -> tuple[tuple[str, str], ...]:
    problems = fields.problems
    node = fields.get(name)
    mapping = None if node is None else problems.mapping(node, fields.path(name))
    pairs: list[tuple[str, str]] = []
    for key, value in mapping.items if mapping is not None else ():
        text = problems.as_written(value, f"{fields.path(name)}.{key.text}")
        if text is not None:
            check(problems, key, text)
            pairs.append((key.text, text))
    return tuple(pairs)


def _label(problems: Problems, key: Scalar, value: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", key.text) or not re.fullmatch(r"[a-z0-9_-]{0,63}", value):
        problems.add(key, f"label {shown(key.text)}: small letters, digits, '_' and '-' only, at most 63 of them")
    elif key.text.startswith("tpuctl"):
        problems.add(key, f"label {shown(key.text)}: names that begin with tpuctl are ours; take another")


def _attribute(problems: Problems, key: Scalar, value: str) -> None:
    del value
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", key.text):
        problems.add(key, f"metadata {shown(key.text)}: letters, digits, '_' and '-' only, at most 128 of them")
    elif key.text in _OUR_METADATA:
        problems.add(key, f"metadata {shown(key.text)} is ours; hosts would not start without it")


def _disks(pool: Fields, made: tuple[Accelerator, ...]) -> tuple[DataDiskSpec, ...]:
    block = POOL.key("data_disks")
    assert block is not None
    assert block.each is not None
    disks: list[DataDiskSpec] = []
    for node in pool.items("data_disks"):
        mapping = pool.problems.mapping(node, "a data disk")
        if mapping is None:
            continue
        fields = Fields(mapping, block.each, pool.problems, "pool.data_disks")
        mode = fields.choice("mode", ("read-only", "read-write"), "read-only")
        if mode == "read-write" and any(each.hosts > 1 for each in made):
            pool.problems.add(
                fields.get("mode") or mapping, "a slice of several hosts can only read a data disk; write read-only"
            )
        name = fields.matching("disk", r"[a-z][a-zA-Z0-9._/:-]*", "write a disk's name or path")
        disks.append(DataDiskSpec(disk=name, mode="read-write" if mode == "read-write" else "read-only"))
    return tuple(disks)


def _deadlines(pool: Fields) -> DeadlineSpec:
    fields = pool.block("deadlines")
    default = DeadlineSpec()
    if fields is None:
        return default
    return DeadlineSpec(
        queue_s=fields.deadline("queue", default.queue_s),
        provision_s=fields.deadline("provision", default.provision_s),
        boot_s=fields.deadline("boot", default.boot_s),
        join_s=fields.deadline("join", default.join_s),
    )
