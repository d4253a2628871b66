"""Which code is this? A digest over tpuctl's own sources, so that a VM with other code is noticed before it joins."""

from __future__ import annotations

import hashlib
from pathlib import Path

_SUFFIXES = frozenset({".py", ".sh", ".sql"})
_DIGITS = 16


def source_digest(package: Path | None = None) -> str:
    """The first 16 hex digits of a SHA-256 over paths and bytes of the package's .py, .sh and .sql files.

    It depends on nothing else: not on the place of installation, file times or compiled files.
    """
    root = package or Path(__file__).parent.parent
    total = hashlib.sha256()
    for path in sorted(root.rglob("*"), key=lambda found: found.relative_to(root).as_posix()):
        if path.suffix in _SUFFIXES and path.is_file():
            data = path.read_bytes()
            total.update(f"{path.relative_to(root).as_posix()}\0{len(data)}\0".encode())
            total.update(data)
    return total.hexdigest()[:_DIGITS]
