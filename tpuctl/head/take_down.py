"""`down`: through the agent where it answers, from the client by label where it does not. Repeatable at any point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tpuctl.base.clock import Clock
from tpuctl.base.errors import PartialError
from tpuctl.base.ids import QrName, Zone
from tpuctl.cloud.errors import CloudError, NotFoundError
from tpuctl.cloud.model import Instance, QueuedResource
from tpuctl.head.errors import AgentNotReadyError, AgentRefusedError, AgentUnreachableError
from tpuctl.head.home import HeadHome
from tpuctl.head.model import STOPPED, DeleteDisk, DeleteHead, DeleteSecret, HeadAction, HeadView
from tpuctl.head.plan import plan_end
from tpuctl.head.reach import agent_address
from tpuctl.head.sweep import ALL_ZONES, Sweeper
from tpuctl.head.waiting import Say, Waiting

POLL_S = 1.0
FIRST_ANSWER_S = 10.0  # no word from the agent at all for so long: it is taken as unreachable
SILENCE_S = 60.0  # it answered before: for so long it is waited for
SWEEP_LIMIT_S = 600.0


class DownAgent(Protocol):
    """What of AgentClient is needed here."""

    def down(self, *, wait_runs: bool = False, orphans: bool = False) -> None: ...

    def down_state(self) -> dict[str, Any]: ...


Connect = Callable[[str], DownAgent]


@dataclass(frozen=True, slots=True)
class DownWish:
    keep_disk: bool
    wait_runs: bool
    limit_s: float | None  # for the agent's part; None = as long as it takes
    orphans: bool = False  # what carries our labels and is in no record goes too


@dataclass(frozen=True, slots=True)
class Left:
    """What of the cluster exists after all. `unknown`: places that could not be looked at, with the reason."""

    heads: tuple[Instance, ...] = ()
    disks: tuple[Zone, ...] = ()
    queued: tuple[QueuedResource, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class TakeDown:
    home: HeadHome
    connect: Connect  # from the agent's root
    sweeper: Sweeper
    clock: Clock
    say: Say

    def run(self, wish: DownWish) -> bool:
        """True when something was there to end. Raises PartialError when something is left or could not be seen; the
        same call goes on from there.
        """
        view = self.home.observe()
        recorded = self._remembered()
        if view.heads and not self._through_agent(view, wish, recorded):
            self.say("The agent does not answer: deleting from here by label, with force. Runs get no grace.")
        view = self.home.observe()
        plan = plan_end(self.home.want.names, view, keep_disk=wish.keep_disk)
        heads = [action for action in plan.actions if isinstance(action, DeleteHead)]
        # The head goes before the slices are looked for: a head that was only out of reach would ask for new ones.
        self._apply(heads)
        # Then the secret, which is the mark of a cluster that is wanted: a cron of ours that reconciles from elsewhere
        # would take a missing head for a lost one and rebuild it while the slices are still going. But a head that
        # could not be seen may live, and without its secret nobody could ever tell it to stop.
        if not plan.waits:
            self._apply([action for action in plan.actions if isinstance(action, DeleteSecret)])
        swept = self.sweeper.run(SWEEP_LIMIT_S, recorded=frozenset(recorded), orphans=wish.orphans)
        if not swept.is_clean:
            unseen = "; ".join(f"{zone}: {reason}" for zone, reason in swept.unknown.items())
            left = f"still there: {', '.join(swept.left)}. " if swept.left else ""
            seen = f"not seen: {unseen}. " if unseen else ""
            raise PartialError(f"{left}{seen}The disk was kept; run 'tpuctl down' again.")
        if plan.waits:
            raise PartialError(f"{plan.waits}. The disk and the secret were kept; run 'tpuctl down' again.")
        self._apply([action for action in plan.actions if isinstance(action, DeleteDisk)])
        self.home.folder.forget()
        if swept.orphans:
            raise PartialError(_told_of(swept.orphans))
        return bool(plan.actions or view.heads or swept.deleted)

    def left(self) -> Left:
        """A look at what there is, orphans too. Nothing is changed."""
        view = self.home.observe()
        queued, unknown = self.sweeper.look()
        unseen = [f"{'other zones' if zone == ALL_ZONES else zone}: {reason}" for zone, reason in unknown.items()]
        if not (view.heads_complete and view.disks_complete):
            unseen.append("some zones' machines and disks could not be listed")
        return Left(view.heads, view.disks, tuple(queued), tuple(unseen))

    def _remembered(self) -> set[QrName]:
        """What the records had when a command of this machine last saw them."""
        last = self.home.folder.last_status()
        rows = [] if last is None else last.document.get("slices") or []
        return {QrName(str(row["queued_resource"])) for row in rows if row.get("queued_resource")}

    def _through_agent(self, view: HeadView, wish: DownWish, recorded: set[QrName]) -> bool:
        """True when the agent said that nothing is left. False when it cannot be reached (any more). `recorded` gets
        what the agent knows.
        """
        head = next((head for head in view.heads if head.status not in STOPPED and head.address), None)
        if head is None:
            return False
        try:
            agent = self.connect(agent_address(head.address))
        except NotFoundError:
            return False  # no secret, so no token: nobody can talk to this agent any more
        if not self._ask(agent, wish):
            return False
        return self._await_empty(agent, wish, recorded)

    def _ask(self, agent: DownAgent, wish: DownWish) -> bool:
        waiting = Waiting(self.clock, self.say, FIRST_ANSWER_S)
        while True:
            try:
                agent.down(wait_runs=wish.wait_runs, orphans=wish.orphans)
            except (AgentUnreachableError, AgentNotReadyError) as error:
                if waiting.is_over():
                    self.say(str(error))
                    return False
                waiting.pause(str(error), POLL_S)
            except (AgentRefusedError, CloudError) as error:
                self.say(f"the agent refuses: {error}")
                return False
            else:
                return True

    def _await_empty(self, agent: DownAgent, wish: DownWish, recorded: set[QrName]) -> bool:
        waiting = Waiting(self.clock, self.say, wish.limit_s)
        heard_s = waiting.lasted_s
        while True:
            try:
                state = agent.down_state()
            except (AgentUnreachableError, AgentNotReadyError) as error:
                if waiting.lasted_s - heard_s > SILENCE_S:
                    self.say(str(error))
                    return False
                waiting.pause(str(error), POLL_S)
                continue
            heard_s = waiting.lasted_s
            runs, remaining = list(state.get("runs") or ()), list(state.get("remaining") or ())
            recorded |= set(remaining)
            if not runs and not remaining:
                return True
            told = _told(runs, remaining)
            if waiting.is_over():
                raise PartialError(f"after {wish.limit_s:.0f} s: {told}. Run 'tpuctl down' again to go on.")
            waiting.pause(told, POLL_S)

    def _apply(self, actions: Sequence[HeadAction]) -> None:
        for action in actions:
            self.home.applier.apply(action)


def _told_of(orphans: Sequence[QueuedResource]) -> str:
    names = ", ".join(f"{queued.name} in {queued.zone}" for queued in orphans)
    return (
        f"left alone: {names}: ours by label, but neither in the records nor in the spec. "
        "'tpuctl down --orphans' deletes them."
    )


def _told(runs: list[str], remaining: list[str]) -> str:
    parts = [f"runs {', '.join(runs)} are ending"] if runs else []
    parts += [f"{', '.join(remaining)} are being deleted"] if remaining else []
    return "; ".join(parts)
