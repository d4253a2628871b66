"""A crontab with a block of ours in it. Pure: bytes to bytes; everything outside the block stays byte for byte.

# >>> tpuctl lab: written by 'tpuctl cron install', taken out by 'tpuctl cron remove'
*/5 * * * * /usr/bin/python3 -P -m tpuctl cron run …
# <<< tpuctl lab
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from tpuctl.base.errors import TpuctlError, UserError

# What divides an hour: cron counts minutes of the hour, so that */7 would run at :56 and again at :00.
EVERY_MIN = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60)
_ENTRY = re.compile(rb"(?:\*/(?P<every>\d+)|(?P<all>\*)|(?P<hour>\d+)) \* \* \* \* (?P<command>.*)")


class BrokenBlockError(TpuctlError):
    """The block begins and does not end, or is there twice: somebody edited it, and what is ours cannot be told."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the block says."""

    every_min: int
    command: str  # the shell line, as in the crontab


def check_every(minutes: int) -> int:
    """Raises UserError."""
    if minutes not in EVERY_MIN:
        known = ", ".join(map(str, EVERY_MIN))
        raise UserError(f"--every {minutes}: cron counts the minutes of an hour; use one of {known}")
    return minutes


def entry_line(every_min: int, command: Sequence[str]) -> bytes:
    """A line of a crontab. A percent sign would end the command there, and a line break the line."""
    line = shlex.join(command)
    if "\n" in line or "\r" in line:
        raise UserError(f"a path with a line break cannot stand in a crontab: {line!r}")
    minute = {1: "*", 60: "0"}.get(every_min, f"*/{every_min}")
    return f"{minute} * * * * ".encode() + line.replace("%", "\\%").encode("utf-8", "surrogateescape") + b"\n"


def with_block(table: bytes, name: str, line: bytes) -> bytes:
    """The table with this block: where it stood, else at the end. Raises BrokenBlockError.

    A table whose last line does not end gets a line break there: crontab(1) itself takes no other.
    """
    block = _begin(name) + line + _end(name)
    span = _span(table, name)
    if span is not None:
        return table[: span[0]] + block + table[span[1] :]
    return table + (b"\n" if table and not table.endswith(b"\n") else b"") + block


def without_block(table: bytes, name: str) -> bytes:
    """Raises BrokenBlockError."""
    span = _span(table, name)
    return table if span is None else table[: span[0]] + table[span[1] :]


def block_in(table: bytes, name: str) -> Entry | None:
    """Raises BrokenBlockError."""
    span = _span(table, name)
    if span is None:
        return None
    lines = table[span[0] : span[1]].splitlines()[1:-1]
    entry = next((match for line in lines if (match := _ENTRY.fullmatch(line))), None)
    if entry is None:
        return Entry(0, b"\n".join(lines).decode("utf-8", "replace"))
    every = 1 if entry["all"] else 60 if entry["hour"] else int(entry["every"])
    return Entry(every, entry["command"].decode("utf-8", "replace").replace("\\%", "%"))


def _begin(name: str) -> bytes:
    return f"# >>> tpuctl {name}: written by 'tpuctl cron install', taken out by 'tpuctl cron remove'\n".encode()


def _end(name: str) -> bytes:
    return f"# <<< tpuctl {name}\n".encode()


def _span(table: bytes, name: str) -> tuple[int, int] | None:
    """From the begin mark's line up to behind the end mark's."""
    word = re.escape(name.encode())
    begins = [match.span() for match in re.finditer(rb"(?m)^# >>> tpuctl %b:.*\n?" % word, table)]
    ends = [match.span() for match in re.finditer(rb"(?m)^# <<< tpuctl %b[ \t]*(?:\n|\Z)" % word, table)]
    if not begins and not ends:
        return None
    if len(begins) != 1 or len(ends) != 1 or ends[0][0] < begins[0][1]:
        raise BrokenBlockError(
            f"the crontab's block of {name!r} has {len(begins)} first and {len(ends)} last lines, in whatever order: "
            "nothing was changed. Take its lines out with 'crontab -e'"
        )
    return begins[0][0], ends[0][1]
