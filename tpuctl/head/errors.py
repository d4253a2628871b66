"""What can go wrong between a client and the head's agent. Here, below client.py, since the head's flows judge them."""

from __future__ import annotations

from tpuctl.base.errors import RetryLaterError, TpuctlError


class AgentUnreachableError(RetryLaterError):
    """No answer came. `sent` is True when the request may have been heard."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message, after_s=2.0)
        self.sent = sent


class AgentNotReadyError(RetryLaterError):
    """503: it answers, but cannot do this yet."""


class AgentRefusedError(TpuctlError):
    """The agent's own no. `kind` is its word, `status` HTTP's."""

    def __init__(self, message: str, *, kind: str, status: int) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status


class AgentBadRequestError(AgentRefusedError):
    exit_code = 2


class AgentUnauthorizedError(AgentRefusedError):
    """401, also with the secret read again."""


class AgentNotFoundError(AgentRefusedError):
    """404: there is no such run, slice or bundle."""


class AgentConflictError(AgentRefusedError):
    """409: for example a run of that name lives."""
