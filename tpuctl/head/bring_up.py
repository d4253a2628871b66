"""`up` and a client's `reconcile`: a head that answers, the spec, a pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

from tpuctl.base.clock import Clock
from tpuctl.base.errors import RetryLaterError
from tpuctl.head.errors import AgentNotReadyError, AgentUnreachableError
from tpuctl.head.home import FoundHead, HeadHome
from tpuctl.head.reach import unreachable_hint
from tpuctl.head.waiting import Say, Waiting

Wait = Literal["head", "first", "all"]
POLL_S = 1.0
AGENT_LIMIT_S = 900.0  # a VM's boot with its installation
MOVED_S = 60.0  # an agent silent for so long: is it the head that we think of?


class UpAgent(Protocol):
    """What of AgentClient is needed here."""

    def head(self) -> dict[str, Any]: ...

    def status(self) -> dict[str, Any]: ...

    def put_spec(self, document: Mapping[str, Any], text: str, *, beyond_grant: bool = False) -> dict[str, Any]: ...

    def start_pass(self, *, wait: bool = False, timeout_s: float = 120.0) -> dict[str, Any]: ...


Connect = Callable[[FoundHead], UpAgent]


@dataclass(frozen=True, slots=True)
class SpecText:
    document: Mapping[str, Any]
    text: str
    slices: int  # that all pools always want
    beyond_grant: bool = False  # the user goes on after the grant's end


@dataclass(frozen=True)
class BringUp:
    home: HeadHome
    connect: Connect
    spec: SpecText
    clock: Clock
    say: Say

    def up(self, wait: Wait, limit_s: float | None) -> FoundHead:
        """Returns when what `wait` names is there. Raises RetryLaterError past the limit: all goes on by itself."""
        found, agent = self._answering_head(only_lost=False)
        self._patiently(lambda: agent.put_spec(self.spec.document, self.spec.text, beyond_grant=self.spec.beyond_grant))
        self._patiently(lambda: agent.start_pass(wait=False))
        self.say(f"head {found.instance.name} at {found.address} has the spec")
        if wait != "head":
            self._wait_for_slices(agent, 1 if wait == "first" else self.spec.slices, limit_s)
        return found

    def reconcile(self, deadline_s: float) -> tuple[int, str]:
        """(exit, summary) of one pass of the agent. A lost head is rebuilt; one that `down` ended is not."""
        found, agent = self._answering_head(only_lost=True)
        if found.built and not agent.head().get("has_spec"):
            # Only where nothing is known. Records that came back with their disk are newer than a file here may be, and
            # sending the spec says that the cluster is wanted, which a `down` may have ended.
            self._patiently(
                lambda: agent.put_spec(self.spec.document, self.spec.text, beyond_grant=self.spec.beyond_grant)
            )
        answer = agent.start_pass(wait=True, timeout_s=deadline_s)
        return int(answer.get("exit") or 0), str(answer.get("summary") or "")

    def _answering_head(self, *, only_lost: bool) -> tuple[FoundHead, UpAgent]:
        waiting = Waiting(self.clock, self.say, AGENT_LIMIT_S)
        built = False
        while True:
            found = self.home.find_or_build(only_lost=only_lost)
            only_lost = True  # once it was there, its end is a loss to be mended or somebody's `down` to be left alone
            built = built or found.built
            agent, asked_s = self.connect(found), waiting.lasted_s
            while waiting.lasted_s - asked_s < MOVED_S:
                try:
                    agent.head()
                except (AgentUnreachableError, AgentNotReadyError) as error:
                    if waiting.is_over():
                        raise RetryLaterError(f"{error}. {unreachable_hint(found.address)}", after_s=30.0) from error
                    waiting.pause(f"waiting for the agent at {found.address}", POLL_S)
                else:
                    return FoundHead(found.instance, found.epoch, found.token, built), agent

    def _patiently(self, call: Callable[[], object]) -> None:
        """The call is harmless to repeat: an answer that was lost is asked for again."""
        waiting = Waiting(self.clock, self.say, MOVED_S)
        while True:
            try:
                call()
            except (AgentUnreachableError, AgentNotReadyError) as error:
                if waiting.is_over():
                    raise
                waiting.pause(str(error), POLL_S)
            else:
                return

    def _wait_for_slices(self, agent: UpAgent, wanted: int, limit_s: float | None) -> None:
        waiting = Waiting(self.clock, self.say, limit_s)
        heard_s = 0.0
        while True:
            try:
                ready, told = _slices(agent.status(), wanted)
                heard_s = waiting.lasted_s
            except (AgentUnreachableError, AgentNotReadyError) as error:
                ready, told = -1, str(error)
                if waiting.lasted_s - heard_s > MOVED_S and not waiting.is_over():
                    # Moved, lost, or ended by somebody's `down`.
                    found, agent = self._answering_head(only_lost=True)
                    heard_s = waiting.lasted_s
                    if found.built:
                        self._patiently(
                            partial(
                                agent.put_spec, self.spec.document, self.spec.text, beyond_grant=self.spec.beyond_grant
                            )
                        )
                    continue
            if ready >= wanted:
                return
            if waiting.is_over():
                raise RetryLaterError(
                    f"after {limit_s:.0f} s: {told}. tpuctl goes on without you; 'tpuctl status' shows how far it is.",
                    after_s=60.0,
                )
            waiting.pause(told, POLL_S)


def _slices(status: Mapping[str, Any], wanted: int) -> tuple[int, str]:
    rows = status.get("slices") or []
    ready = sum(row.get("phase") == "READY" for row in rows)
    others = sorted({str(row.get("phase")) for row in rows} - {"READY"})
    rest = f" (others: {', '.join(others)})" if others else ""
    return ready, f"{ready} of {wanted} slices READY{rest}"
