"""A core on virtual time."""

from __future__ import annotations

import pytest

from tpuctl.testing.core_driver import Driver, a_driver


@pytest.fixture
def driver() -> Driver:
    """With the usual settings; tests with their own call `a_driver`."""
    return a_driver()
