"""Words of the service for the states of nodes, and which of them end the machines."""

from __future__ import annotations

NODE_STATES = (
    "CREATING", "READY", "RESTARTING", "REIMAGING", "DELETING", "REPAIRING", "STOPPED", "STOPPING", "STARTING",
    "PREEMPTED", "TERMINATED", "HIDING", "HIDDEN", "UNHIDING", "UNKNOWN", "STATE_UNSPECIFIED",
)  # fmt: skip
WITHOUT_MACHINES = frozenset({"STOPPED", "PREEMPTED", "TERMINATED"})
