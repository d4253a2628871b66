from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuctl.store.database import Store
from tpuctl.testing.clock import FakeClock


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "store.sqlite3", clock=FakeClock(), create=True)
    yield opened
    opened.close()
