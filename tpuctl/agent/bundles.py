"""Working directories of runs as archives on the data disk, named by the SHA-256 of their bytes.

An archive is there whole or not at all: it is written beside, compared with the digest that names it, synced, renamed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

from tpuctl.agent.answers import BadRequestError
from tpuctl.base.files import sync_directory

MAX_BUNDLE_BYTES = 256 * 1024 * 1024
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PARTIAL = ".incoming-"


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


class Bundles:
    """Not for two processes: the agent's lock makes it the only writer."""

    def __init__(self, directory: Path, *, limit_bytes: int = MAX_BUNDLE_BYTES) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        directory.mkdir(parents=True, exist_ok=True)
        for leftover in directory.glob(f"{_PARTIAL}*"):
            leftover.unlink()  # an upload that a former life did not finish

    def path(self, digest: str) -> Path:
        """Where it is or would be. Raises BadRequestError when the name is no digest (and so no path either)."""
        if not is_digest(digest):
            raise BadRequestError(f"{digest[:80]!r} is not a SHA-256 in 64 lower-case hex digits")
        return self._directory / digest

    def has(self, digest: str) -> bool:
        return self.path(digest).is_file()

    async def receive(self, digest: str, chunks: AsyncIterator[bytes], announced: int | None) -> int:
        """Store what arrives under its digest; returns its size. Raises BadRequestError and keeps nothing when it is
        larger than the limit or when the bytes have another digest."""
        target = self.path(digest)
        if announced is not None and announced > self._limit_bytes:
            raise self._too_large()
        beside = self._directory / f"{_PARTIAL}{secrets.token_hex(8)}"
        try:
            size, found = await self._write(beside, chunks)
            if found != digest:
                raise BadRequestError(f"bundle {digest[:12]}…: the {size} bytes that arrived have digest {found[:12]}…")
            beside.replace(target)
            sync_directory(self._directory)
            return size
        finally:
            beside.unlink(missing_ok=True)

    async def _write(self, path: Path, chunks: AsyncIterator[bytes]) -> tuple[int, str]:
        sha, size = hashlib.sha256(), 0
        with path.open("xb") as file:
            async for chunk in chunks:
                size += len(chunk)
                if size > self._limit_bytes:
                    raise self._too_large()
                sha.update(chunk)
                file.write(chunk)  # into the page cache; only the sync waits for the disk
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        return size, sha.hexdigest()

    def _too_large(self) -> BadRequestError:
        mib = self._limit_bytes // (1024 * 1024)
        return BadRequestError(
            f"the working directory's archive is larger than {mib} MiB: keep data out of it with .gitignore",
            kind="too-large",
        )
