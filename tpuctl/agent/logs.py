"""Programs' output as the supervisor copied it: bytes from an offset. Nothing is decoded here (A49)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MAX_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogChunk:
    data: bytes
    next_offset: int
    complete: bool  # nothing will follow `next_offset`


def read_chunk(path: Path, offset: int, limit: int, *, finished: bool) -> LogChunk:
    """At most `limit` bytes from `offset` on. `finished`: the attempt was over before this call, so that its log cannot
    grow any more. A log that is not there yet is empty; an offset beyond the end stays where it is."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(min(offset, size))
            data = file.read(min(limit, MAX_CHUNK_BYTES))
    except FileNotFoundError:
        return LogChunk(b"", offset, finished)
    end = offset + len(data)
    return LogChunk(data, end, finished and end >= size)


def ranks_of(directory: Path) -> tuple[int, ...]:
    """Ranks that have a log, ascending."""
    return tuple(sorted(int(path.stem) for path in directory.glob("*.log") if path.stem.isdigit()))
