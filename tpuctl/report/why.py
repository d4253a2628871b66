"""`tpuctl why`: the reasons, as those who decided gave them."""

from __future__ import annotations

from tpuctl.report.style import PLAIN, Style, wrap
from tpuctl.report.values import Document


def render_why(document: Document, *, style: Style = PLAIN) -> str:
    """`GET /v1/why/<name>`: the first line says what it is, the others hang below it. No trailing newline."""
    lines = [str(line) for line in document.get("lines") or ()]
    if not lines:
        return f"nothing is known about {document.get('subject') or 'it'}"
    shown = wrap(lines[0], style, indent="  ", first="")
    for line in lines[1:]:
        shown += wrap(line, style, indent="    ", first="  - ")
    return "\n".join(shown)
