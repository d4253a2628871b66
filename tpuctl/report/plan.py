"""`tpuctl plan`: what the next pass would do, and why."""

from __future__ import annotations

from collections.abc import Sequence

from tpuctl.report.style import PLAIN, Style, clean, wrap

_COLOUR = {"create": "green", "delete": "red", "hold": "yellow", "wait": "dim"}


def render_plan(lines: Sequence[str], *, style: Style = PLAIN) -> str:
    """One line an action, as the plan prints itself ("create lab-v4-0-…: reason"), wrapped. No trailing newline."""
    if not lines:
        return "nothing to do: what exists is what is wanted"
    shown = list[str]()
    for line in lines:
        verb, blank, rest = clean(line).partition(" ")
        wrapped = wrap(f"{verb}{blank}{rest}", style, indent="    ", first="  ")
        colour = _COLOUR.get(verb.lower().rstrip(":"), "")
        wrapped[0] = wrapped[0].replace(verb, style.paint(verb, colour), 1)
        shown += wrapped
    return "\n".join(shown)
