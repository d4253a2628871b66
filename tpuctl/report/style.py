"""How text may look: width, colour, and whether letters beyond ASCII are ours to use."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WIDEST = 80
NARROWEST = 40
_COLOURS = {"red": "31", "green": "32", "yellow": "33", "dim": "2", "bold": "1"}


@dataclass(frozen=True, slots=True)
class Style:
    """The default is plain: ASCII decoration, no colour, 80 columns."""

    colour: bool = False
    unicode: bool = False
    width: int = WIDEST

    @property
    def cut(self) -> str:
        """Stands where text was left out."""
        return "…" if self.unicode else "~"

    def paint(self, text: str, colour: str) -> str:
        if not self.colour or not colour or not text:
            return text
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


PLAIN = Style()


def style_for(*, terminal: bool, columns: int, encoding: str, environment: Mapping[str, str]) -> Style:
    """Colour and letters beyond ASCII only on a terminal that takes them; neither with NO_COLOR or TERM=dumb.

    Never wider than 80 columns: lines stay readable, and what people paste looks as it did.
    """
    width = max(NARROWEST, min(WIDEST, columns))
    if not terminal or environment.get("NO_COLOR") or environment.get("TERM") == "dumb":
        return Style(width=width if terminal else WIDEST)
    return Style(colour=True, unicode=encoding.lower().replace("-", "") == "utf8", width=width)


def clean(value: Any) -> str:
    """A value on one line. What others wrote cannot move the cursor, colour the terminal or break a table."""
    text = "" if value is None else str(value)
    printable = (letter if letter == " " or unicodedata.category(letter)[0] not in "CZ" else " " for letter in text)
    return re.sub(r" {2,}", " ", "".join(printable)).strip()


def columns_of(text: str) -> int:
    """How many columns a terminal takes for it."""
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def cut_to(text: str, width: int, style: Style) -> str:
    """At most `width` columns; what is left out is marked."""
    if columns_of(text) <= width:
        return text
    kept, used = "", 0
    for letter in text:
        used += columns_of(letter)
        if used > width - 1:
            break
        kept += letter
    return kept + style.cut


def wrap(text: str, style: Style, indent: str = "", first: str | None = None) -> list[str]:
    """Lines of at most the style's width, broken at blanks, and inside a word only when it is longer than a line."""
    lines, line = list[str](), indent if first is None else first
    room = style.width - columns_of(indent)
    empty = True
    for word in clean(text).split(" "):
        while columns_of(word) > room:
            if not empty:
                lines.append(line)
                line, empty = indent, True
            head = _prefix(word, style.width - columns_of(line))
            lines.append(line + head)
            line, word = indent, word[len(head) :]
        if not empty and columns_of(line) + 1 + columns_of(word) > style.width:
            lines.append(line)
            line, empty = indent, True
        line += word if empty else f" {word}"
        empty = empty and not word
    if not empty or not lines:
        lines.append(line)
    return [each.rstrip() for each in lines]


def _prefix(word: str, width: int) -> str:
    """As many letters as fit in `width` columns, at least one."""
    used = 0
    for at, letter in enumerate(word):
        used += columns_of(letter)
        if used > width and at:
            return word[:at]
    return word
