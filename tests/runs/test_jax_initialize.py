"""tpuctl.jax without JAX: chip locks, and a process outside tpuctl. Joining processes: test_demo_training.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = "import sys, tpuctl.jax; tpuctl.jax._lock_chips(2); print('locked', flush=True); sys.stdin.read()"


def start(devices: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TPU_DEV_ROOT": str(devices)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_chip_in_use_is_refused_with_libtpus_words_and_free_again_after_its_holder(tmp_path: Path) -> None:
    for chip in range(2):
        (tmp_path / f"accel{chip}").touch()
    with start(tmp_path) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "locked\n"
        with start(tmp_path) as second:
            _, said = second.communicate()
        first.communicate("")

    with start(tmp_path) as third:
        assert third.communicate("")[0] == "locked\n"
    assert (second.returncode, third.returncode) == (1, 0)
    assert f"The TPU is already in use by process with pid {first.pid}" in said


def test_process_outside_tpuctl_goes_on_alone_and_says_so() -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TPUCTL_")}
    line = "import sys, tpuctl.jax; tpuctl.jax.initialize(); print('jax' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", line], env=clean, capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
    assert "a single process outside tpuctl" in done.stderr
