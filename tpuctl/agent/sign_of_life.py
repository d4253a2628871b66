"""When a user last did something that changed something: what the dead-man rule `ttl` counts from."""

from __future__ import annotations

from typing import Any

from tpuctl.base.units import Instant
from tpuctl.fleet.pass_ import SEEN_USER
from tpuctl.spec.document import read_cluster
from tpuctl.store.database import Store, Transaction


def note_user(tx: Transaction, now: Instant) -> None:
    """In the transaction of what the user did: up, submit, cancel, down, cron, keep. Reading is no sign of life, as a
    forgotten `status --watch` would be."""
    tx.put_meta(SEEN_USER, repr(now.unix_s))


def keep(store: Store, now: Instant) -> dict[str, Any]:
    """A sign of life and nothing else; says until when it holds, `null` without a `ttl`."""
    with store.transaction() as tx:
        note_user(tx, now)
        stored = tx.spec()
    ttl_s = None if stored is None else read_cluster(stored.document).ttl_s
    return {"seen_user_at": now.iso(), "ttl_s": ttl_s, "until": None if ttl_s is None else now.plus(ttl_s).iso()}
