"""Loopback addresses: a /24 of 127/8 for each emulator of this machine, and one address of it for each VM."""

from __future__ import annotations

import fcntl
import getpass
import ipaddress
import os
import tempfile
from pathlib import Path

from tpuctl.base.errors import TpuctlError
from tpuctl.base.files import owner_only_directory

Network = ipaddress.IPv4Network

# In process nothing is bound, so a large network does: thousands of slices live there at once.
IN_PROCESS_NETWORK = Network("127.128.0.0/9")


class AddressesUsedUpError(Exception):
    """Every address of the network is taken."""


class Addresses:
    """Hands out addresses from .2 on, each after all others were used, so that an old one is not met again soon."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._taken: set[int] = set()
        self._next = 2

    @property
    def free(self) -> int:
        return self._network.num_addresses - 3 - len(self._taken)

    def take(self) -> str:
        """Raises AddressesUsedUpError."""
        if self.free <= 0:
            raise AddressesUsedUpError(str(self._network))
        last = self._network.num_addresses - 2
        while self._next in self._taken:
            self._next = self._next + 1 if self._next < last else 2
        number = self._next
        self._taken.add(number)
        self._next = number + 1 if number < last else 2
        return str(self._network.network_address + number)

    def take_this(self, address: str) -> bool:
        """False: it is not of this network, or somebody has it."""
        number = int(ipaddress.IPv4Address(address)) - int(self._network.network_address)
        if not 2 <= number <= self._network.num_addresses - 2 or number in self._taken:
            return False
        self._taken.add(number)
        return True

    def give_back(self, address: str) -> None:
        self._taken.discard(int(ipaddress.IPv4Address(address)) - int(self._network.network_address))


class NetworkLease:
    """One 127.x.y.0/24 that no other emulator of this user has while this object is open."""

    def __init__(self, network: Network, descriptor: int) -> None:
        self.network = network
        self._descriptor = descriptor

    def close(self) -> None:
        os.close(self._descriptor)


def runtime_directory() -> Path:
    """Where emulators of one user see each other's locks. Owner-only; refused if it belongs to somebody else."""
    path = Path(tempfile.gettempdir()) / f"tpuemu-locks-{getpass.getuser()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        raise TpuctlError(f"{path} is a link or belongs to another user; have it removed, or set TMPDIR")
    return owner_only_directory(path)


def lease_network(directory: Path) -> NetworkLease:
    """The first free network of 127.(16..255).(0..255).0/24, by `flock`: the kernel frees it when the holder dies.

    Other users of the machine have their own directory: their uid decides where the search begins.
    """
    start = os.getuid() * 61 % (240 * 256)
    for step in range(240 * 256):
        high, low = divmod((start + step) % (240 * 256), 256)
        network = Network(f"127.{16 + high}.{low}.0/24")
        descriptor = os.open(
            directory / f"{network.network_address}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        return NetworkLease(network, descriptor)
    raise TpuctlError(f"every network of 127/8 is in use by an emulator; see {directory}")
