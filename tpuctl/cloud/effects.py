"""What each kind of refusal does: one table, read by those who record refusals and by those who plan.

docs/errors.md is made from it. To renew: `python -m tpuctl.cloud.effects docs/errors.md`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tpuctl.base.files import write_atomic
from tpuctl.base.units import show_duration

ENDLESS = float("inf")
EXPIRED = "expired"  # a queued resource's end, no call's refusal


class Scope(Enum):
    """What is not asked for again during the pause."""

    PROJECT = "anything in the project"
    ZONE = "anything in the zone"
    TYPE = "the type in the zone"
    SLOT = "the slice"  # nothing else waits


@dataclass(frozen=True, slots=True)
class Effect:
    """Of a refused create. `next_zone`: a pool over several places asks the next one meanwhile. A pause gets up to a
    quarter more by chance, so that many heads do not come back at once."""

    kind: str  # stable word: status, records, --json
    meaning: str
    pause_s: float  # ENDLESS: until the spec changes
    scope: Scope
    next_zone: bool
    cure: str = ""  # for people; {permission}, {who}, {place}, {service} are filled in from the service's answer

    @property
    def until_spec_changes(self) -> bool:
        return self.pause_s == ENDLESS


TABLE: tuple[Effect, ...] = (
    Effect("quota-zero", "the quota's limit is 0", 3600.0, Scope.TYPE, True,
           "The limit is 0: ask for quota{place}, or use a zone, generation and tier of your grant."),
    Effect("quota-full", "the quota's limit is reached; while own dead slices stand in the zone it is asked again as "
           "soon as they are gone", 120.0, Scope.TYPE, True,
           "Leftovers count until they are deleted; else wait, or lower `slices` of a pool."),
    Effect("no-capacity", "the zone has none now", 300.0, Scope.TYPE, True,
           "The zone has none now; wait, or take another zone."),
    Effect("rate-limited", "too many calls a minute in the project", 30.0, Scope.PROJECT, False,
           "Too many calls a minute in this project; tpuctl slows down."),
    Effect("type-not-in-zone", "the zone does not offer this type, tier or runtime", ENDLESS, Scope.TYPE, True,
           "Change `accelerator`, `zones`, `tier` or `runtime` of the pool."),
    Effect("permission", "the account may not do this", 600.0, Scope.ZONE, True,
           "Give {who} {permission}."),
    Effect("api-disabled", "the API is off in the project", 600.0, Scope.PROJECT, False,
           "Enable it: 'gcloud services enable {service}'."),
    Effect("location-policy", "the project may not use this zone", 3600.0, Scope.ZONE, True,
           "The project may not use this zone: take one of your grant, or ask for it."),
    Effect("conflict", "it is still changing, or in a state that forbids this", 0.0, Scope.SLOT, False,
           "It is still changing: tpuctl looks again and repeats."),
    Effect("transient", "the service or the way to it failed; the call may have taken effect, so the next pass looks "
           "before it repeats the same request", 0.0, Scope.SLOT, False,
           "It may work a moment later."),
    Effect("bad-request", "the service does not accept what was sent", ENDLESS, Scope.SLOT, False,
           "The service does not accept what was sent."),
    Effect("credentials", "no or expired credentials; raised before any effect", 60.0, Scope.PROJECT, False,
           "Log in again: 'gcloud auth application-default login'."),
    Effect("already-exists", "the name is taken: one of our own, of the same shape, is adopted, any other is a name "
           "conflict", 0.0, Scope.SLOT, False),
    Effect("not-found", "of a create: something that it names (network, reservation, disk) is not there; of a delete: "
           "success", 60.0, Scope.TYPE, True),
)  # fmt: skip

OF: dict[str, Effect] = {effect.kind: effect for effect in TABLE}
UNTIL_SPEC_CHANGES = frozenset(effect.kind for effect in TABLE if effect.until_spec_changes)


def page() -> str:
    """docs/errors.md."""
    head = (
        "| kind | meaning | pause | what waits | next place? | what it tells you to do |\n|---|---|---|---|---|---|\n"
    )
    return f"{_INTRODUCTION}\n{head}{''.join(_row(effect) for effect in TABLE)}\n{_AFTERWORD}"


def _row(effect: Effect) -> str:
    pause = "until the spec changes" if effect.until_spec_changes else "none"
    if 0 < effect.pause_s < ENDLESS:
        pause = show_duration(effect.pause_s)
    waits = "" if pause == "none" else effect.scope.value
    said = _with_names(effect.cure)
    return (
        f"| `{effect.kind}` | {effect.meaning} | {pause} | {waits} | {'yes' if effect.next_zone else 'no'} | {said} |\n"
    )


def _with_names(cure: str) -> str:
    return cure.format(
        permission="*the permission*", who="*the account*", place=" *in region or zone*", service="*API*"
    )


_INTRODUCTION = """# Errors

What the service can refuse with, and what tpuctl then does. This page is made from `tpuctl/cloud/effects.py`
(`python -m tpuctl.cloud.effects docs/errors.md`); `tpuctl/cloud/classify.py` alone decides which answer means what.
Every message begins with the call and its object and carries the service's own words whole: which quota metric, which
limit, which region or zone, which permission.
"""

_AFTERWORD = """Pauses are those of creates. They get up to a quarter more by chance, and end at once when the spec
changes. A refused delete pauses nothing: the next pass sends it again, under the same request id. A repeated create
whose first try was not answered is never given up because of a refusal: the first may have taken effect.

A queued resource that the service itself ended as FAILED is told apart in the same words. `expired` is said of one
that was not fulfilled in its time window: that is the end that was asked for and counts against no place.
"""

if __name__ == "__main__":
    write_atomic(Path(sys.argv[1]), page().encode())
