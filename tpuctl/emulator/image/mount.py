"""`mount`, `umount`, `mountpoint` and `blkid` of the emulated image, for attached data disks alone.

A data disk is a directory, and mounting `/dev/disk/by-id/google-NAME` on an empty directory replaces that by a
symbolic link to it: no root is needed, and what is written there outlives the machine. Mounts end with the boot, as
real ones do.
"""

from __future__ import annotations

import sys
from pathlib import Path

DEVICE = "/dev/disk/by-id/google-"
FAILED = 32  # mount(8)


def disk_of(machine: Path, device: str) -> Path | None:
    """The directory of the attached disk; None when there is no such device."""
    path = machine / "disks" / device.removeprefix(DEVICE)
    return path.resolve() if device.startswith(DEVICE) and path.is_dir() else None


def is_mounted(machine: Path, place: Path) -> bool:
    return place.is_symlink() and place.resolve().parent == (machine.parent / "disks").resolve()


def fail(program: str, message: str, status: int) -> int:
    print(f"{program}: {message}", file=sys.stderr)
    return status


def mount(machine: Path, device: str, place: Path) -> int:
    disk = disk_of(machine, device)
    if disk is None:
        return fail("mount", f"{place}: special device {device} does not exist.", FAILED)
    if place.resolve() == disk:
        return 0
    if not place.is_dir() or place.is_symlink():
        return fail("mount", f"{place}: mount point does not exist, or something else is mounted there.", FAILED)
    if any(place.iterdir()):
        return fail("mount", f"{place}: not empty; the emulated image mounts on empty directories only.", FAILED)
    place.rmdir()
    place.symlink_to(disk)
    with (machine / "run" / "mounts").open("a", encoding="utf-8") as file:
        file.write(f"{place}\n")
    return 0


def umount(machine: Path, place: Path) -> int:
    if not is_mounted(machine, place):
        return fail("umount", f"{place}: not mounted.", FAILED)
    place.unlink()
    place.mkdir()
    return 0


def main(program: str, arguments: list[str]) -> int:
    name, machine = Path(program).name, Path(program).absolute().parents[1]
    words = plain_words(arguments)
    if name == "mount" and len(words) == 2:
        return mount(machine, words[0], Path(words[1]).absolute())
    if name == "umount" and len(words) == 1:
        return umount(machine, Path(words[0]).absolute())
    if name == "mountpoint" and len(words) == 1:
        mounted = is_mounted(machine, Path(words[0]))
        if "-q" not in arguments:
            print(f"{words[0]} is {'' if mounted else 'not '}a mountpoint")
        return 0 if mounted else FAILED
    if name == "blkid" and words:
        known = [word for word in words if disk_of(machine, word)]
        for word in known:
            print(f'{word}: TYPE="ext4"')
        return 0 if len(known) == len(words) else 2
    return fail(name, f"not emulated: {' '.join(arguments)}", 1)


def plain_words(arguments: list[str]) -> list[str]:
    """The arguments without options; `-o`, `-t` and their like take a value."""
    words, skip = [], False
    for word in arguments:
        if skip:
            skip = False
        elif word in ("-o", "-t", "-s"):
            skip = True
        elif not word.startswith("-"):
            words.append(word)
    return words
