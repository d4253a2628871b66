"""The typed Python client of the head agent's HTTP API; the CLI uses it too.

    client = AgentClient("http://10.128.0.5:7578", token)
    for run in client.runs()["runs"]:
        print(run["name"], run["state"])

Documents are the agent's JSON as it is. Standard library only: `tpuctl status` must cost next to nothing.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlencode, urlsplit

from tpuctl.base.errors import UserError
from tpuctl.head.errors import (
    AgentBadRequestError,
    AgentConflictError,
    AgentNotFoundError,
    AgentNotReadyError,
    AgentRefusedError,
    AgentUnauthorizedError,
    AgentUnreachableError,
)
from tpuctl.head.silence import pass_age

__all__ = [
    "AgentBadRequestError",
    "AgentClient",
    "AgentConflictError",
    "AgentNotFoundError",
    "AgentNotReadyError",
    "AgentRefusedError",
    "AgentUnauthorizedError",
    "AgentUnreachableError",
    "LogChunk",
]

Document = dict[str, Any]

MAX_ANSWER_BYTES = 64 * 2**20  # an answer is read whole; nothing the agent says comes near
BUNDLE_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes of one rank's log of one attempt. `complete`: the attempt is over and nothing follows `next_offset`."""

    data: bytes
    next_offset: int
    complete: bool
    attempt: int
    rank: int


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


_REFUSALS: dict[int, type[AgentRefusedError]] = {
    400: AgentBadRequestError,
    401: AgentUnauthorizedError,
    404: AgentNotFoundError,
    409: AgentConflictError,
}


