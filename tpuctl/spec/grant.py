"""The grant: read with its places, held against the pools, and against today."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from tpuctl.base.ids import Zone
from tpuctl.base.units import Instant
from tpuctl.spec.accelerators import GENERATIONS, Accelerator, canonical_generation
from tpuctl.spec.cluster import ClusterSpec, GrantEntry, GrantSpec, PoolSpec, Tier
from tpuctl.spec.errors import GrantOverError
from tpuctl.spec.fields import Fields, Problems, shown
from tpuctl.spec.tree import Mapping, Node, Scalar

TIERS = ("spot", "on-demand", "reserved")
_MOST_CHIPS = 1_000_000
_DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class PlacedPool:
    spec: PoolSpec
    accelerator: Accelerator | None  # None: refused already
    node: Mapping


def read_grant(top: Fields) -> GrantSpec | None:
    """None for `grant: none` and when it is absent."""
    node = top.get("grant")
    if node is None or (isinstance(node, Scalar) and node.text == "none"):
        return None
    fields = top.block("grant")
    if fields is None:
        return None
    until = fields.read("until", lambda node, what: _end_of_day(fields.problems, node, what), None)
    return GrantSpec(until=until, entries=_entries(fields))


def _end_of_day(problems: Problems, node: Node, what: str) -> Instant | None:
    text = problems.as_written(node, what)
    if text is None:
        return None
    # date.fromisoformat also takes 20261230 and 2026-W53-3; one spelling is enough.
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        try:
            day = dt.datetime.combine(dt.date.fromisoformat(text), dt.time(), dt.UTC)
            return Instant(day.timestamp() + _DAY_S)
        except ValueError:
            pass  # no such day: told below with the other spellings
    problems.add(node, f"{what} must be a day like 2026-12-30, not {shown(text)}")
    return None


def _entries(fields: Fields) -> tuple[GrantEntry, ...]:
    problems, entries = fields.problems, list[GrantEntry]()
    node = fields.get("chips")
    mapping = None if node is None else problems.mapping(node, "grant.chips")
    for key, value in mapping.items if mapping is not None else ():
        chips = problems.whole(value, f"grant.chips {key.text}", 1, _MOST_CHIPS)
        place = _place(problems, key)
        if chips is None or place is None:
            continue
        zone, generation, tier = place
        if any((entry.zone, entry.generation, entry.tier) == place for entry in entries):
            problems.add(
                key, f"grant {shown(key.text)} is there twice (v5litepod and v5e are one); remove one of the two"
            )
            continue
        entries.append(GrantEntry(zone=zone, generation=generation, tier=tier, chips=chips))
    return tuple(entries)


def _place(problems: Problems, key: Scalar) -> tuple[Zone, str, Tier] | None:
    parts = key.text.split("/")
    if len(parts) != 3:
        problems.add(key, f"grant {shown(key.text)} must be zone/generation/tier, like us-central2-b/v4/spot")
        return None
    zone, generation, tier = parts[0], canonical_generation(parts[1]), parts[2]
    if not re.fullmatch(r"[a-z]+(?:-[a-z]+)+[0-9]+-[a-z0-9]+", zone):
        problems.add(key, f"grant {shown(key.text)}: {shown(zone)} is no zone; a zone looks like us-central2-b")
    elif generation is None:
        problems.add(key, f"grant {shown(key.text)}: generation {shown(parts[1])} is none of {', '.join(GENERATIONS)}")
    elif tier not in TIERS:
        problems.add(key, f"grant {shown(key.text)}: tier {shown(tier)} is none of {', '.join(TIERS)}")
    else:
        return Zone(zone), generation, cast("Tier", tier)
    return None


def check_pools(grant: GrantSpec, pools: Sequence[PlacedPool], problems: Problems) -> None:
    """Each pool must lie inside the grant, and all pools of one entry together within its chips."""
    asked: dict[tuple[str, str, str], int] = {}
    for pool in pools:
        if pool.accelerator is None or not pool.spec.zone:
            continue  # refused already
        key = (pool.spec.zone, pool.accelerator.generation, pool.spec.tier)
        place = "/".join(key)
        at = pool.node.key("slices") or pool.node
        granted = next(
            (entry.chips for entry in grant.entries if (entry.zone, entry.generation, entry.tier) == key), None
        )
        if granted is None:
            known = ", ".join(f"{each.zone}/{each.generation}/{each.tier}" for each in grant.entries) or "nothing"
            problems.add(
                pool.node.key("zones") or pool.node,
                f"pool {pool.spec.name!r} is outside the grant: {place} is not granted, {known} is; it would be billed",
            )
            continue
        chips = pool.spec.slices * pool.accelerator.chips
        before = asked.get(key, 0)
        asked[key] = before + chips
        if before <= granted < before + chips:  # told once, at the pool that goes over
            others = f", with the pools above {before + chips}," if before else ""
            problems.add(
                at,
                f"pool {pool.spec.name!r} asks for {pool.spec.slices} x {pool.spec.accelerator} = {chips} chips"
                f"{others} of {granted} granted in {place}; lower slices",
            )


def check_grant(spec: ClusterSpec, now: Instant) -> None:
    """Raises GrantOverError when the grant's last day has passed: what is asked for after it is billed."""
    until = None if spec.grant is None else spec.grant.until
    if until is not None and now >= until:
        last = until.plus(-1).iso()[:10]
        raise GrantOverError(
            f"the grant of cluster {spec.cluster!r} ended with {last} (UTC); after it slices are billed. "
            "Correct grant.until, or write 'grant: none' to go on without one"
        )
