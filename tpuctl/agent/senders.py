"""How a notice leaves the head: a command's input, a webhook's POST. Both bounded in time; a failure is one line.

A webhook's URL is a secret (whoever has it may post), so that no more than its host is ever told or logged.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from tpuctl.base.errors import TpuctlError
from tpuctl.spec.cluster import NotifySpec

LIMIT_S = 30.0
MESSAGE, KIND = "TPUCTL_MESSAGE", "TPUCTL_NOTICE"
MESSAGE_LETTERS = 4000  # an environment has bounds; the document on the input has the whole text
_LAST_OUTPUT = 300


class NotToldError(TpuctlError):
    """The notice did not arrive, as far as can be told."""


def channels_of(spec: NotifySpec) -> tuple[str, ...]:
    """Which of the two are in use."""
    return tuple(name for name, value in (("command", spec.command), ("webhook", spec.webhook)) if value)


async def send(channel: str, spec: NotifySpec, document: Mapping[str, Any], *, limit_s: float = LIMIT_S) -> None:
    """Raises NotToldError."""
    if channel == "command":
        await run_command(spec.command, document, limit_s)
    else:
        await post(spec.webhook, document, limit_s)


async def run_command(line: str, document: Mapping[str, Any], limit_s: float) -> None:
    """By a shell, in a process group of its own that does not outlive the limit."""
    text = str(document.get("text") or "").replace("\0", " ")[:MESSAGE_LETTERS]
    environment = {**os.environ, MESSAGE: text, KIND: str(document.get("kind") or "")}
    try:
        child = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", line,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            env=environment, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise NotToldError(f"notify.command cannot be run: {error.strerror}") from error
    try:
        async with asyncio.timeout(limit_s):
            output, _ = await child.communicate(json.dumps(document).encode() + b"\n")
    except TimeoutError as error:
        raise NotToldError(f"notify.command was ended: it took longer than {limit_s:g} s") from error
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # what it left in the background, too
        await child.wait()
    if child.returncode != 0:
        said = " ".join(output.decode("utf-8", "replace").split())[-_LAST_OUTPUT:]
        raise NotToldError(f"notify.command exited {child.returncode}: {said or 'no output'}")


async def post(url: str, document: Mapping[str, Any], limit_s: float) -> None:
    """One POST of JSON, certificates checked, no redirect followed: the next host is not the one that was named."""
    where = host_of(url)
    timeout = aiohttp.ClientTimeout(total=limit_s)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
            session.post(url, json=document, allow_redirects=False) as answer,
        ):
            status = answer.status
    except TimeoutError as error:
        raise NotToldError(f"the webhook at {where} gave no answer within {limit_s:g} s") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # Not the error's own text: some of them quote the URL.
        raise NotToldError(f"the webhook at {where} cannot be reached: {type(error).__name__}") from None
    if not 200 <= status < 300:
        raise NotToldError(f"the webhook at {where} answered {status}")


def host_of(url: str) -> str:
    """What of a URL may be shown."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname or '?'}{port}/…"
    except ValueError:
        return "an address that is none"
