"""Passes from this machine's cron or systemd: what `tpuctl cron … --here` writes, shows and takes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tpuctl.base.errors import TpuctlError
from tpuctl.cron.crontab import Crontab, NoCrontabError
from tpuctl.cron.systemd import UserTimer
from tpuctl.cron.table import block_in, check_every, entry_line, with_block, without_block
from tpuctl.cron.tick import TickFiles, last_tick


@dataclass(frozen=True)
class LocalCron:
    name: str  # of the cluster
    command: Sequence[str]
    files: TickFiles
    crontab: Crontab
    timer: UserTimer

    def install(self, every_min: int, *, systemd: bool) -> bool:
        """True when something changed. Raises UserError, TpuctlError kinds of cron/crontab.py and cron/systemd.py."""
        check_every(every_min)
        if systemd:
            return self.timer.install(every_min, self.command)
        line = entry_line(every_min, self.command)
        return self.crontab.change(lambda table: with_block(table, self.name, line))

    def remove(self, *, systemd_only: bool = False) -> tuple[str, ...]:
        """What was there, by name."""
        removed = ["systemd"] if self.timer.remove() else []
        if not systemd_only:
            try:
                if self.crontab.change(lambda table: without_block(table, self.name)):
                    removed.append("crontab")
            except NoCrontabError:
                if not removed:
                    raise
        return tuple(removed)

    def document(self) -> dict[str, Any]:
        last = last_tick(self.files)
        return {
            "cluster": self.name,
            "crontab": self._crontab(),
            "systemd": self._systemd(),
            "last": None if last is None else last.document(),
            "log": str(self.files.log),
        }

    def _crontab(self) -> dict[str, Any]:
        try:
            entry = block_in(self.crontab.read(), self.name)
        except NoCrontabError:
            return {"installed": False, "problem": ""}  # without a crontab nothing can be in it
        except TpuctlError as error:
            return {"installed": False, "problem": str(error)}
        if entry is None:
            return {"installed": False, "problem": ""}
        return {"installed": True, "problem": "", "every_min": entry.every_min, "command": entry.command}

    def _systemd(self) -> dict[str, Any]:
        if not self.timer.installed():
            return {"installed": False, "problem": ""}
        return {"installed": True, "problem": "", "every_min": self.timer.every_min(), "unit": str(self.timer.timer)}
