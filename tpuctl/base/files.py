"""Files that are whole or absent: written beside, synced, renamed."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any


def write_atomic(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace `path` by `data` so that every reader sees the old or the new bytes whole, also after a crash.

    The mode holds from the first byte on: no other user can read an owner-only file while it is being written.
    """
    # The name is unguessable and the flag exclusive, so that a link planted by another user is never followed.
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_json_atomic(path: Path, document: Any, *, mode: int = 0o644) -> None:
    write_atomic(path, (json.dumps(document, indent=1, sort_keys=True) + "\n").encode(), mode=mode)


def read_json(path: Path) -> Any | None:
    """The document, or None if there is no such file. Raises ValueError when the file is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def owner_only_directory(path: Path) -> Path:
    """Make the directory (and parents) if needed; itself readable by its owner alone."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path
