"""What the state machine asks of the machines: one value an event, in the order in which they must be carried out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class VmDescription:
    """One virtual machine: a worker of a TPU node, or a Compute instance."""

    name: str  # unique in the emulator: <node id>-w-<worker>, or the instance's name
    address: str  # its own loopback address, 127.x.y.z
    project: str
    zone: str
    numeric_id: int
    attributes: Mapping[str, str]  # instance/attributes/*, the service's own and the user's
    chips: int = 0  # device files
    disks: tuple[str, ...] = ()  # device names of attached data disks: google-<device name>
    preemptible: bool = False
    disk_of_device: Mapping[str, str] = field(default_factory=dict)  # device name -> the one name of that disk's bytes


@dataclass(frozen=True, slots=True)
class VmStart:
    vm: VmDescription


@dataclass(frozen=True, slots=True)
class VmNotice:
    """`instance/preempted` turns TRUE and an ACPI soft-off is sent: units get SIGTERM as systemd would send it."""

    name: str


@dataclass(frozen=True, slots=True)
class VmStop:
    """The machine and its boot disk are gone. Whatever still runs is killed without a word."""

    name: str


@dataclass(frozen=True, slots=True)
class VmKill:
    """All processes die silently; the machine stays listed as running (a crashed kernel)."""

    name: str


@dataclass(frozen=True, slots=True)
class VmReset:
    """All processes are killed, the disks are kept, the startup script runs again (a reboot)."""

    name: str


@dataclass(frozen=True, slots=True)
class VmFreeze:
    """All processes stop (SIGSTOP): the machine vanishes from the network without closing a connection."""

    name: str


@dataclass(frozen=True, slots=True)
class VmThaw:
    name: str


@dataclass(frozen=True, slots=True)
class VmMaintenance:
    """`instance/maintenance-event` says `event`, `instance/upcoming-maintenance` has these fields; None: none."""

    name: str
    event: str
    upcoming: Mapping[str, str] | None


VmEvent = VmStart | VmNotice | VmStop | VmKill | VmReset | VmFreeze | VmThaw | VmMaintenance


@dataclass(frozen=True, slots=True)
class VmBooted:
    """What a machine reports back: its network is up and its startup script was begun."""

    name: str


@dataclass(frozen=True, slots=True)
class GuestAttribute:
    """A machine wrote guest-attributes/<namespace>/<key> through its metadata server."""

    name: str
    namespace: str
    key: str
    value: str


VmReport = VmBooted | GuestAttribute
