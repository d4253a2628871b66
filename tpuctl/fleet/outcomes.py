"""What the answer to an effect means for the records."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tpuctl.base.chance import Chance
from tpuctl.base.clock import Clock
from tpuctl.base.ids import QrName, Zone
from tpuctl.cloud.effects import Scope
from tpuctl.cloud.errors import CloudError, ConflictError, TransientError
from tpuctl.fleet.calls import Accepted, Ours, Outcome, Taken
from tpuctl.fleet.lifecycle import NAME_CONFLICT
from tpuctl.fleet.room import QUOTA_FULL
from tpuctl.store.database import Store, Transaction
from tpuctl.store.records import ENDLESS_S, Event, Incarnation, Intent, ZoneHold

JITTER = 0.25


@dataclass(frozen=True, slots=True)
class Recorded:
    """`problem` "": it went well. `stops`: (zone, accelerator) of which nothing more is asked in this pass."""

    problem: str = ""
    stops: tuple[str, str] | None = None


def record_outcome(
    store: Store, clock: Clock, chance: Chance, row: Incarnation, outcome: Outcome, *, first: bool
) -> Recorded:
    """`first`: the create was never sent before. Then a refusal proves that nothing was made; of a repetition it does
    not, since the first may have taken effect and be the very reason of the refusal. Its row stays SENT."""
    with store.transaction() as tx:
        present = tx.incarnation(row.name)
        if present is None or present.request_id != row.request_id or present.intent is not Intent.SENT:
            return Recorded("its record changed meanwhile")
        match outcome:
            case Accepted():
                if present.error_kind:
                    tx.put_incarnation(replace(present, error_kind="", error_text=""))
                tx.clear_zone_holds(row.zone, row.accelerator)
                return Recorded()
            case Ours():
                tx.put_incarnation(replace(present, intent=Intent.SEEN, error_kind="", error_text=""))
                tx.add_event(Event(clock.now(), "adopted", row.name, "an earlier create had succeeded"))
                return Recorded()
            case Taken(text):
                tx.put_incarnation(
                    replace(present, intent=Intent.REFUSED, error_kind=NAME_CONFLICT, error_text=text, reason=text)
                )
                return Recorded(f"name conflict: {text}: not touched. Remove it, or rename the pool")
        return _refused(tx, clock, chance, present, outcome.error, first=first)


def _refused(
    tx: Transaction, clock: Clock, chance: Chance, row: Incarnation, error: CloudError, *, first: bool
) -> Recorded:
    text = str(error)
    unclear = isinstance(error, TransientError | ConflictError)
    intent = Intent.REFUSED if first and not unclear else Intent.SENT
    tx.put_incarnation(replace(row, intent=intent, error_kind=error.kind, error_text=text, reason=text))
    if unclear:
        return Recorded(text)
    tx.add_event(Event(clock.now(), "refused", row.name, f"{error.kind}: {text}"))
    effect = error.effect
    if effect.scope is Scope.SLOT:  # others of the type would hear the same now, and may be mended before the next pass
        return Recorded(text, (row.zone, row.accelerator))
    zone, accelerator = _held(row, effect.scope)
    if not (error.kind == QUOTA_FULL and _leftovers(tx, row)):
        until = clock.now().plus(min(effect.pause_s, 2 * ENDLESS_S) * (1 + JITTER * chance.unit()))
        tx.put_zone_hold(ZoneHold(Zone(zone), accelerator, error.kind, until, text))
    return Recorded(text, (zone, accelerator))


def _leftovers(tx: Transaction, row: Incarnation) -> bool:
    """Dead ones of ours that still count: the quota is full because of them, and has room as soon as they are gone."""
    return any(each.phase.is_over and each.zone == row.zone for each in tx.existing_incarnations())


def _held(row: Incarnation, scope: Scope) -> tuple[str, str]:
    if scope is Scope.PROJECT:
        return "*", "*"
    return row.zone, "*" if scope is Scope.ZONE else row.accelerator


def record_delete_failure(store: Store, name: QrName, error: CloudError) -> None:
    with store.transaction() as tx:
        present = tx.incarnation(name)
        if present is not None:
            tx.put_incarnation(replace(present, error_kind=error.kind, error_text=str(error)))
