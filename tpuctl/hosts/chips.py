"""The TPU's device files and who holds them. Looks only: nothing is opened, locked or signalled here.

A chip is `accelN` (v2 to v5p images) or a numbered file below `vfio/` (v5e and newer). Holders are found from
/proc/PID/fd; where another user's descriptors cannot be read, from /proc/locks, which names the holder of a file lock.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpuctl.base.process import ProcessId, identify
from tpuctl.hosts.config import VmPlaces

LOCK_FILE = "libtpu_lockfile"


@dataclass(frozen=True, slots=True)
class ChipPlaces:
    """Where devices and libtpu's lock file are: `TPU_DEV_ROOT` and `TMPDIR`, else `/dev` and `/tmp`."""

    devices: Path
    temporary: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> ChipPlaces:
        return cls(Path(environment.get("TPU_DEV_ROOT") or "/dev"), Path(environment.get("TMPDIR") or "/tmp"))

    @property
    def lock_file(self) -> Path:
        return self.temporary / LOCK_FILE

    def chips(self) -> tuple[Path, ...]:
        """The device files, by number."""
        found = _numbered(self.devices, "accel") or _numbered(self.devices / "vfio", "")
        return tuple(path for _, path in sorted(found))


@dataclass(frozen=True, slots=True)
class Holder:
    process: ProcessId
    command: str  # its name, for people
    ours: bool  # a program that a launcher of ours started
    path: Path  # what it holds


def _numbered(directory: Path, prefix: str) -> list[tuple[int, Path]]:
    try:
        entries = list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    numbers = ((entry.name.removeprefix(prefix), entry) for entry in entries if entry.name.startswith(prefix))
    return [(int(number), entry) for number, entry in numbers if number.isdigit() and not entry.is_dir()]


def find_holders(paths: Sequence[Path], vm: VmPlaces) -> tuple[Holder, ...]:
    """The living processes that hold one of `paths` open or locked; each once."""
    targets: dict[str, Path] = {}
    inodes: dict[tuple[int, int, int], Path] = {}
    for path in paths:
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue
        targets[str(path.resolve())] = path
        inodes[os.major(stat.st_dev), os.minor(stat.st_dev), stat.st_ino] = path
    held = _by_lock(inodes) | _by_descriptor(targets) if targets else {}
    found = []
    for pid, path in sorted(held.items()):
        process = identify(pid)
        if process is not None and pid != os.getpid():
            found.append(Holder(process, _command(pid), is_program_of_ours(pid, vm), path))
    return tuple(found)


def _by_descriptor(targets: Mapping[str, Path]) -> dict[int, Path]:
    held = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            for link in _descriptors(entry / "fd"):
                if link in targets:
                    held[int(entry.name)] = targets[link]
    return held


def _descriptors(directory: Path) -> Iterator[str]:
    """What the descriptors point to; nothing for a process that is gone or another user's."""
    with contextlib.suppress(OSError):
        for entry in directory.iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                yield str(entry.readlink())


def _by_lock(inodes: Mapping[tuple[int, int, int], Path]) -> dict[int, Path]:
    """Source: proc(5), /proc/locks: `1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF`, device numbers in hex."""
    held = {}
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if "->" in fields:  # waits for the lock; it has the file open and is found by that
            continue
        major, minor, inode = fields[5].split(":")
        path = inodes.get((int(major, 16), int(minor, 16), int(inode)))
        if path is not None and int(fields[4]) > 0:
            held[int(fields[4])] = path
    return held


def is_program_of_ours(pid: int, vm: VmPlaces) -> bool:
    """True for a run's program on this VM: it has TPUCTL_RUN_ID, and HOME or prefix of this VM in environment or cwd.

    VMs may share a kernel, so the run's mark alone does not say whose it is.
    """
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        directory = str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:  # gone, or another user's: then not ours
        return False
    if not any(entry.startswith(b"TPUCTL_RUN_ID=") for entry in environment):
        return False
    inside = f"{vm.prefix}/"
    if f"HOME={vm.home}".encode() in environment or f"{directory}/".startswith(inside):
        return True
    return any(inside.encode() in entry for entry in environment)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "?"
