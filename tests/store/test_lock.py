from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tpuctl.base.errors import BusyError
from tpuctl.store.lock import PassLock


def test_a_second_pass_is_refused_at_once_and_told_who_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "pass.lock"
    with PassLock(path) as lock:
        assert lock.is_held
        with pytest.raises(BusyError, match=f"pid {os.getpid()}"):
            PassLock(path).__enter__()


def test_the_lock_is_free_after_the_pass_and_says_so(tmp_path: Path) -> None:
    lock = PassLock(tmp_path / "pass.lock")
    with lock:
        pass
    assert not lock.is_held
    with PassLock(tmp_path / "pass.lock") as second:
        assert second.is_held


def test_a_lock_file_that_was_replaced_is_not_held_any_more(tmp_path: Path) -> None:
    path = tmp_path / "pass.lock"
    with PassLock(path) as lock:
        path.unlink()
        assert not lock.is_held


def test_the_lock_dies_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "pass.lock"
    code = (
        "import sys, signal; from pathlib import Path; from tpuctl.store.lock import PassLock\n"
        "with PassLock(Path(sys.argv[1])):\n    print('held', flush=True); signal.pause()\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(BusyError):
        PassLock(path).__enter__()

    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()

    with PassLock(path) as lock:
        assert lock.is_held
