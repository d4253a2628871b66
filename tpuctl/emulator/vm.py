"""One emulated machine: its directory, image and environment, and the `init` that all its processes descend from."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shlex
import shutil
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tpuctl.base import process
from tpuctl.base.errors import TpuctlError
from tpuctl.base.process import ProcessId
from tpuctl.emulator.events import VmDescription

IMAGE = Path(__file__).parent / "image"
SOURCE = Path(__file__).parents[2]
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHELL_STAND_INS = {
    "sudo.sh": ("sudo",),
    "nothing.sh": ("apt-get", "apt", "snap", "mkfs.ext4"),
    "shutdown.sh": ("shutdown", "poweroff", "halt", "reboot"),
    "journalctl.sh": ("journalctl",),
}
PYTHON_STAND_INS = {
    "systemctl": ("systemctl",),
    "google_metadata_script_runner": ("google_metadata_script_runner",),
    "mount": ("mount", "umount", "mountpoint", "blkid"),
}
# -I -S: nothing of the user's, and no site-packages, which would cost each init 1 MB and a stand-in its quickness.
LEAN_PYTHON = ("-I", "-S", "-c")
KILL_LIMIT_S = 30.0
ANSWER_LIMIT_S = 10.0  # init answers within milliseconds; this is for a machine that pages

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VmDirectory:
    """Paths of one machine, below a short directory of its own (Ray's sockets live in it: AF_UNIX allows 107 bytes)."""

    path: Path

    @property
    def home(self) -> Path:
        return self.path / "home"

    @property
    def tmp(self) -> Path:
        return self.path / "tmp"

    @property
    def log(self) -> Path:
        return self.path / "log"

    def create(self, vm: VmDescription, python_bin: Path) -> None:
        for name in ("home", "tmp", "dev", "bin", "disks", "run/units", "run/enabled", "log"):
            (self.path / name).mkdir(parents=True)
        for chip in range(vm.chips):
            (self.path / "dev" / f"accel{chip}").touch()
        for disk in vm.disks:
            # Bytes belong to the disk, not to the device name that it has on this machine.
            kept = self.path.parent / "disks" / vm.disk_of_device.get(disk, disk)
            kept.mkdir(parents=True, exist_ok=True)
            (self.path / "disks" / disk).symlink_to(kept)
        install_image(self.path / "bin", python_bin)

    def prepare_boot(self) -> None:
        """What a reboot clears: /tmp, sockets, mounts. The boot disk and the enabled units stay."""
        shutil.rmtree(self.tmp)
        self.tmp.mkdir()
        (self.path / "run" / "init.sock").unlink(missing_ok=True)
        mounts = self.path / "run" / "mounts"
        for place in mounts.read_text().splitlines() if mounts.exists() else []:
            if Path(place).is_symlink():
                Path(place).unlink()
                Path(place).mkdir()
        mounts.unlink(missing_ok=True)

    def environment(self, python_bin: Path, metadata_host: str, storage_host: str) -> dict[str, str]:
        """What an image would set, and nothing of the user's."""
        return {
            "PATH": f"{self.path / 'bin'}:{python_bin.parent}:{SYSTEM_PATH}",
            "HOME": str(self.home),
            "TMPDIR": str(self.tmp),
            "LANG": "C.UTF-8",
            "GCE_METADATA_HOST": metadata_host,
            "GCE_METADATA_IP": metadata_host,
            "STORAGE_EMULATOR_HOST": storage_host,
            "TPU_DEV_ROOT": str(self.path / "dev"),
        }


def install_image(directory: Path, python_bin: Path) -> None:
    for source, names in SHELL_STAND_INS.items():
        for name in names:
            write_program(directory / name, (IMAGE / source).read_text())
    python = shlex.quote(str(python_bin))
    for module, names in PYTHON_STAND_INS.items():
        code = (
            f"import sys; sys.path.insert(0, sys.argv[1]); from tpuctl.emulator.image.{module} import main; "
            "sys.exit(main(sys.argv[2], sys.argv[3:]))"
        )
        line = f'exec {python} {" ".join(LEAN_PYTHON)} {shlex.quote(code)} {shlex.quote(str(SOURCE))} "$0" "$@"'
        for name in names:
            write_program(directory / name, f"#!/bin/sh\n{line}\n")
    for name in ("python", "python3"):
        # A wrapper and not a link: a link to an environment's python would not be taken for that environment.
        write_program(directory / name, f'#!/bin/sh\nexec {python} "$@"\n')


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


class VmProcesses:
    """The process tree of one boot. `told` is called with each line that init says."""

    def __init__(self, directory: VmDirectory, told: Callable[[str], None]) -> None:
        self.directory = directory
        self.init: ProcessId | None = None
        self._told = told
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._expected: dict[str, asyncio.Event] = {}

    async def start(self, python_bin: Path, environment: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        code = "import sys; sys.path.insert(0, sys.argv[1]); from tpuctl.emulator.init import main; main(sys.argv[2])"
        argv = (str(python_bin), *LEAN_PYTHON, code, str(SOURCE), str(self.directory.path))
        try:
            with theirs, (self.directory.log / "init.log").open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *argv,
                    stdin=theirs.fileno(),
                    stdout=log,
                    stderr=log,
                    env=dict(environment),
                    cwd=self.directory.path,
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        self.init = process.identify(self._process.pid)
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._listening = asyncio.create_task(self._listen(reader))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                word = line.decode().strip()
                if word in self._expected:
                    self._expected[word].set()
                self._told(word)
        except ConnectionResetError:
            pass
        self._told("closed")

    def say(self, word: str) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(word.encode() + b"\n")

    async def ask(self, word: str, answer: str) -> None:
        """Say it and wait for the answer. Raises TpuctlError when none comes."""
        self._expected[answer] = asyncio.Event()
        self.say(word)
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                await self._expected[answer].wait()
        except TimeoutError:
            raise TpuctlError(f"emulated machine in {self.directory.path}: no answer to {word!r}") from None
        finally:
            del self._expected[answer]

    async def end(self) -> None:
        """Kill everything, silently. On return no process of the machine is left, and its init is reaped.

        Init kills and reaps its own tree; then the tree is looked for from outside, and at last whatever carries the
        machine's directory in its environment, because init may have been killed first.
        """
        if self._listening is not None:
            self._listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listening
        if self._writer is not None:
            self.say("die")
            self._writer.close()
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), ANSWER_LIMIT_S)
            if self.init is not None:
                await asyncio.to_thread(process.kill_tree, self.init)
            await self._process.wait()
        await kill_leftovers(self.directory.path)
        self._process = self._writer = self._listening = self.init = None

    def tree(self) -> tuple[ProcessId, ...]:
        """Everything of this machine, init first."""
        return tuple(process.tree_of(self.init)) if self.init is not None else ()


async def kill_leftovers(directory: Path) -> None:
    """SIGKILL every process that carries the directory in its environment, and wait until none is left.

    Raises TpuctlError when one does not die, as in uninterruptible sleep.
    """
    known: set[ProcessId] = set()
    try:
        async with asyncio.timeout(KILL_LIMIT_S):
            while left := await asyncio.to_thread(process.processes_with_environment, f"{directory}/"):
                if fresh := set(left) - known:
                    logger.info("killing %d processes left in %s", len(fresh), directory)
                known.update(left)
                process.signal_all(left, signal.SIGKILL)
                await asyncio.sleep(0.01)
    except TimeoutError:
        pids = ", ".join(str(one.pid) for one in known if process.is_alive(one))
        raise TpuctlError(f"processes of {directory} survive SIGKILL: {pids}; look at their state in /proc") from None
