"""A block of 100 ports for one Ray node. Ray listens on all interfaces: VMs that share a kernel share the ports."""

from __future__ import annotations

import contextlib
import errno
import socket
from dataclasses import dataclass

from tpuctl.base.errors import RetryLaterError

BLOCK = 100
_FIRST_WORKER = 20  # of a block; below stand the named ports


class NoPortsError(RetryLaterError):
    """Every block of the range is taken."""


@dataclass(frozen=True, slots=True)
class RayPorts:
    """The named ports of a block. Its last port belongs to the claim."""

    first: int

    @property
    def gcs(self) -> int:
        return self.first

    @property
    def dashboard(self) -> int:
        return self.first + 1

    @property
    def node_manager(self) -> int:
        return self.first + 2

    @property
    def object_manager(self) -> int:
        return self.first + 3

    @property
    def runtime_env_agent(self) -> int:
        return self.first + 4

    @property
    def dashboard_agent_listen(self) -> int:
        return self.first + 5

    @property
    def dashboard_agent_grpc(self) -> int:
        return self.first + 6

    @property
    def metrics_export(self) -> int:
        return self.first + 7

    @property
    def client_server(self) -> int:
        return self.first + 8

    @property
    def workers(self) -> tuple[int, int]:
        """First and last, both included."""
        return self.first + _FIRST_WORKER, self.first + BLOCK - 2


class PortClaim:
    """A claimed block: ours until `release`, or until this process ends, however it ends."""

    def __init__(self, ports: RayPorts, claim: socket.socket) -> None:
        self.ports = ports
        self._claim = claim

    def release(self) -> None:
        self._claim.close()


def claim_block(ray_ports: tuple[int, int]) -> PortClaim:
    """The first block of the range that nobody claims and in which nothing listens. Raises NoPortsError."""
    start, end = ray_ports
    for first in range(start, end - BLOCK + 1, BLOCK):
        claim = _bind(first + BLOCK - 1, shared=False)
        if claim is None:
            continue
        if all(_is_free(port) for port in range(first, first + BLOCK - 1)):
            return PortClaim(RayPorts(first), claim)
        claim.close()
    raise NoPortsError(f"no free block of {BLOCK} ports in {start}..{end - 1}: widen ray_ports", 5.0)


def _is_free(port: int) -> bool:
    # Shared with closed connections that still linger (TIME_WAIT), which Ray's own sockets put up with as well.
    probe = _bind(port, shared=True)
    if probe is None:
        return False
    probe.close()
    return True


def _bind(port: int, *, shared: bool) -> socket.socket | None:
    """A bound socket that does not listen; None when the port is taken."""
    with contextlib.ExitStack() as undo:
        bound = undo.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind(("0.0.0.0", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            raise
        undo.pop_all()
        return bound
