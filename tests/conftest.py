"""For all tests."""

from __future__ import annotations

from hypothesis import settings

# Two shared cores: how long one example takes says nothing about the code. pytest's own time limit still holds.
settings.register_profile("tpuctl", deadline=None)
settings.load_profile("tpuctl")
