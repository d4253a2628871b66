"""The pass lock: one pass at a time on a store. The kernel's own lock on an open file, so it dies with its process."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tpuctl.base.errors import BusyError
from tpuctl.store.errors import StoreError


class PassLock:
    """`with PassLock(path): …`. Raises BusyError at once when another pass holds it; it never waits.

    The file stays: removing it would let two passes lock two files of one name.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        """True while this object holds the lock on the file that now stands at the path."""
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    def __enter__(self) -> PassLock:
        # Not inherited by children: a child that outlives the pass must not keep the lock.
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"the pass lock {self._path} cannot be opened: {error.strerror or error}. Nothing was done"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 64, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise BusyError(f"another pass{f' (pid {holder})' if holder else ''} holds {self._path}") from error
        with suppress(OSError):  # on a full disk the lock holds all the same; the number is for people
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
