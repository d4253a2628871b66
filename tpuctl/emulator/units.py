"""A unit as systemd keeps it: started, kept alive, stopped by its KillMode. Part of `init`: it imports little.

A definition is a plain dictionary, as the `systemctl` of the image reads it from the unit file:
`{name, argv, environment, environment_files, directory, restart, restart_s, kill_mode, stop_s, output}`.

What belongs to a unit is found by its INVOCATION_ID, which systemd puts into the environment of every service as well:
the emulator has no control groups of its own. A process that clears its environment leaves the unit, not the machine.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # typing itself would cost each machine almost 1 MB
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Host(Protocol):
        """What a unit asks of the machine that it runs on."""

        def spawn(self, definition: dict[str, Any], extra: dict[str, str]) -> int:
            """Start the main process and return its pid. Raises OSError."""

        def members(self, mark: str) -> list[int]:
            """Living processes of the machine whose environment has `mark`, with their descendants."""

        def send(self, pid: int, number: int) -> None: ...

        def log(self, text: str) -> None: ...


CLEAN_ENDS = (0, -signal.SIGHUP, -signal.SIGINT, -signal.SIGTERM, -signal.SIGPIPE)  # systemd.service(5), Restart=

INACTIVE = "inactive"  # not running, and not to be restarted
ACTIVE = "active"
STOPPING = "deactivating"  # the main process has had its SIGTERM
CLEANING = "cleaning"  # the main process is gone, the rest of the unit is being ended
WAITING = "activating"  # RestartSec is running
FAILED = "failed"


class Unit:
    """One unit. `now` is always seconds of the same clock that only grows."""

    def __init__(self, definition: dict[str, Any], host: Host) -> None:
        self.definition = definition
        self.state = INACTIVE
        self.main = 0  # pid; 0 when there is none
        self.result = 0  # how the main process ended last: exit status, or minus the signal
        self.restarts = 0
        self._host = host
        self._wanted = False
        self._again = False  # start at once when the stop is through
        self._invocation = ""
        self._deadline = 0.0

    @property
    def name(self) -> str:
        return str(self.definition["name"])

    @property
    def settled(self) -> bool:
        """True when nothing of it is being stopped."""
        return self.state not in (STOPPING, CLEANING)

    def start(self, now: float) -> None:
        self._wanted = True
        if self.state in (STOPPING, CLEANING):
            self._again = True
        elif self.state != ACTIVE:
            self._spawn(now)

    def restart(self, now: float) -> None:
        self.stop(now)
        self.start(now)

    def stop(self, now: float) -> None:
        """SIGTERM as KillMode says; not restarted afterwards."""
        self._wanted = self._again = False
        if self.state == ACTIVE:
            self.state = STOPPING
            self._deadline = now + float(self.definition["stop_s"])
            self._signal_group(signal.SIGTERM, whole=self._mode == "control-group")
        elif self.state == WAITING:
            self.state = INACTIVE

    def main_ended(self, result: int, now: float) -> None:
        """The main process was reaped with this result."""
        self.main, self.result = 0, result
        unasked = self.state == ACTIVE
        self.state = CLEANING
        if self._mode == "mixed":
            self._deadline = now  # SIGKILL for the rest as soon as the main process is gone
        elif self._mode == "control-group" and unasked:
            self._deadline = now + float(self.definition["stop_s"])
            self._signal_group(signal.SIGTERM, whole=True)
        self.tick(now)

    def tick(self, now: float) -> None:
        """Do what is due. Called after every event and at `next_due`."""
        if self.state == STOPPING and now >= self._deadline:
            self._signal_group(signal.SIGKILL, whole=self._mode != "process")
        elif self.state == CLEANING:
            rest = [] if self._mode == "process" else self._members()
            if not rest:
                self._finish(now)
            elif now >= self._deadline:
                for pid in rest:
                    self._host.send(pid, signal.SIGKILL)
        elif self.state == WAITING and now >= self._deadline:
            self.restarts += 1
            self._spawn(now)

    def next_due(self, now: float) -> float | None:
        """Seconds until `tick` has something to do; None while only events matter."""
        if self.state == CLEANING:
            return 0.05  # the end of a process that is not our child is not told: look again
        if self.state == STOPPING:
            return max(0.05, self._deadline - now)
        return max(0.0, self._deadline - now) if self.state == WAITING else None

    @property
    def _mode(self) -> str:
        return str(self.definition["kill_mode"])

    def _spawn(self, now: float) -> None:
        self._invocation = os.urandom(16).hex()
        try:
            self.main = self._host.spawn(self.definition, {"INVOCATION_ID": self._invocation})
        except OSError as error:  # an EnvironmentFile or a log that cannot be opened
            self._host.log(f"{self.name}: not started: {error}")
            self.state = ACTIVE
            self.main_ended(203, now)
        else:
            self.state = ACTIVE

    def _finish(self, now: float) -> None:
        policy, clean = self.definition["restart"], self.result in CLEAN_ENDS
        if self._again:
            self._again = False
            self._spawn(now)
        elif self._wanted and (policy == "always" or (policy == "on-failure" and not clean)):
            self.state = WAITING
            self._deadline = now + float(self.definition["restart_s"])
            self._host.log(
                f"{self.name}: main process ended with {self.result}; restart in {self.definition['restart_s']} s"
            )
        else:
            self.state = INACTIVE if clean or not self._wanted else FAILED

    def _signal_group(self, number: int, *, whole: bool) -> None:
        if self.main:
            self._host.send(self.main, number)
        if whole:
            for pid in self._members():
                if pid != self.main:
                    self._host.send(pid, number)

    def _members(self) -> list[int]:
        return self._host.members(f"INVOCATION_ID={self._invocation}")
