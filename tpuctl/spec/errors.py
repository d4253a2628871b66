"""What is wrong with a spec: all of it at once, each problem with its place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tpuctl.base.errors import UserError

_SHOWN = 50  # a file that is not a spec at all must not fill the terminal


@dataclass(frozen=True, order=True, slots=True)
class Problem:
    line: int  # from 1; 0: the document has no lines (JSON from the store or the API)
    column: int  # from 1
    text: str  # what, with the offending text, and what to do

    def shown(self, filename: str) -> str:
        return f"{filename}:{self.line}:{self.column}: {self.text}" if self.line else f"{filename}: {self.text}"


class SpecError(UserError):
    """All problems of one file. Nothing was done with it."""

    def __init__(self, filename: str, problems: Iterable[Problem]) -> None:
        self.filename = filename
        self.problems = tuple(sorted(set(problems)))
        super().__init__(self._text())

    @property
    def lines(self) -> tuple[str, ...]:
        """One `file:line:column: text` a problem, in the order of the file."""
        return tuple(problem.shown(self.filename) for problem in self.problems)

    def _text(self) -> str:
        count = len(self.problems)
        shown = list(self.lines[:_SHOWN])
        if count > _SHOWN:
            shown.append(f"… and {count - _SHOWN} more")
        return "\n".join([f"{count} problem{'' if count == 1 else 's'} in {self.filename}; nothing was done", *shown])


class GrantOverError(UserError):
    """The grant's last day has passed."""
