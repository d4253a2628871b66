from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuctl.testing.builders import a_cluster_spec, a_pool
from tpuctl.testing.fleet_world import FleetWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FleetWorld]:
    """Two slices wanted, nothing there yet."""
    made = FleetWorld(tmp_path, a_cluster_spec(a_pool(slices=2)))
    yield made
    made.check_safety()
    made.store.close()
