"""How an emulator is started. Light to import: the commands need it without the server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ServerOptions:
    home: Path
    name: str = "default"
    port: int = 0  # 0: any free one
    scenario: Path | None = None
    root: Path | None = None  # None: a short new directory in the system's temporary directory
    seed: int | None = None
    machines: str = "process"  # or "none"
