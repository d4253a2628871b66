"""Words of the service for the states of nodes, and which of them end the machines."""

from __future__ import annotations

NODE_STATES = (
    "CREATING", "READY", "RESTARTING", "REIMAGING", "DELETING", "REPAIRING", "STOPPED", "STOPPING", "STARTING",
    "PREEMPTED", "TERMINATED", "HIDING", "HIDDEN", "UNHIDING", "UNKNOWN", "STATE_UNSPECIFIED",
)  # fmt: skip
BOOTING = ("CREATING", "STARTING", "RESTARTING")  # READY follows when all machines are up
WITHOUT_MACHINES = frozenset({"STOPPED", "PREEMPTED", "TERMINATED"})
