"""Following the head: where it is, whether its Ray is up, and whether it is not an older one come back.

The agent's `/v1/head` says it all; the cloud is asked only where the head is not known or does not answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tpuctl.base.clock import Clock
from tpuctl.base.errors import RetryLaterError, StaleError
from tpuctl.base.files import write_atomic
from tpuctl.base.ids import Epoch, epoch_order
from tpuctl.base.web import Answer, NoAnswerError, call
from tpuctl.hosts.config import VmConfig, VmPlaces
from tpuctl.hosts.lookup import CloudLookup
from tpuctl.hosts.probe import Versions

# A look-up takes a second of CPU, and a restarting head keeps its address nearly always.
LOOKUP_EVERY_S = 10.0
_ANSWER_S = 3.0


class HeadAwayError(RetryLaterError):
    """No head, no agent or no Ray yet: ask again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 1.0)


class OlderHeadError(StaleError):
    """A head of an older epoch than one heard of before: whatever it wants is over."""


@dataclass(frozen=True, slots=True)
class HeadView:
    agent: str  # URL
    epoch: Epoch
    ray_address: str
    ray_started: str  # differs after each start of Ray on the head; "" when the agent does not say
    versions: Versions


class HeadFinder:
    """Remembers the last address; keeps `$PREFIX/epoch` at the newest epoch heard of."""

    def __init__(self, config: VmConfig, places: VmPlaces, clock: Clock, cloud: CloudLookup) -> None:
        self._config = config
        self._places = places
        self._clock = clock
        self._cloud = cloud
        self._address = ""
        self._looked_s: float | None = None

    def find(self) -> HeadView:
        """Raises HeadAwayError, OlderHeadError, CloudLookupError."""
        address = self._address or self._look_up()
        agent = f"http://{address}:{self._config.agent_port}"
        answer = self._ask(agent)
        if answer.status != 200:
            raise HeadAwayError(f"{agent}/v1/head answers {answer.status}: {answer.text()[:200]}")
        return self._view(agent, _document(answer))

    def token(self) -> str:
        """The cluster's secret, read with the VM's own identity where it is not in the file yet."""
        if not self._places.token.exists():
            self._cloud.read_token()
        return self._places.token.read_text().strip()

    def _look_up(self) -> str:
        now_s = self._clock.monotonic()
        if self._looked_s is not None and now_s - self._looked_s < LOOKUP_EVERY_S:
            raise HeadAwayError(f"the head {self._config.head_name} does not answer")
        self._looked_s = now_s
        found = self._cloud.find_head()
        self._refuse_older(found.epoch)
        self._address = found.address
        return found.address

    def _ask(self, agent: str) -> Answer:
        """`/v1/head`; after a 401 with the secret read again, once: it may have been rotated."""
        try:
            answer = call("GET", f"{agent}/v1/head", token=self.token(), timeout_s=_ANSWER_S)
            if answer.status == 401:
                self._cloud.read_token()
                answer = call("GET", f"{agent}/v1/head", token=self.token(), timeout_s=_ANSWER_S)
            return answer
        except NoAnswerError as error:
            if self._looked_s is None or self._clock.monotonic() - self._looked_s >= LOOKUP_EVERY_S:
                self._address = ""  # it may have moved: the next call asks the cloud
            raise HeadAwayError(f"the head's agent does not answer: {error}") from error

    def _view(self, agent: str, document: dict[str, Any]) -> HeadView:
        try:
            if document["cluster"] != self._config.cluster:
                raise HeadAwayError(f"{agent} is the head of cluster {document['cluster']!r}, not of ours")
            epoch = Epoch(document["epoch"])
            self._refuse_older(epoch)
            ray = document["ray"]
            if ray is None:
                raise HeadAwayError("the head's Ray is not up yet")
            versions = Versions(str(ray["version"]), str(ray["python"]))
            return HeadView(agent, epoch, str(ray["address"]), str(ray.get("started_at", "")), versions)
        except (KeyError, TypeError, ValueError) as error:
            raise HeadAwayError(f"{agent}/v1/head: unreadable answer: {type(error).__name__}: {error}") from error

    def _refuse_older(self, epoch: Epoch) -> None:
        known = self._heard_of()
        if known and epoch_order(epoch) < epoch_order(Epoch(known)):
            self._address = ""
            raise OlderHeadError(f"the head has epoch {epoch}, but {known} was heard of: an older head is not obeyed")
        if epoch != known:
            write_atomic(self._places.epoch, f"{epoch}\n".encode())

    def _heard_of(self) -> str:
        """The newest epoch heard of, or "". A damaged file tells nothing, and the next head's epoch mends it."""
        try:
            known = self._places.epoch.read_text(errors="replace").strip()
            epoch_order(Epoch(known))
        except (FileNotFoundError, ValueError):
            return ""
        return known


def _document(answer: Answer) -> dict[str, Any]:
    try:
        document = answer.document()
    except NoAnswerError as error:
        raise HeadAwayError(f"/v1/head: {error}") from error
    if not isinstance(document, dict):
        raise HeadAwayError(f"/v1/head: {answer.text()[:200]!r} is no object")
    return document
