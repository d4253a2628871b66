"""`tpuctl events`: what happened, with the time of day, or as a timeline counted from its first event."""

from __future__ import annotations

from collections.abc import Collection

from tpuctl.base.units import show_duration
from tpuctl.report.style import PLAIN, Style, clean, columns_of, wrap
from tpuctl.report.values import Document, clock_time, rows, when

# The life of slices and runs as people tell it; hosts' reports and the like are left out.
TIMELINE = frozenset(
    {
        "requested", "ready", "submitted", "attempt-ordered", "started", "notice", "suspect", "lost", "deleted", "gone",
        "verdict", "succeeded", "failed", "cancelled", "down",
    }
)  # fmt: skip
_KIND_WIDTH = 15


def render_events(document: Document, *, style: Style = PLAIN) -> str:
    """Oldest first, one a line, long texts wrapped below. Times are UTC. No trailing newline."""
    return _lines([(clock_time(row.get("at")) or "?", row) for row in rows(document, "events")], style)


def render_timeline(document: Document, *, kinds: Collection[str] = TIMELINE, style: Style = PLAIN) -> str:
    """The events of these kinds, each with the time since the first of them. No trailing newline."""
    wanted = [row for row in rows(document, "events") if row.get("kind") in kinds]
    first = next((at for row in wanted if (at := when(row.get("at"))) is not None), None)
    shown = []
    for row in wanted:
        at = when(row.get("at"))
        shown.append(("?" if at is None or first is None else f"+{show_duration(round(at.since(first), 1))}", row))
    return _lines(shown, style)


def _lines(events: list[tuple[str, Document]], style: Style) -> str:
    if not events:
        return "no events"
    width = max(columns_of(time) for time, _ in events)
    lines = list[str]()
    for time, row in events:
        kind = clean(row.get("kind") or "?")
        subject = clean(row.get("subject"))
        first = f"{time:>{width}}  {kind:<{_KIND_WIDTH}}  "
        text = clean(row.get("text"))
        lines += wrap(f"{subject}: {text}" if text else subject, style, indent=" " * columns_of(first), first=first)
    return "\n".join(lines)