class AgentClient:
    """One call is one connection: nothing to close, safe to use from several threads.

    Every method raises AgentUnreachableError when no answer came, AgentNotReadyError on 503, and the kinds of
    AgentRefusedError otherwise. Nothing is repeated, but after a 401 `renew_token` is asked once.
    """

    def __init__(
        self,
        address: str,
        token: str,
        *,
        timeout_s: float = 15.0,
        renew_token: Callable[[], str] | None = None,
        heard: Callable[[float], None] = lambda _: None,
    ) -> None:
        """`address`: the agent's root, e.g. http://10.128.0.5:7578. `renew_token` reads the secret again. `heard` gets,
        with each answer that says it, the seconds since the head's last completed pass."""
        parts = urlsplit(address)
        if parts.scheme != "http" or not parts.hostname:
            raise UserError(f"agent's address {address!r}: it should be like http://10.128.0.5:7578")
        self.address = address.rstrip("/")
        self._host, self._port = parts.hostname, parts.port or 80
        self._token, self._timeout_s, self._renew_token, self._heard = token, timeout_s, renew_token, heard

    def health(self) -> Document:
        return self._json("GET", "/v1/health")

    def head(self) -> Document:
        return self._json("GET", "/v1/head")

    def status(self) -> Document:
        """The `status --json` document."""
        return self._json("GET", "/v1/status")

    def put_spec(self, document: Mapping[str, Any], text: str, *, beyond_grant: bool = False) -> Document:
        """`{digest, changed}`. The cluster is wanted from now on; `beyond_grant`: after the grant's end too."""
        return self._json("PUT", "/v1/spec", {"document": document, "text": text, "beyond_grant": beyond_grant})

    def start_pass(self, *, wait: bool = False, timeout_s: float = 120.0) -> Document:
        """`{exit, summary}`; without `wait` the answer comes at once."""
        patience_s = self._timeout_s + (timeout_s if wait else 0.0)
        return self._json("POST", "/v1/pass", {"wait": wait, "timeout_s": timeout_s}, timeout_s=patience_s)

    def plan(self, *, timeout_s: float = 120.0) -> Document:
        """What the next pass would do: the `plan --json` document. Nothing is done."""
        return self._json("GET", "/v1/plan", timeout_s=timeout_s)

    def down(self, *, wait_runs: bool = False, orphans: bool = False) -> None:
        """Nothing is wanted from now on. `orphans`: what carries our labels goes too, although nobody knows it."""
        self._json("POST", "/v1/down", {"wait_runs": wait_runs, "orphans": orphans})

    def down_state(self) -> Document:
        """`{remaining: [queued resources], runs: [names], orphans: [queued resources]}`."""
        return self._json("GET", "/v1/down")

    def has_bundle(self, digest: str) -> bool:
        try:
            self._call("HEAD", f"/v1/bundles/{quote(digest, safe='')}")
        except AgentNotFoundError:
            return False
        return True

    def put_bundle(self, digest: str, archive: Path) -> None:
        """Streams the file; the agent checks it against its digest."""
        size = archive.stat().st_size
        with archive.open("rb") as file:
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
            self._call("PUT", f"/v1/bundles/{quote(digest, safe='')}", file, headers, BUNDLE_TIMEOUT_S)

    def get_bundle(self, digest: str) -> bytes:
        return self._call("GET", f"/v1/bundles/{quote(digest, safe='')}", timeout_s=BUNDLE_TIMEOUT_S).body

    def submit(self, spec: Mapping[str, Any], bundle: str, user: str, request_id: str) -> Document:
        """`{name, id}`; the same request id answers the same run, so a lost answer may be asked for again."""
        body = {"spec": spec, "bundle": bundle, "user": user, "request_id": request_id}
        return self._json("POST", "/v1/runs", body)

    def runs(self) -> Document:
        return self._json("GET", "/v1/runs")

    def run(self, name: str) -> Document:
        """By name or id, with its attempts."""
        return self._json("GET", f"/v1/runs/{quote(name, safe='')}")

    def cancel(self, name: str) -> Document:
        """`{state}`."""
        return self._json("POST", f"/v1/runs/{quote(name, safe='')}/cancel", {})

    def read_logs(
        self, name: str, *, attempt: int | None = None, rank: int = 0, offset: int = 0, limit: int = 2**20
    ) -> LogChunk:
        """What is there from `offset` on; ask again at `next_offset` until `complete`."""
        query: dict[str, int] = {"rank": rank, "offset": offset, "limit": limit}
        if attempt is not None:
            query["attempt"] = attempt
        answer = self._call("GET", f"/v1/runs/{quote(name, safe='')}/logs?{urlencode(query)}")
        return LogChunk(
            data=answer.body,
            next_offset=int(answer.headers.get("x-next-offset", offset + len(answer.body))),
            complete=answer.headers.get("x-complete", "").lower() in ("1", "true"),
            attempt=int(answer.headers.get("x-attempt", attempt or 0)),
            rank=int(answer.headers.get("x-rank", rank)),
        )

    def why(self, subject: str) -> Document:
        """`{subject, lines}` for a run, slice or queued resource."""
        return self._json("GET", f"/v1/why/{quote(subject, safe='')}")

    def keep(self) -> Document:
        """A sign of life: `{seen_user_at, ttl_s, until}`."""
        return self._json("POST", "/v1/keep", {})

    def cron(self) -> Document:
        """The head's own crontab: `{installed, every_min, command, problem, log, last: {at, exit} | null}`."""
        return self._json("GET", "/v1/cron")

    def install_cron(self, every_min: int) -> Document:
        """The same, and `changed`."""
        return self._json("PUT", "/v1/cron", {"every_min": every_min})

    def remove_cron(self) -> Document:
        """The same, and `changed`."""
        return self._json("DELETE", "/v1/cron")

    def events(
        self, since: int = 0, *, start: str = "", kinds: Sequence[str] = (), subject: str = "", limit: int = 0
    ) -> Document:
        """One page of `{events: [{id, at, kind, subject, text}]}`, oldest first: ids above `since`, from the time
        `start` (RFC 3339) on, of these kinds, about this run, slice, pool or queued resource."""
        query: list[tuple[str, str]] = [("since", str(since)), *(("kind", kind) for kind in kinds)]
        query += [(name, text) for name, text in (("from", start), ("subject", subject)) if text]
        query += [("limit", str(limit))] if limit else []
        return self._json("GET", f"/v1/events?{urlencode(query)}")

    def _json(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> Document:
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        answer = self._call(method, path, data, headers, timeout_s)
        try:
            document = json.loads(answer.body)
        except ValueError as error:
            raise self._unreadable(method, path) from error
        if not isinstance(document, dict):
            raise self._unreadable(method, path)
        return document

    def _call(
        self,
        method: str,
        path: str,
        body: bytes | IO[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> _Answer:
        answer = self._exchange(method, path, body, headers or {}, timeout_s or self._timeout_s)
        if answer.status == 401 and self._renew_token is not None:
            self._token = self._renew_token()
            if body is not None and not isinstance(body, bytes):
                body.seek(0)
            answer = self._exchange(method, path, body, headers or {}, timeout_s or self._timeout_s)
        if answer.status >= 400:
            raise self._refusal(answer, f"{method} {path}")
        return answer

    def _exchange(
        self, method: str, path: str, body: bytes | IO[bytes] | None, given: Mapping[str, str], timeout_s: float
    ) -> _Answer:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        connected = False
        try:
            connection.connect()
            connected = True
            connection.request(method, path, body, {**given, "Authorization": f"Bearer {self._token}"})
            response = connection.getresponse()
            data = response.read(MAX_ANSWER_BYTES + 1)
            if len(data) > MAX_ANSWER_BYTES:
                raise self._unreadable(method, path)
            headers = {name.lower(): text for name, text in response.getheaders()}
            if (age_s := pass_age(headers)) is not None:
                self._heard(age_s)
            return _Answer(response.status, headers, data)
        except (OSError, http.client.HTTPException) as error:
            said = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
            raise AgentUnreachableError(
                f"the agent at {self.address} cannot be reached ({method} {path}): {said}", sent=connected
            ) from error
        finally:
            connection.close()

    def _unreadable(self, method: str, path: str) -> AgentUnreachableError:
        return AgentUnreachableError(f"{method} {self.address}{path}: the answer is not the agent's", sent=True)

    def _refusal(self, answer: _Answer, what: str) -> AgentRefusedError | AgentNotReadyError:
        try:
            error = json.loads(answer.body)["error"]
            kind, message = str(error["kind"]), str(error["message"])
        except (ValueError, KeyError, TypeError):
            kind, message = "unknown", f"{what}: HTTP {answer.status}"  # a HEAD has no body
        if answer.status == 503:
            return AgentNotReadyError(message, after_s=2.0)
        if answer.status == 401:
            message += ". The token differs from the cluster's secret: is this the right cluster?"
        return _REFUSALS.get(answer.status, AgentRefusedError)(message, kind=kind, status=answer.status)
