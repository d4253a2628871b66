"""Incarnations that are not offered again for a while, although Ray may call them alive: those that lost contact for
the rejoin window, and those on which a program of an ended attempt may still live until its fence.

Ray's table names a frozen host alive for up to its detection time; without this the next attempt would take the very
slice that the last one lost (measured: a minute wasted). Kept in `meta`, so that a restart of the agent remembers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Protocol

from tpuctl.base.ids import QrName
from tpuctl.base.units import Instant

_KEY = "kept_off"


class Meta(Protocol):
    def meta(self, key: str) -> str | None: ...

    def put_meta(self, key: str, value: str) -> None: ...


def read_kept_off(store: Meta, now: Instant) -> Mapping[QrName, Instant]:
    """Those whose time is not over."""
    held = {QrName(name): Instant(float(until)) for name, until in json.loads(store.meta(_KEY) or "{}").items()}
    return {name: until for name, until in held.items() if until > now}


def keep_off(store: Meta, incarnations: Iterable[QrName], until: Instant, now: Instant) -> None:
    names = tuple(incarnations)
    if names:
        before = read_kept_off(store, now)
        held = {**before, **{name: max(until, before.get(name, until)) for name in names}}
        store.put_meta(_KEY, json.dumps({name: at.unix_s for name, at in held.items()}, sort_keys=True))
