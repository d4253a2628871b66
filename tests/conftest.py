"""For all tests."""

from __future__ import annotations

import signal

from hypothesis import settings

# Two shared cores: how long one example takes says nothing about the code. pytest's own time limit still holds.
settings.register_profile("tpuctl", deadline=None)
settings.load_profile("tpuctl")

# A shell without job control starts its background jobs with SIGINT ignored, and so would every child be: tests that
# interrupt would then pass or fail by how the suite was started.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
