"""Who this host is: never guessed, never taken from an address."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tpuctl.base.errors import UserError
from tpuctl.base.process import read_process
from tpuctl.hosts.config import HostConfig
from tpuctl.hosts.metadata import Metadata


class IdentityError(UserError):
    """The host does not know which one it is. It must not join: a default index would make two of one."""


@dataclass(frozen=True, slots=True)
class HostIdentity:
    config: HostConfig
    worker: int
    boot_id: str
    address: str


def read_identity(config: HostConfig, metadata: Metadata) -> HostIdentity:
    """Raises IdentityError (no or an impossible index), MetadataError (ask again)."""
    raw = metadata.attribute("agent-worker-number")
    if raw is None or not raw.strip().isascii() or not raw.strip().isdigit():
        said = "is missing" if raw is None else f"is {raw.strip()!r}"
        raise IdentityError(f"the attribute agent-worker-number {said}: host of {config.incarnation} without an index")
    worker = int(raw)
    if worker >= config.hosts:
        raise IdentityError(
            f"the attribute agent-worker-number is {worker}, but {config.incarnation} ({config.accelerator}) has "
            f"{config.hosts} hosts"
        )
    return HostIdentity(config, worker, boot_id(), metadata.own_address())


def boot_id() -> str:
    """Differs for each boot of the VM.

    The kernel's id is that of the machine; VMs that share a kernel are told apart by the start of their first process,
    which is this daemon's parent (systemd, or what plays it).
    """
    kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    parent = read_process(os.getppid())
    return f"{kernel}-{parent.id.started if parent else 0}"
