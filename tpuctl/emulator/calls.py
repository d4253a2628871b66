"""The calls that the cloud got: one value for the call being served, one line for each call that was."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tpuctl.base.units import Instant
from tpuctl.emulator.scenario import FaultRule
from tpuctl.emulator.wire import Json, Request, ServiceError


@dataclass(frozen=True, slots=True)
class Call:
    """A call on its way through a service, with the planted fault that it met."""

    now: Instant
    request: Request
    fault: FaultRule | None = None

    @property
    def request_id(self) -> str:
        return self.request.query.get("requestId", "")

    def page(self, items: Sequence[Json], names: Sequence[str], largest: int, size_key: str) -> tuple[list[Json], str]:
        """One page of the items, which are in the order of their names, and the token of the next page.

        The token is the last name of this page, so that items that come and go in between shift nothing.
        """
        asked = self.request.query.get(size_key, "")
        size = min(int(asked), largest) if asked.isdigit() and int(asked) > 0 else largest
        after = _decoded(self.request.query.get("pageToken", ""))
        rest = [(name, item) for name, item in zip(names, items, strict=True) if name > after]
        page = rest[:size]
        more = len(rest) > size
        return [item for _, item in page], base64.urlsafe_b64encode(page[-1][0].encode()).decode() if more else ""


def _decoded(token: str) -> str:
    try:
        return base64.urlsafe_b64decode(token.encode()).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ServiceError("INVALID_ARGUMENT", "The page token is invalid.") from error


@dataclass(frozen=True, slots=True)
class CallRecord:
    """What the log keeps: never a body, so no secret. `status` 0: the caller got no answer."""

    at: Instant
    method: str
    path: str
    query: Mapping[str, str]
    status: int
    effect: bool  # something changed, whatever the caller was told
    resource: str  # full name of what it was about, if the call got that far
    labels: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""

    def document(self) -> Json:
        return {
            "at": self.at.iso(),
            "method": self.method,
            "path": self.path,
            "query": dict(self.query),
            "status": self.status,
            "effect": self.effect,
            "resource": self.resource,
            "labels": dict(self.labels),
            "fault": self.fault,
        }
