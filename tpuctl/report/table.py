"""Tables of plain text that fit the width; a row may carry a note below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tpuctl.report.style import PLAIN, Style, clean, columns_of, cut_to, wrap

GAP = "  "
_LEAST = 6  # no column is cut below this


@dataclass(frozen=True, slots=True)
class Row:
    cells: tuple[str, ...]
    note: str = ""  # shown indented below, wrapped
    colours: tuple[str, ...] = ()  # one a cell; "" = none


def render_table(header: Sequence[str], rows: Sequence[Row], style: Style = PLAIN, shrink: Sequence[int] = ()) -> str:
    """Lines without a trailing newline. `shrink` names columns that may be cut when the rest does not fit, first first.

    A column without any content is left out.
    """
    cells = [[clean(cell) for cell in row.cells] for row in rows]
    shown = [at for at in range(len(header)) if any(line[at] for line in cells)]
    widths = {at: max(columns_of(header[at]), *(columns_of(line[at]) for line in cells)) for at in shown}
    _fit(widths, [at for at in shrink if at in widths], style.width)
    lines = [style.paint(_line([header[at] for at in shown], [widths[at] for at in shown], style), "bold")]
    for row, texts in zip(rows, cells, strict=True):
        parts = [_cell(texts[at], widths[at], style, last=at == shown[-1]) for at in shown]
        if row.colours:
            parts = [style.paint(part, row.colours[at]) for part, at in zip(parts, shown, strict=True)]
        lines.append(GAP.join(parts).rstrip())
        if row.note:
            lines += wrap(row.note, style, indent="    ")
    return "\n".join(lines)


def _fit(widths: dict[int, int], shrink: Sequence[int], width: int) -> None:
    """Cut columns, in the order of `shrink`, until the table fits; if it cannot, the last columns run over."""
    for at in shrink:
        over = sum(widths.values()) + len(GAP) * (len(widths) - 1) - width
        if over <= 0:
            return
        widths[at] = max(min(_LEAST, widths[at]), widths[at] - over)


def _line(texts: Sequence[str], widths: Sequence[int], style: Style) -> str:
    return GAP.join(_cell(text, width, style) for text, width in zip(texts, widths, strict=True)).rstrip()


def _cell(text: str, width: int, style: Style, *, last: bool = False) -> str:
    text = cut_to(text, width, style)
    return text if last else text + " " * (width - columns_of(text))
