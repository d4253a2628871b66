"""Small HTTP calls to services of our own network: no redirects, no proxies, a time limit, a bounded answer."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

from tpuctl.base.errors import TpuctlError

_MAX_ANSWER_BYTES = 64 * 1024 * 1024


class NoAnswerError(TpuctlError):
    """The call got no whole answer; whether it had an effect is unknown."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Any status is an answer, also 4xx and 5xx. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def document(self) -> Any:
        """The body as JSON. Raises NoAnswerError when it is none: then something else answered."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise NoAnswerError(f"the answer (status {self.status}) is not JSON: {self.body[:200]!r}") from error

    def text(self) -> str:
        return self.body.decode("utf-8", errors="replace")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """urllib would carry the Authorization header to wherever a redirect points."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)


def call(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    token: str = "",
    document: Any = None,
    body: bytes | None = None,
    timeout_s: float,
    limit_bytes: int = _MAX_ANSWER_BYTES,
) -> Answer:
    """One call. `document` is sent as JSON, `token` as bearer. Raises NoAnswerError, also for an answer of more than
    `limit_bytes`; its text never holds the token.

    The time limit is one for each wait on the socket, so a server that drips may take longer.
    """
    all_headers = dict(headers or {})
    if document is not None:
        body = json.dumps(document).encode()
        all_headers["Content-Type"] = "application/json"
    if token:
        all_headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, data=body, headers=all_headers, method=method)
    try:
        with _opener.open(request, timeout=timeout_s) as response:
            return _read(response, response.status, dict(response.headers), url, limit_bytes)
    except urllib.error.HTTPError as error:
        with error:
            return _read(error, error.code, dict(error.headers), url, limit_bytes)
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise NoAnswerError(f"{method} {url}: {reason or type(error).__name__}") from error


def _read(stream: IO[bytes], status: int, headers: Mapping[str, str], url: str, limit_bytes: int) -> Answer:
    try:
        body = stream.read(limit_bytes + 1)
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswerError(f"{url}: the answer broke off: {error or type(error).__name__}") from error
    if len(body) > limit_bytes:
        raise NoAnswerError(f"{url}: the answer is longer than {limit_bytes} bytes")
    return Answer(status, {name.lower(): value for name, value in headers.items()}, body)
