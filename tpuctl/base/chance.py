"""The one place that rolls dice. Planners get drawn numbers, appliers get a Chance."""

from __future__ import annotations

import random
import secrets
import uuid
from typing import Protocol


class Chance(Protocol):
    def unit(self) -> float:
        """Uniform in [0, 1)."""
        ...

    def request_id(self) -> str:
        """A UUID in text, for the cloud's idempotency keys."""
        ...


class SystemChance:
    def unit(self) -> float:
        return random.random()

    def request_id(self) -> str:
        return str(uuid.uuid4())


class SeededChance:
    """The same numbers for the same seed: tests and simulations."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def unit(self) -> float:
        return self._random.random()

    def request_id(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


def new_token() -> str:
    """32 random bytes as URL-safe text: the cluster's secret."""
    return secrets.token_urlsafe(32)
