"""A plan's changes of the records, in one transaction, before any of its effects."""

from __future__ import annotations

from collections.abc import Iterable

from tpuctl.base.ids import QrName
from tpuctl.fleet.model import Change, Plan
from tpuctl.store.database import Store, Transaction
from tpuctl.store.errors import SliceHeldError
from tpuctl.store.records import Event, Phase


def save_plan(store: Store, plan: Plan) -> frozenset[QrName]:
    """Returns the names whose record was no longer as the plan had read it, or that a run has leased meanwhile: their
    changes were dropped, and their actions must be too. The next pass decides anew. A plan that changes nothing waits
    for no writer."""
    if not (plan.changes or plan.events):
        return frozenset()
    with store.transaction() as tx:
        dropped = frozenset(change.after.name for change in plan.changes if not _save(tx, change))
        save_events(tx, (event for event in plan.events if event.subject not in dropped))
    return dropped


def save_events(tx: Transaction, events: Iterable[Event]) -> None:
    for event in events:
        tx.add_event(event)


def _save(tx: Transaction, change: Change) -> bool:
    present = tx.incarnation(change.after.name)
    # What is adopted again after it was GONE may have left the part of the records that the plan reads.
    resurrected = change.before is None and present is not None and present.phase is Phase.GONE
    if present != change.before and not resurrected:
        return False
    if not change.after.delete_request_id or (change.before is not None and change.before.delete_request_id):
        tx.put_incarnation(change.after)
        return True
    try:
        tx.bar_slice(change.after)
    except SliceHeldError:
        return False
    return True
