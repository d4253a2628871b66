"""Who may call: whoever holds the cluster's secret. Everything but `/v1/health` wants `Authorization: Bearer <secret>`.

A request that a browser sent on behalf of a page (it has an Origin) is refused even with the secret: no page has
business here, and our own clients send none.
"""

from __future__ import annotations

import hmac

from aiohttp import web

from tpuctl.agent.answers import Handler, UnauthorizedError
from tpuctl.base.errors import BugError

OPEN_PATHS = frozenset({"/v1/health"})


def bearer_of(header: str) -> str:
    scheme, _, secret = header.partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def is_secret(given: str, secret: str) -> bool:
    """Takes the same time wherever the two differ."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), secret.encode())


def guard(secret: str) -> web.middleware:  # type: ignore[valid-type]  # aiohttp's decorator doubles as the type's name
    if not secret:
        raise BugError("an agent without a secret would be open to everybody")

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in OPEN_PATHS:
            if "Origin" in request.headers:
                raise UnauthorizedError("requests from web pages are refused")
            if not is_secret(bearer_of(request.headers.get("Authorization", "")), secret):
                raise UnauthorizedError("the cluster's secret is missing or wrong: read it again and repeat")
        return await handler(request)

    return guarded
