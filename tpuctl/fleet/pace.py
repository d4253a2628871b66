"""How fast creates leave: the service takes so many a minute from a project, whoever asks and in however many passes.

The moments of the last minute's creates are kept in the store, in the transaction that lets a create go: passes that
follow within seconds, or that overlap because somebody removed the lock, share one budget. Deletes are not held by it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tpuctl.base.clock import Clock
from tpuctl.store.database import Store, Transaction

# Operators saw 91 a minute as one project's limit; 60, with at most 8 in flight, kept clear of errors.
CREATES_PER_MINUTE = 60
MINUTE_S = 60.0
KEY = "create_pace"
TICK_S = 0.001  # sums of waits round to less than was meant


@dataclass(frozen=True, slots=True)
class Pace:
    """At most `per_minute` creates in any 60 seconds; None: no limit, for measurements against an emulator."""

    store: Store
    clock: Clock
    per_minute: int | None = CREATES_PER_MINUTE

    def wait_s(self) -> float:
        """Until the next create may leave."""
        with self.store.snapshot() as tx:
            return self.wait_in(tx)

    def wait_in(self, tx: Transaction) -> float:
        ages_s = self._ages_s(tx)
        if self.per_minute is None or len(ages_s) < self.per_minute:
            return 0.0
        return MINUTE_S - ages_s[-self.per_minute] + TICK_S

    def count(self, tx: Transaction) -> None:
        """One leaves now."""
        if self.per_minute is None:
            return
        ages_s = [*self._ages_s(tx), 0.0][-self.per_minute :]
        now_s = self.clock.monotonic()
        kept = {"ages_s": ages_s, "at_s": [now_s, self.clock.now().unix_s]}
        tx.put_meta(KEY, json.dumps(kept))

    def _ages_s(self, tx: Transaction) -> list[float]:
        """Ages of the last minute's creates, the oldest first.

        On the clock that counts suspend; where that began anew (a reboot, another machine), by the wall clock; and
        where both went back nothing is known: then the service's own refusal is what slows down.
        """
        stored = json.loads(tx.meta(KEY) or "{}")
        if not stored:
            return []
        monotonic_s, wall_s = stored["at_s"]
        since_s = self.clock.monotonic() - monotonic_s
        if since_s < 0:
            since_s = self.clock.now().unix_s - wall_s
        if since_s < 0:
            return []
        return [age + since_s for age in stored["ages_s"] if age + since_s < MINUTE_S]
