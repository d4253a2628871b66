"""The head's own cron: the crontab of the head VM runs the very pass that the agent runs, and starts a dead agent.

The wish is a fact of the records, so that a head that is built anew on the old disk, whose crontab is empty, has it
again with its first agent.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuctl.agent.passes import reconcile_command
from tpuctl.agent.places import Identity, Places
from tpuctl.agent.ray_head import read_ray_head
from tpuctl.base.errors import TpuctlError
from tpuctl.base.process import run
from tpuctl.cron.crontab import Crontab
from tpuctl.cron.table import block_in, check_every, entry_line, with_block, without_block
from tpuctl.cron.tick import TickFiles, last_tick
from tpuctl.store.database import Store

EVERY = "cron_every_min"  # key of the store's meta table; "" = not wanted
AGENT_UNIT = "tpuctl-agent.service"
SYSTEMCTL_LIMIT_S = 20.0
_DEAD = ("inactive", "failed")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HeadCron:
    crontab: Crontab
    cluster: str
    command: Sequence[str]  # of the crontab's line
    files: TickFiles

    def install(self, every_min: int) -> bool:
        """True when the crontab changed. Raises NoCrontabError, CrontabError, UserError."""
        line = entry_line(check_every(every_min), self.command)
        return self.crontab.change(lambda table: with_block(table, self.cluster, line))

    def remove(self) -> bool:
        return self.crontab.change(lambda table: without_block(table, self.cluster))

    def document(self) -> dict[str, Any]:
        last = last_tick(self.files)
        document: dict[str, Any] = {
            "installed": False, "every_min": None, "command": "", "problem": "", "log": str(self.files.log),
            "last": None if last is None else last.document(),
        }  # fmt: skip
        try:
            entry = block_in(self.crontab.read(), self.cluster)
        except TpuctlError as error:
            return {**document, "problem": str(error)}
        if entry is None:
            return document
        return {**document, "installed": True, "every_min": entry.every_min, "command": entry.command}

    def restore(self, store: Store) -> None:
        """What a former head's crontab had. A head without cron keeps its fleet all the same: it is only told."""
        with store.snapshot() as tx:
            every = tx.meta(EVERY) or ""
        try:
            if every and self.install(int(every)):
                log.info("the crontab has its line again: every %s min", every)
        except TpuctlError as error:
            log.warning("cron is wanted and cannot be installed: %s", error)


def head_cron(prefix: Path, me: Identity, places: Places) -> HeadCron:
    """The line names all that it needs: cron gives a command next to no environment."""
    files = TickFiles(prefix / "log" / "cron.log")
    command = (
        shutil.which("env") or "/usr/bin/env", f"TPUCTL_VM_DIR={prefix}", sys.executable, "-P", "-m", "tpuctl",
        "cron", "run", "--log", str(files.log), "--data", str(places.data), "--epoch", me.epoch,
    )  # fmt: skip
    return HeadCron(Crontab(places.data / "crontab.lock"), me.cluster, command, files)


def head_pass(data: Path, epoch: str) -> tuple[str, ...]:
    """What the agent would run now."""
    ray = read_ray_head(Places(data).ray_json)
    return reconcile_command(sys.executable, data, epoch, None if ray is None else ray.dashboard)


def revive_agent(data: Path, ask: Callable[..., str] | None = None) -> str:
    """Start the agent's unit when it is dead; says what was done, "" for nothing.

    Not before the store is there: an agent that came up before its disk is mounted would begin an empty one.
    """
    systemctl = ask or _systemctl
    if not Places(data).store.exists():
        return f"{data} has no store: the disk is not mounted yet, and the agent is left alone"
    state = systemctl("is-active", AGENT_UNIT)
    if state not in _DEAD:
        return ""
    systemctl("start", AGENT_UNIT)
    return f"the agent was {state}: started, now {systemctl('is-active', AGENT_UNIT)}"


def _systemctl(*words: str) -> str:
    """What it prints; nothing follows from its status, which is-active uses for every state but one."""
    program = shutil.which("systemctl")
    if program is None:
        return "unknown"
    return run((program, *words), timeout_s=SYSTEMCTL_LIMIT_S).stdout.strip()
