"""Finding the head, and building it where it is missing: observe, plan, apply, until there is nothing to do."""

from __future__ import annotations

from dataclasses import dataclass

from tpuctl.base.clock import Clock
from tpuctl.base.errors import RetryLaterError, TpuctlError
from tpuctl.base.ids import Epoch, epoch_of
from tpuctl.cloud.errors import TransientError
from tpuctl.cloud.model import ComputeApi, Instance, SecretApi
from tpuctl.head.apply import HeadApplier
from tpuctl.head.folder import ClusterFolder, KnownHead
from tpuctl.head.model import HeadPlan, HeadView, HeadWant, NameTakenError, SecretState
from tpuctl.head.observe import observe_head
from tpuctl.head.plan import plan_head
from tpuctl.head.reach import agent_address
from tpuctl.head.waiting import Say, Waiting

POLL_S = 1.0
HEAD_LIMIT_S = 600.0
LOST_ANSWERS = 3  # how often a call whose answer was lost is followed by another look


class NoHeadError(TpuctlError):
    """The cluster is not up, and nobody asked for it to be."""


@dataclass(frozen=True, slots=True)
class FoundHead:
    instance: Instance
    epoch: Epoch
    token: str
    built: bool  # by this very call

    @property
    def address(self) -> str:
        """The agent's root."""
        return agent_address(self.instance.address)


@dataclass(frozen=True)
class HeadHome:
    """`folder` remembers what was found for the commands that come after."""

    compute: ComputeApi
    secrets: SecretApi
    want: HeadWant
    applier: HeadApplier
    folder: ClusterFolder
    clock: Clock
    say: Say

    def observe(self) -> HeadView:
        return observe_head(self.compute, self.secrets, self.want.names, self.want.zone)

    def find(self) -> FoundHead:
        """The head that exists. Raises NoHeadError; changes nothing."""
        view = self.observe()
        plan = plan_head(self.want, view)
        head = _usable(view, plan)
        if head is None:
            raise NoHeadError(self._no_head(view, plan))
        return self._found(head, built=False)

    def find_or_build(self, *, only_lost: bool = False, limit_s: float = HEAD_LIMIT_S) -> FoundHead:
        """`only_lost`: build only what was there before, which its secret tells; `down` deletes it with the head.

        Raises NoHeadError (only_lost), UserError kinds of head/model.py, CloudError, RetryLaterError past the limit.
        Killed anywhere, the same call heals.
        """
        waiting = Waiting(self.clock, self.say, limit_s)
        built, lost_answers, taken = False, 0, ""
        while True:
            view = self.observe()
            plan = plan_head(self.want, view)
            head = _usable(view, plan)
            if head is not None:
                return self._found(head, built=built)
            if only_lost and not view.heads and view.secret is SecretState.ABSENT:
                raise NoHeadError(self._no_head(view, plan))
            if waiting.is_over():
                raise RetryLaterError(f"no head after {limit_s:.0f} s: {_waits(plan)}", after_s=30.0)
            if not plan.actions:
                waiting.pause(f"waiting for the head: {_waits(plan)}", POLL_S)
                continue
            try:
                built, taken = True, self._apply(plan, taken)
            except TransientError as error:
                lost_answers += 1
                if lost_answers > LOST_ANSWERS:
                    raise
                waiting.pause(f"{error} Looking again", POLL_S)

    def known(self) -> KnownHead | None:
        return self.folder.head()

    def read_token(self) -> str:
        """The secret as it is now, remembered. For the client after a 401."""
        token = self.secrets.read_secret(self.want.names.secret)
        self.folder.save_token(token)
        return token

    def _apply(self, plan: HeadPlan, taken_before: str) -> str:
        """The name that was taken, or "". A name taken twice in a row without being ours by label is a stranger's."""
        for note in plan.notes:
            self.say(note)
        for action in plan.actions:
            taken = self.applier.apply(action)
            if taken and taken == taken_before:
                raise NameTakenError(
                    f"{taken!r} exists and lacks this cluster's labels; it was left alone. Give the cluster another "
                    "name, or delete it yourself."
                )
            if taken:
                return taken
        return ""

    def _found(self, head: Instance, *, built: bool) -> FoundHead:
        token = self.read_token()
        self.folder.save_head(KnownHead(head.zone, head.name, head.address))
        return FoundHead(head, epoch_of(head.created), token, built)

    def _no_head(self, view: HeadView, plan: HeadPlan) -> str:
        if not view.heads_complete:
            return f"no head of cluster {self.want.names.cluster!r} was seen, but {plan.waits}"
        return f"cluster {self.want.names.cluster!r} has no running head. 'tpuctl up' makes it."


def _usable(view: HeadView, plan: HeadPlan) -> Instance | None:
    """The one head, once nothing is left to do and it has an address."""
    if plan.actions or plan.waits or not view.heads or not view.heads[0].address:
        return None
    return view.heads[0]


def _waits(plan: HeadPlan) -> str:
    return plan.waits or "the VM has no address yet"
