"""The grant: read with its places, held against the pools, and against today."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from tpuctl.base.ids import Zone
from tpuctl.base.units import Instant
from tpuctl.spec.accelerators import GENERATIONS, canonical_generation
from tpuctl.spec.cluster import ClusterSpec, GrantEntry, GrantSpec
from tpuctl.spec.errors import GrantOverError
from tpuctl.spec.fields import Fields, Problems, shown
from tpuctl.spec.model import Tier
from tpuctl.spec.pool_yaml import PlacedPool
from tpuctl.spec.tree import Node, Scalar

TIERS = ("spot", "on-demand", "reserved")
_MOST_CHIPS = 1_000_000
_DAY_S = 86400.0

Key = tuple[str, str, str]  # zone, generation, tier


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
    """Each pool must lie inside the grant, and what all pools always want must fit into it together."""
    chips = {_key(entry): entry.chips for entry in grant.entries}
    asked: list[tuple[frozenset[Key], int]] = []
    for pool in pools:
        if not pool.accelerators or not pool.zones:
            continue  # refused already
        keys = _granted_keys(pool, chips, problems)
        if not keys:
            continue
        wanted = pool.spec.slices.min * min(each.chips for each in pool.accelerators)
        # What may only lie within these entries has to fit into them, whatever the other pools take.
        before = sum(each for other, each in asked if other <= keys)
        granted = sum(chips[key] for key in keys)
        asked.append((keys, wanted))
        if before <= granted < before + wanted:  # told once, at the pool that goes over
            others = f", with the pools above {before + wanted}," if before else ""
            kind = " or ".join(pool.spec.accelerators)
            problems.add(
                pool.node.key("slices") or pool.node,
                f"pool {pool.spec.name!r} asks for {pool.spec.slices.min} x {kind} = {wanted} chips"
                f"{others} of {granted} granted in {_places(keys)}; lower slices",
            )


def _granted_keys(pool: PlacedPool, chips: Mapping[Key, int], problems: Problems) -> frozenset[Key]:
    """The entries that the pool may use; a zone or a type that leads to none is complained of."""
    keys = {
        (zone, each): (str(zone), each.generation, str(pool.spec.tier))
        for zone in pool.zones
        for each in pool.accelerators
    }
    useless = [
        (pool.node.key("zones"), str(zone), [key for (at, _), key in keys.items() if at == zone]) for zone in pool.zones
    ]
    useless += [
        (pool.node.key("accelerator"), each.name, [key for (_, made), key in keys.items() if made == each])
        for each in pool.accelerators
    ]
    for at, what, reached in useless:
        if not any(key in chips for key in reached):
            known = ", ".join("/".join(key) for key in chips) or "nothing"
            several = "" if len(reached) == 1 else f" ({what})"
            problems.add(
                at or pool.node,
                f"pool {pool.spec.name!r}{several} is outside the grant: {_places(reached)} is not granted, "
                f"{known} is; it would be billed",
            )
            return frozenset()
    return frozenset(key for key in keys.values() if key in chips)


def _key(entry: GrantEntry) -> Key:
    return (entry.zone, entry.generation, entry.tier)


def _places(keys: Iterable[Key]) -> str:
    return " and ".join(sorted("/".join(key) for key in keys))


def check_open_ends(grant: GrantSpec | None, pools: Sequence[PlacedPool], problems: Problems) -> None:
    """`max: grant` needs one."""
    for pool in pools:
        if grant is None and pool.spec.slices.max is None:
            problems.add(
                pool.node.key("slices") or pool.node,
                f"pool {pool.spec.name!r}: max is the grant, and there is none; write a number",
            )


def check_grant(spec: ClusterSpec, now: Instant) -> None:
    """Raises GrantOverError when the grant's last day has passed: what is asked for after it is billed."""
    until = None if spec.grant is None else spec.grant.until
    if until is not None and now >= until:
        last = until.plus(-1).iso()[:10]
        raise GrantOverError(
            f"the grant of cluster {spec.cluster!r} ended with {last} (UTC); after it slices are billed. "
            "Correct grant.until; 'tpuctl up --beyond-grant' goes on, billed; 'tpuctl down' ends the cluster"
        )
