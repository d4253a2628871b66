"""What a VM knows of its world: the attribute `tpuctl-config` (docs/architecture.md), and its places on the disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuctl.base.errors import UserError
from tpuctl.base.files import read_json
from tpuctl.base.ids import ClusterName, Epoch, PoolName, QrName, SliceName, Zone
from tpuctl.cloud.model import Endpoints
from tpuctl.hosts.detection import Detection, settings_for

VERSION = 1


class ConfigError(UserError):
    """tpuctl-config is missing or not what this version reads."""


@dataclass(frozen=True, slots=True)
class HostConfig:
    """Which slice this host belongs to."""

    pool: PoolName
    slot: int
    epoch: Epoch  # of the head that asked for the slice
    incarnation: QrName
    slice: SliceName
    zone: Zone
    accelerator: str
    hosts: int
    chips_per_host: int


@dataclass(frozen=True, slots=True)
class VmConfig:
    role: str  # "head" | "host"
    cluster: ClusterName
    project: str
    endpoints: Endpoints
    head_name: str
    head_zone: Zone
    secret: str  # name of the secret, not its value
    agent_port: int
    ray_ports: tuple[int, int]  # from the first up to, not including, the second
    digest: str
    detection: Detection
    host: HostConfig | None  # None on the head


def parse_config(document: Any) -> VmConfig:
    """Raises ConfigError, naming the key."""
    if not isinstance(document, dict) or document.get("version") != VERSION:
        found = document.get("version") if isinstance(document, dict) else type(document).__name__
        raise ConfigError(f"tpuctl-config has version {found!r}, this tpuctl reads {VERSION}: make the VM anew")
    try:
        first, end = document["ray_ports"]
        hold = document["detection"]
        host = document.get("host")
        config = VmConfig(
            role=document["role"],
            cluster=ClusterName(document["cluster"]),
            project=document["project"],
            endpoints=Endpoints(**document["endpoints"]),
            head_name=document["head"]["name"],
            head_zone=Zone(document["head"]["zone"]),
            secret=document["secret"],
            agent_port=int(document["agent_port"]),
            ray_ports=(int(first), int(end)),
            digest=str(document.get("digest", "")),
            detection=settings_for(float(hold["hold_s"]), float(hold["rejoin_s"])),
            host=None if host is None else _host(host),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"tpuctl-config cannot be read: {type(error).__name__}: {error}") from error
    if config.role == "host" and config.host is None:
        raise ConfigError("tpuctl-config has the role host and no `host`")
    return config


def _host(document: Mapping[str, Any]) -> HostConfig:
    return HostConfig(
        pool=PoolName(document["pool"]),
        slot=int(document["slot"]),
        epoch=Epoch(document["epoch"]),
        incarnation=QrName(document["incarnation"]),
        slice=SliceName(document["slice"]),
        zone=Zone(document["zone"]),
        accelerator=document["accelerator"],
        hosts=int(document["hosts"]),
        chips_per_host=int(document["chips_per_host"]),
    )


@dataclass(frozen=True, slots=True)
class VmPlaces:
    """The paths on a VM, all below one prefix (docs/architecture.md)."""

    prefix: Path
    home: Path  # HOME of our daemons, which the programs of runs inherit

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> VmPlaces:
        """TPUCTL_VM_DIR, which the units set; else where the startup script puts it."""
        home, given = environment.get("HOME"), environment.get("TPUCTL_VM_DIR")
        return cls(Path(given) if given else Path(home or "/opt") / "tpuctl", Path(home or "/root"))

    @property
    def config(self) -> Path:
        return self.prefix / "config.json"

    @property
    def token(self) -> Path:
        return self.prefix / "token"

    @property
    def host(self) -> Path:
        return self.prefix / "host.json"

    @property
    def epoch(self) -> Path:
        return self.prefix / "epoch"

    @property
    def ray(self) -> Path:
        return self.prefix / "ray"

    @property
    def attempts(self) -> Path:
        return self.prefix / "attempts"

    @property
    def ray_log(self) -> Path:
        return self.prefix / "log" / "ray.log"

    @property
    def ray_json(self) -> Path:
        return self.prefix / "data" / "ray.json"

    def read_config(self) -> VmConfig:
        """Raises ConfigError."""
        try:
            document = read_json(self.config)
        except ValueError as error:
            raise ConfigError(f"{self.config} is not JSON: run the startup script again") from error
        if document is None:
            raise ConfigError(f"{self.config} is not there: the startup script has not run")
        return parse_config(document)
