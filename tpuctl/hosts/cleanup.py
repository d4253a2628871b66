"""Before every join: nothing of a former life runs on this host, and the chips are free.

Order matters. First the programs of runs and what they left in the background, then Ray's processes, and the lock file
only when its holder is gone. Whatever we did not start is reported and left alone (A44).
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from tpuctl.base.clock import Clock
from tpuctl.base.process import (
    ProcessId,
    all_processes,
    is_alive,
    kill_tree,
    processes_with_entries,
    signal_all,
    tree_of,
)
from tpuctl.hosts.chips import ChipPlaces, Holder, find_holders, is_program_of_ours
from tpuctl.hosts.config import VmPlaces

# Programs had their notice from the watchdog when their attempt ended; this is what is left of them.
TERM_S = 5.0
KILL_S = 5.0
KEPT_SESSIONS = 3
_STEP_S = 0.05
_ROUNDS = 10  # what forks while it is being killed is met again


@dataclass(frozen=True, slots=True)
class Cleaned:
    """`blockers`: why the host may not join yet, for people; empty when it may."""

    ended: int
    blockers: tuple[str, ...]


def ray_mark(places: VmPlaces) -> str:
    """The environment entry by which the processes of this VM's Ray are found, whoever is their parent by now."""
    return f"TPUCTL_RAY_OF={places.prefix}"


def clean_up(places: VmPlaces, chips: ChipPlaces, clock: Clock) -> Cleaned:
    """Blocks for up to TERM_S + KILL_S. Raises nothing; what cannot be ended is a blocker."""
    ended = end_programs(places, chips, clock)
    ended += end_ray(places, clock)
    blockers = [_describe(holder) for holder in _holders(places, chips)]
    if not blockers:
        chips.lock_file.unlink(missing_ok=True)
    return Cleaned(ended, tuple(blockers))


def end_programs(places: VmPlaces, chips: ChipPlaces, clock: Clock) -> int:
    """SIGTERM, then SIGKILL, to the trees of all programs that launchers of ours started on this VM."""
    roots = [row.id for row in all_processes() if is_program_of_ours(row.id.pid, places)]
    roots += [holder.process for holder in _holders(places, chips) if holder.ours]
    trees = {process for root in roots for process in tree_of(root)}
    if not trees:
        return 0
    signal_all(trees, signal.SIGTERM)
    if not _wait_gone(trees, TERM_S, clock):
        for root in roots:
            kill_tree(root)
        _wait_gone(trees, KILL_S, clock)
    return len(trees)


def end_ray(places: VmPlaces, clock: Clock) -> int:
    """SIGKILL what is left of this VM's Ray: a raylet without `ray start` would hold its ports and look alive."""
    ended = 0
    for _ in range(_ROUNDS):
        left = processes_with_entries(ray_mark(places))
        if not left:
            break
        signal_all(left, signal.SIGKILL)
        _wait_gone(left, KILL_S, clock)
        ended += len(left)
    return ended


def prune_sessions(places: VmPlaces) -> None:
    """Ray makes a directory of logs at each new head; the oldest go, so that the disk does not fill up."""
    sessions = [path for path in places.ray.glob("session_*") if path.is_dir() and not path.is_symlink()]
    # Names begin with the time, so that their order is that of the sessions.
    for old in sorted(sessions, key=lambda path: path.name)[:-KEPT_SESSIONS]:
        shutil.rmtree(old, ignore_errors=True)


def _holders(places: VmPlaces, chips: ChipPlaces) -> tuple[Holder, ...]:
    return find_holders([*chips.chips(), chips.lock_file], places)


def _describe(holder: Holder) -> str:
    whose = "a program of ours that does not end" if holder.ours else "not started by tpuctl, left alone"
    return f"{holder.path} is held by process {holder.process.pid} ({holder.command}), {whose}"


def _wait_gone(processes: Iterable[ProcessId], limit_s: float, clock: Clock) -> bool:
    deadline = clock.monotonic() + limit_s
    rest = [process for process in processes if process.pid != os.getpid()]
    while rest := [process for process in rest if is_alive(process)]:
        if clock.monotonic() >= deadline:
            return False
        clock.sleep(_STEP_S)
    return True
