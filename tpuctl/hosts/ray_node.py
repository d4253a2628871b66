"""One `ray start --block` and its life. The processes around it (raylet, agents, workers) end with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpuctl.base.clock import Clock
from tpuctl.base.process import identify, kill_tree, spawn

_UP = b"Ray runtime started"
_TAIL_BYTES = 800  # the end of a traceback says what went wrong
MAX_PAUSE_S = 10.0


@dataclass(frozen=True, slots=True)
class RayEnd:
    status: int  # of `ray start`; minus the signal that ended it
    was_up: bool
    lived_s: float
    last_words: str  # of its output, when it never came up


class RayNode:
    """A started `ray start --block`. Output goes to `log`, appended."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], log: Path, clock: Clock) -> None:
        self._clock = clock
        self._log = log
        self._started_s = clock.monotonic()
        self._up = False
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._offset = output.tell()
            self._child = spawn(argv, environment=environment, output=output)
        self._pidfd = os.pidfd_open(self._child.pid)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def lived_s(self) -> float:
        return self._clock.monotonic() - self._started_s

    def is_up(self) -> bool:
        """True once Ray has said that this node runs. Reads the output until then."""
        if not self._up:
            self._up = _UP in self._output()
        return self._up

    def fileno(self) -> int:
        """A descriptor that becomes readable when it ends."""
        return self._pidfd

    def ended(self) -> RayEnd | None:
        """How it ended; None while it runs."""
        status = self._child.poll()
        if status is None:
            return None
        was_up = self.is_up()
        return RayEnd(status, was_up, self.lived_s, "" if was_up else self._last_words())

    def drain(self) -> None:
        """Ask it to leave: Ray tells the head PREEMPTION, waits for the drain time at most, and ends."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """End all of it now, if it still runs: a head that is gone has nobody to drain for. Once, as the last call."""
        root = identify(self._child.pid) if self._child.poll() is None else None
        if root is not None:
            kill_tree(root)
        self._child.wait()
        os.close(self._pidfd)

    def _output(self) -> bytes:
        with self._log.open("rb") as file:
            file.seek(self._offset)
            return file.read()

    def _last_words(self) -> str:
        return self._output()[-_TAIL_BYTES:].decode("utf-8", errors="replace").strip()


def pause_after(failures: int) -> float:
    """Seconds before the next start after so many starts in a row that did not come up."""
    return 0.0 if failures == 0 else float(min(MAX_PAUSE_S, 2 ** (failures - 1)))
