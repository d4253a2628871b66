"""Each module of stories has one world."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scenarios.stories import World, a_world


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with a_world() as made:
        yield made
