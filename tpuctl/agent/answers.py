"""What the service answers with: JSON, and one form for every error.

    {"error": {"kind": "...", "message": "..."}}   with 400, 401, 404, 409 or 503

Handlers raise the classes below; the middleware alone turns them, aiohttp's own refusals and a handler that takes too
long into that form. An exception outside our family is a bug: aiohttp logs it and answers 500, and the service lives
on, because a request of one client must not take the others' agent away.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from aiohttp import web

from tpuctl.base.errors import RetryLaterError, StaleError, TpuctlError, UserError

F = TypeVar("F", bound=Callable[..., Awaitable[web.StreamResponse]])
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MAX_BODY_BYTES = 64 * 1024
HANDLER_LIMIT_S = 30.0  # covers reading the body too: a client that sends a byte a minute is cut off


class ApiError(TpuctlError):
    status = 400
    kind = "bad-request"

    def __init__(self, message: str, *, kind: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind or self.kind


class BadRequestError(ApiError):
    status, kind = 400, "bad-request"


class UnauthorizedError(ApiError):
    status, kind = 401, "unauthorized"


class MissingError(ApiError):
    status, kind = 404, "not-found"


class ConflictError(ApiError):
    status, kind = 409, "conflict"


class UnavailableError(ApiError):
    status, kind = 503, "unavailable"


def error_answer(status: int, kind: str, message: str) -> web.Response:
    return web.json_response({"error": {"kind": kind, "message": message}}, status=status)


def answer_to(error: TpuctlError) -> web.Response:
    match error:
        case ApiError():
            return error_answer(error.status, error.kind, str(error))
        case UserError():
            return error_answer(400, "bad-request", str(error))
        case StaleError():
            return error_answer(409, "conflict", str(error))
        case RetryLaterError():
            return error_answer(503, "unavailable", str(error))
        case _:
            return error_answer(503, "failed", str(error))


def limit_of(request: web.Request) -> float:
    """Handlers that stream or wait bound themselves and say so on the function."""
    return float(getattr(request.match_info.handler, "limit_s", HANDLER_LIMIT_S))


def takes(seconds: float) -> Callable[[F], F]:
    """Decorates a handler that may take this long."""

    def mark(handler: F) -> F:
        handler.limit_s = seconds  # type: ignore[attr-defined]  # read by limit_of alone
        return handler

    return mark


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        async with asyncio.timeout(limit_of(request)):
            return await handler(request)
    except TpuctlError as error:
        return answer_to(error)
    except web.HTTPRequestEntityTooLarge:
        return error_answer(400, "too-large", f"{request.path}: the body is larger than {MAX_BODY_BYTES} bytes")
    except web.HTTPNotFound:
        return error_answer(404, "not-found", f"no such call: {request.method} {request.path}")
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        return error_answer(400, "bad-request", f"{request.path} takes {allowed}, not {request.method}")
    except TimeoutError:
        return error_answer(503, "timeout", f"{request.method} {request.path} took longer than {limit_of(request):g} s")


async def json_body(request: web.Request, **fields: type | tuple[type, ...]) -> dict[str, Any]:
    """The body as an object whose named fields have these types. Raises BadRequestError naming the field."""
    raw = await request.read()
    try:
        document = json.loads(raw or b"{}", parse_constant=_refuse_constant)
        json.dumps(document, ensure_ascii=False).encode()  # half a surrogate pair could be stored nowhere
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"{request.path}: the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise BadRequestError(f"{request.path}: the body must be a JSON object")
    for name, kinds in fields.items():
        value = document.get(name)
        wanted = kinds if isinstance(kinds, tuple) else (kinds,)
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            names = " or ".join(kind.__name__ for kind in wanted)
            raise BadRequestError(f"{request.path}: field {name!r} must be {names}, not {type(value).__name__}")
    return document


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def whole_number(request: web.Request, name: str, default: int, *, least: int = 0, most: int = 2**53) -> int:
    """A query parameter. Raises BadRequestError."""
    text = request.query.get(name)
    if text is None or text == "":
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 16 or not least <= int(text) <= most:
        raise BadRequestError(f"{request.path}: {name}={text!r} is not a whole number from {least} to {most}")
    return int(text)
