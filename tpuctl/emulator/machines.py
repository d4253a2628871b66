"""The machines of the emulated cloud as process trees: carries out the state machine's events, reports what they say.

Each VM is a directory `<root>/v<n>` and the tree below one `init` process (vm.py), with a metadata server on its own
address (metadata.py). Data disks are directories `<root>/disks/<name>`, which outlive machines. Nothing needs root.

Whatever happens to the emulator, the machines end: init kills its tree when its socket to here closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, assert_never

from tpuctl.base import process
from tpuctl.base.clock import Clock
from tpuctl.base.errors import BugError, TpuctlError
from tpuctl.base.files import owner_only_directory
from tpuctl.base.process import ProcessId
from tpuctl.base.units import Instant
from tpuctl.emulator.events import (
    VmBooted,
    VmDescription,
    VmEvent,
    VmFreeze,
    VmKill,
    VmMaintenance,
    VmNotice,
    VmReport,
    VmReset,
    VmStart,
    VmStop,
    VmThaw,
)
from tpuctl.emulator.metadata import MetadataServer
from tpuctl.emulator.vm import VmDirectory, VmProcesses, kill_leftovers

logger = logging.getLogger(__name__)


class VmState(Enum):
    RUNNING = "running"
    FROZEN = "frozen"
    DEAD = "dead"  # killed, or shut down from inside: no process, no metadata server; the directory stays


@dataclass(frozen=True, slots=True)
class VmStatus:
    name: str
    address: str
    directory: Path
    metadata_host: str  # address:port
    state: VmState
    since: Instant
    processes: tuple[ProcessId, ...]  # init first; empty when dead


@dataclass(slots=True)
class _Vm:
    description: VmDescription
    directory: VmDirectory
    metadata: MetadataServer
    processes: VmProcesses
    state: VmState
    since: Instant


class ProcessMachines:
    """`root` is short and belongs to this emulator alone; `python_bin` is the interpreter that the image has.

    `report` is called on the event loop. All methods belong to one event loop; events are carried out in order.
    """

    def __init__(
        self, root: Path, python_bin: Path, clock: Clock, report: Callable[[VmReport], None], storage_host: str
    ) -> None:
        self._root = root
        self._python_bin = python_bin
        self._clock = clock
        self._report = report
        self._storage_host = storage_host
        self._vms: dict[str, _Vm] = {}
        self._count = 0
        self._order = asyncio.Lock()
        self._later_tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Take over the root: what an earlier emulator left there is killed and removed, data disks stay."""
        owner_only_directory(self._root)
        await kill_leftovers(self._root)
        for old in self._root.glob("v[0-9]*"):
            await asyncio.to_thread(shutil.rmtree, old)
        (self._root / "disks").mkdir(exist_ok=True)

    async def carry_out(self, events: Sequence[VmEvent]) -> None:
        """Returns when all are done; the loop runs on meanwhile.

        A machine that fails does not keep the others from their events: the first error is raised at the end.
        """
        failures: list[TpuctlError] = []
        async with self._order:
            for event in events:
                try:
                    await self._carry_out(event)
                except TpuctlError as error:
                    logger.warning("%s: %s", type(event).__name__, error)
                    failures.append(error)
        if failures:
            raise failures[0]

    async def stop(self) -> None:
        """Kill everything; afterwards no process of this root is left."""
        async with self._order:
            for vm in list(self._vms.values()):
                await self._end(vm)
            self._vms.clear()
        await asyncio.gather(*self._later_tasks)
        await kill_leftovers(self._root)

    def processes(self) -> tuple[VmStatus, ...]:
        """All machines, in order of their start."""
        return tuple(
            VmStatus(
                vm.description.name,
                vm.description.address,
                vm.directory.path,
                vm.metadata.host,
                vm.state,
                vm.since,
                vm.processes.tree(),
            )
            for vm in self._vms.values()
        )

    async def delete_disk(self, name: str) -> None:
        """The data disk was deleted in the cloud: its bytes go."""
        with contextlib.suppress(FileNotFoundError):
            await asyncio.to_thread(shutil.rmtree, self._root / "disks" / name)

    async def _carry_out(self, event: VmEvent) -> None:
        if isinstance(event, VmStart):
            await self._create(event.vm)
            return
        vm = self._vms.get(event.name)
        if vm is None:
            # A node may be deleted before its machines were made: then there is nothing to end.
            if not isinstance(event, VmStop | VmKill):
                raise BugError(f"{type(event).__name__} for machine {event.name!r}, which was never started")
            return
        match event:
            case VmNotice():
                vm.metadata.set_preempted(preempted=True)
                vm.processes.say("notice")
            case VmMaintenance():
                vm.metadata.set_maintenance(event.event, event.upcoming)
            case VmStop():
                await self._remove(vm)
            case VmKill():
                await self._end(vm)
            case VmReset():
                await self._end(vm)
                vm.metadata.set_preempted(preempted=False)
                await self._boot(vm)
            case VmFreeze():
                await self._freeze(vm)
            case VmThaw():
                await self._thaw(vm)
            case _:
                assert_never(event)

    async def _create(self, description: VmDescription) -> None:
        if description.name in self._vms:
            raise BugError(f"machine {description.name!r} was started twice")
        self._count += 1
        directory = VmDirectory(self._root / f"v{self._count}")
        await asyncio.to_thread(directory.create, description, self._python_bin)
        name = description.name
        vm = _Vm(
            description,
            directory,
            MetadataServer(description, self._report),
            VmProcesses(directory, lambda word: self._told(name, word)),
            VmState.DEAD,
            self._clock.now(),
        )
        self._vms[name] = vm
        await self._boot(vm)

    async def _boot(self, vm: _Vm) -> None:
        await asyncio.to_thread(vm.directory.prepare_boot)
        vm.metadata.release()
        await vm.metadata.start()
        environment = vm.directory.environment(self._python_bin, vm.metadata.host, self._storage_host)
        await vm.processes.start(self._python_bin, environment)
        self._turn(vm, VmState.RUNNING)

    def _told(self, name: str, word: str) -> None:
        """A line from a machine's init."""
        if word == "begun":
            self._report(VmBooted(name))
        elif word in ("off", "closed") and (vm := self._vms.get(name)) is not None and vm.state is not VmState.DEAD:
            # Shut down from inside, or its init was killed: either way it is a machine without processes now.
            logger.info("machine %s ended by itself (%s)", name, word)
            self._turn(vm, VmState.DEAD)
            self._later(self._finish(vm))

    async def _finish(self, vm: _Vm) -> None:
        async with self._order:
            if vm.state is VmState.DEAD:  # not reset meanwhile
                await self._end(vm)

    async def _end(self, vm: _Vm) -> None:
        self._turn(vm, VmState.DEAD)
        await vm.metadata.stop()
        await vm.processes.end()

    async def _remove(self, vm: _Vm) -> None:
        await self._end(vm)
        del self._vms[vm.description.name]
        self._later(asyncio.to_thread(shutil.rmtree, vm.directory.path))

    async def _freeze(self, vm: _Vm) -> None:
        if vm.state is VmState.RUNNING:
            vm.metadata.hold()
            await vm.processes.ask("freeze", "frozen")
            self._turn(vm, VmState.FROZEN)

    async def _thaw(self, vm: _Vm) -> None:
        if vm.state is VmState.FROZEN:
            vm.metadata.release()
            await vm.processes.ask("thaw", "thawed")
            self._turn(vm, VmState.RUNNING)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._later_tasks.add(task)
        task.add_done_callback(self._later_tasks.discard)

    def _turn(self, vm: _Vm, state: VmState) -> None:
        if vm.state is not state:
            vm.state, vm.since = state, self._clock.now()


def leftovers(root: Path) -> list[ProcessId]:
    """Living processes of machines below `root`: none after `stop`, nor a second after the emulator crashed."""
    return process.processes_with_environment(f"{root}/v")
