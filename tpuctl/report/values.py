"""Values of documents, read leniently: an agent of another version may leave out or add some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tpuctl.base.units import Instant, show_duration

Document = Mapping[str, Any]


def part(document: Document, name: str) -> Document:
    """A nested mapping; empty when absent."""
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}


def rows(document: Document, name: str) -> tuple[Document, ...]:
    """A list of mappings; empty when absent."""
    found = document.get(name)
    if not isinstance(found, Sequence) or isinstance(found, str):
        return ()
    return tuple(row for row in found if isinstance(row, Mapping))


def when(value: Any) -> Instant | None:
    """From RFC 3339 text, or seconds since 1970."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return Instant(float(value))
    try:
        return Instant.parse(str(value))
    except ValueError:
        return None


def age(value: Any, now: Instant) -> str:
    """How long ago, for people; a clock that runs ahead of ours counts as now. "" when unknown."""
    at = when(value)
    return "" if at is None else show_duration(float(int(max(0.0, now.since(at)))))


def span(start: Any, end: Any) -> str:
    first, last = when(start), when(end)
    return "" if first is None or last is None else show_duration(max(0.0, round(last.since(first), 1)))


def clock_time(value: Any) -> str:
    """`2026-12-01 16:28:11`, UTC."""
    at = when(value)
    return "" if at is None else at.iso()[:19].replace("T", " ")


def count(value: Any) -> str:
    """A number, with 0 shown as nothing worth a look."""
    return "-" if value in (None, 0) else str(value)


def names(value: Any) -> str:
    """A list of names, or of rows that have one, on one line."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ""
    return ", ".join(
        str(each.get("slice") or each.get("name") or "") if isinstance(each, Mapping) else str(each) for each in value
    )
