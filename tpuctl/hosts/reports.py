"""What a host tells: to the agent (it acts on it), and as a guest attribute (readable while there is no agent)."""

from __future__ import annotations

from collections.abc import Callable

from tpuctl.base.web import NoAnswerError, call
from tpuctl.hosts.identity import HostIdentity
from tpuctl.hosts.metadata import Metadata, MetadataError

_AGENT_S = 2.0
_MAX_DETAIL = 1000


class Reports:
    """Stages: booting, joining, joined, notice, refused, left. The last one is repeated until the agent has it.

    One thread at a time; the notice has a Reports of its own.
    """

    def __init__(self, identity: HostIdentity, metadata: Metadata, token: Callable[[], str]) -> None:
        self._identity = identity
        self._metadata = metadata
        self._token = token
        self._told = ("", "")
        self._pending: dict[str, object] | None = None
        self.agent = ""  # URL; "" while it is not known

    def tell(self, stage: str, detail: str = "") -> bool:
        """True when the agent has it now. What was told last is not told again."""
        detail = detail[:_MAX_DETAIL]
        if (stage, detail) != self._told:
            self._told = (stage, detail)
            self._pending = {
                "incarnation": self._identity.config.incarnation,
                "worker": self._identity.worker,
                "boot_id": self._identity.boot_id,
                "stage": stage,
                "detail": detail,
            }
            delivered = self.deliver()
            self._write_guest_attribute(f"{stage}: {detail}" if detail else stage)
            return delivered
        return self.deliver()

    def deliver(self) -> bool:
        """Send what is still owed to the agent. Never raises: the next call tries again."""
        if self._pending is None:
            return True
        if not self.agent:
            return False
        try:
            url = f"{self.agent}/v1/hosts/report"
            answer = call("POST", url, token=self._token(), document=self._pending, timeout_s=_AGENT_S)
        except (NoAnswerError, OSError):
            return False
        # 400 and the like will not change by repetition; the token and the agent's start-up will.
        if answer.status in (401, 403) or answer.status >= 500:
            return False
        self._pending = None
        return answer.status < 400

    def _write_guest_attribute(self, text: str) -> None:
        try:
            self._metadata.write_guest_attribute("tpuctl", "stage", text)
        except MetadataError:
            return  # guest attributes may be switched off; the agent is the one who acts
