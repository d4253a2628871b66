"""Deleting a cluster's queued resources from a client, by label: when the agent cannot, and to make sure afterwards.

What neither the spec nor anything that is known of the records names is an orphan: it is told of, and deleted only when
that is asked for, because nobody can say that it is not somebody's.

The spec's zones are what must be seen. A pool may have left the spec since, and its zone with it, so all zones are
looked at too, in one call; what that call cannot tell is said, and hinders nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tpuctl.base.chance import Chance
from tpuctl.base.clock import Clock
from tpuctl.base.ids import ClusterName, IncarnationId, PoolName, QrName, Zone
from tpuctl.cloud.errors import CloudError, NotFoundError
from tpuctl.cloud.model import QueuedResource, TpuApi
from tpuctl.head.model import CLUSTER_LABEL
from tpuctl.head.waiting import Say, Waiting

POLL_S = 2.0
ALL_ZONES = Zone("-")  # docs/facts.md


@dataclass(frozen=True, slots=True)
class SweepResult:
    """`left`: still there at the limit. `unknown`: zones whose list failed or was incomplete, with the reason."""

    left: tuple[str, ...]
    unknown: Mapping[Zone, str]
    deleted: int = 0  # how many were asked to go
    orphans: tuple[QueuedResource, ...] = ()  # were left alone

    @property
    def is_clean(self) -> bool:
        return not self.left and not self.unknown


@dataclass(frozen=True)
class Sweeper:
    tpu: TpuApi
    cluster: ClusterName
    zones: tuple[Zone, ...]
    has_slot: Callable[[PoolName, int], bool]  # the spec's word
    chance: Chance
    clock: Clock
    say: Say

    def run(self, limit_s: float, *, recorded: frozenset[QrName] = frozenset(), orphans: bool = False) -> SweepResult:
        """Delete with force until two things are known: nothing of ours is listed, and every list was whole.

        `recorded`: what is known of the records besides the spec. Orphans are left where they are without `orphans`.
        """
        waiting = Waiting(self.clock, self.say, limit_s)
        request_ids: dict[QrName, str] = {}
        told = ""
        while True:
            seen, unknown = self.look()
            found = [queued for queued in seen if orphans or queued.name in recorded or self._is_of_the_spec(queued)]
            alone = tuple(queued for queued in seen if queued not in found)
            if (elsewhere := unknown.pop(ALL_ZONES, "")) and not told:
                told = elsewhere
                self.say(f"zones that the spec does not name could not be looked at: {told}")
            for queued in found:
                if queued.name not in request_ids:
                    self.say(f"delete {queued.name} in {queued.zone}, with force")
                self._delete(queued, request_ids.setdefault(queued.name, self.chance.request_id()))
            result = SweepResult(tuple(queued.name for queued in found), unknown, len(request_ids), alone)
            if result.is_clean or waiting.is_over():
                return result
            waiting.pause(_remaining(result), POLL_S)

    def look(self) -> tuple[list[QueuedResource], dict[Zone, str]]:
        """Ours by label, and what could not be seen; ALL_ZONES stands for what the spec does not name."""
        found: dict[tuple[Zone, QrName], QueuedResource] = {}
        unknown: dict[Zone, str] = {}
        for zone in (*self.zones, ALL_ZONES):
            try:
                listing = self.tpu.list_queued_resources(zone)
            except CloudError as error:
                unknown[zone] = str(error)
                continue
            ours = [queued for queued in listing.items if queued.labels.get(CLUSTER_LABEL) == self.cluster]
            found |= {(queued.zone, queued.name): queued for queued in ours}
            if not listing.complete:
                unknown[zone] = f"the list of {zone} is incomplete"
        return list(found.values()), unknown

    def _is_of_the_spec(self, queued: QueuedResource) -> bool:
        made = IncarnationId.from_labels(dict(queued.labels))
        return made is not None and made.qr_name == queued.name and self.has_slot(made.pool, made.slot)

    def _delete(self, queued: QueuedResource, request_id: str) -> None:
        """Once more each round until it is gone: a repeat under the same request id is harmless, a lost call is not."""
        try:
            self.tpu.delete_queued_resource(queued.zone, queued.name, request_id)
        except NotFoundError:
            return
        except CloudError as error:
            self.say(f"{error}; trying again")


def _remaining(result: SweepResult) -> str:
    parts = [f"waiting until {', '.join(result.left)} are gone"] if result.left else []
    parts += [f"{zone} cannot be read: {reason}" for zone, reason in result.unknown.items()]
    return "; ".join(parts)
