"""Where an emulator's process, port and token are written down, for the commands that talk to it. Owner-only."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from tpuctl.base.errors import TpuctlError, UserError
from tpuctl.base.files import owner_only_directory, read_json, write_json_atomic
from tpuctl.base.ids import is_plain_name
from tpuctl.base.process import ProcessId, is_alive


@dataclass(frozen=True, slots=True)
class EmulatorState:
    name: str
    id: str
    pid: int
    pid_started: int
    port: int
    root: str  # directory of the VMs; every process of a VM carries it in its environment
    network: str
    token: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def process(self) -> ProcessId:
        return ProcessId(self.pid, self.pid_started)

    def __repr__(self) -> str:
        return f"EmulatorState({self.name}, {self.url}, pid {self.pid})"  # without the token


ROOT_MARK = ".tpuemu"  # a file in the machines' directory with the emulator's id


def id_of(root: Path) -> str:
    return root.name.removeprefix("tpuemu-")


def is_root_of(state: EmulatorState) -> bool:
    """Whether that directory was made by this emulator. A state file that somebody wrote in names any directory."""
    try:
        return (Path(state.root) / ROOT_MARK).read_text() == state.id
    except OSError:
        return False


def directory_of(home: Path, name: str) -> Path:
    """Raises UserError for what is no plain name: it becomes a part of a path."""
    if not is_plain_name(name, 32):
        raise UserError(f"--name {name!r}: use a letter, then letters, digits and dashes, at most 32 characters")
    return home / "emulators" / name


def make_directory(home: Path, name: str) -> Path:
    """Raises UserError where none can be made."""
    directory = directory_of(home, name)
    try:
        for each in (home, home / "emulators", directory):
            owner_only_directory(each)
    except OSError as error:
        raise UserError(
            f"--state-dir {str(home)!r} cannot be used: {error.strerror}; name another directory"
        ) from error
    return directory


def write_state(directory: Path, state: EmulatorState) -> None:
    write_json_atomic(directory / "state.json", asdict(state), mode=0o600)


def read_state(directory: Path) -> EmulatorState | None:
    """None when there is no file. Raises TpuctlError when it cannot be understood."""
    path = directory / "state.json"
    try:
        document = read_json(path)
        return None if document is None else EmulatorState(**document)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; name another --state-dir") from error
    except (ValueError, TypeError) as error:
        raise TpuctlError(f"{path} cannot be understood ({error}); remove it and start the emulator again") from error


def running(home: Path, name: str) -> EmulatorState | None:
    """The emulator of that name, if its process lives."""
    state = read_state(directory_of(home, name))
    return state if state is not None and is_alive(state.process) else None
