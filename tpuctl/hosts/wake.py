"""Waiting without polling: for a time, for a process, for a signal, for another thread."""

from __future__ import annotations

import contextlib
import os
import select
from typing import Protocol


class HasFileno(Protocol):
    def fileno(self) -> int: ...


class Wake:
    """`call()` may come from a signal handler or another thread; it ends the present or the next `wait`."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def call(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: it is awake already
            os.write(self._write, b"!")

    def wait(self, limit_s: float, *also: HasFileno) -> None:
        """Return after `limit_s`, when called, or when one of `also` can be read."""
        select.select([self._read, *(one.fileno() for one in also)], [], [], max(0.0, limit_s))
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)
