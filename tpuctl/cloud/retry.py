"""Retries of reads. Effects are never repeated here: their callers hold the request id and look first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from tpuctl.base.clock import Clock
from tpuctl.cloud.errors import RateLimitedError, TransientError

T = TypeVar("T")

TRIES = 3  # a pass comes each minute anyway: a short trouble is bridged, a long one is reported


def reading(call: Callable[[], T], clock: Clock) -> T:
    """The call's result. Transient failures and rate limits are tried again after up to 1, then 2 s (with jitter)."""
    retrying = Retrying(
        retry=retry_if_exception_type((TransientError, RateLimitedError)),
        stop=stop_after_attempt(TRIES),
        wait=wait_random_exponential(multiplier=1.0, max=5.0),
        sleep=lambda seconds: clock.sleep(float(seconds)),
        reraise=True,
    )
    return retrying(call)
