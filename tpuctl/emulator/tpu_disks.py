"""Data disks of TPU nodes: which a create or an update may name, and who holds which."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tpuctl.emulator.compute_records import DiskRecord
from tpuctl.emulator.wire import Json, ServiceError
from tpuctl.emulator.world import World

_PATH = re.compile(r"(?:https://[^/]+/compute/v1/)?projects/([^/]+)/zones/([^/]+)/disks/([^/]+)")


@dataclass(frozen=True, slots=True)
class DataDisk:
    key: tuple[str, str, str]  # project, zone, name
    read_only: bool


def read_disks(world: World, zone: str, disks: Sequence[Json], hosts: int, node: str = "") -> tuple[DataDisk, ...]:
    """Checked against the disks that exist now. `hosts`: of all nodes of the request; `node`: may hold them already.

    Raises ServiceError.
    """
    found: list[DataDisk] = []
    for each in disks:
        source, mode = str(each.get("sourceDisk", "")), each.get("mode") or "READ_WRITE"
        match = _PATH.fullmatch(source)
        if match is None:
            raise _bad(world, f'the disk "{source}" must be projects/<project>/zones/{zone}/disks/<disk>.')
        if match[2] != zone:
            raise _bad(world, f'the disk "{source}" is not in the zone of the node, "{zone}".')
        if mode not in ("READ_WRITE", "READ_ONLY", "DISK_MODE_UNSPECIFIED", 0, 1, 2):
            raise _bad(world, f'the disk mode "{mode}" is invalid.')
        disk = DataDisk((match[1], match[2], match[3]), mode in ("READ_ONLY", 2))
        if any(disk.key == other.key for other in found):
            raise _bad(world, f'the disk "{source}" is named twice.')
        _check_free(world, disk, source, hosts, node)
        found.append(disk)
    return tuple(found)


def _check_free(world: World, disk: DataDisk, source: str, hosts: int, node: str) -> None:
    record = world.disks.get(disk.key)
    if record is None:
        raise ServiceError("NOT_FOUND", f"The resource '{source}' was not found")
    if not disk.read_only and hosts > 1:
        raise _bad(world, f'the disk "{source}" can be attached to several workers in READ_ONLY mode only.')
    others = {holder: read_only for holder, read_only in record.nodes.items() if holder != node}
    if record.user or (others and not (disk.read_only and all(others.values()))):
        user = record.user or next(iter(others))
        raise _bad(world, f"The disk resource '{record.path}' is already being used by '{user}'.")


def attach(world: World, node: str, disks: Sequence[DataDisk]) -> tuple[DiskRecord, ...]:
    """The node holds them from now on. One that was deleted meanwhile is left out."""
    records = tuple(world.disks[disk.key] for disk in disks if disk.key in world.disks)
    for disk in disks:
        if disk.key in world.disks:
            world.disks[disk.key].nodes[node] = disk.read_only
    return records


def detach_all(world: World, node: str) -> None:
    for record in world.disks.values():
        record.nodes.pop(node, None)


def _bad(world: World, text: str) -> ServiceError:
    return ServiceError("INVALID_ARGUMENT", f"Cloud TPU received a bad request. {text} {world.event_id()}")
