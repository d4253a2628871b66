"""The cluster spec as a frozen model. spec/yaml.py reads it from text with line numbers; nothing here reads files.

Durations are seconds (`_s` in the names of the code; the YAML keys have no suffix and take `90s`, `2h`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from tpuctl.base.ids import ClusterName, PoolName, Zone, is_plain_name
from tpuctl.base.units import Instant

Tier = Literal["spot", "on-demand", "reserved"]
Backend = Literal["gcp", "emulator"]
Reach = Literal["auto", "direct", "ssh", "iap"]
MAX_CLUSTER_NAME = 16
MAX_POOL_NAME = 16


def _instant(value: Any) -> Any:
    return Instant.parse(value) if isinstance(value, str) else value


# In JSON an instant is RFC 3339 text, as everywhere in our documents.
When = Annotated[Instant, BeforeValidator(_instant), PlainSerializer(Instant.iso, return_type=str)]


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, populate_by_name=True)


def plain(limit: int) -> AfterValidator:
    """Names become parts of file names, labels and resource names: a document from elsewhere is held to them too."""

    def check(name: str) -> str:
        if not is_plain_name(name, limit):
            raise ValueError(f"{name!r} is no plain name of at most {limit} letters, digits and dashes")
        return name

    return AfterValidator(check)


class HeadSpec(Model):
    zone: Zone
    machine: str = "e2-standard-4"
    service_account: str = ""
    reach: Reach = "auto"


class GrantEntry(Model):
    zone: Zone
    generation: str  # v2, v3, v4, v5e, v5p, v6e
    tier: Tier
    chips: int = Field(gt=0)


class GrantSpec(Model):
    until: When | None = None  # end of that day, UTC; None = no end known
    entries: tuple[GrantEntry, ...]


class NetworkSpec(Model):
    network: str = "default"
    subnetwork: str = ""
    external_ips: bool = True
    tags: tuple[str, ...] = ()


class DetectionSpec(Model):
    hold_s: float = 25.0  # how long a verdict waits for evidence
    rejoin_s: float = 90.0  # how long a SUSPECT slice may take to come back


class DeadlineSpec(Model):
    """None = no deadline."""

    queue_s: float | None = None
    provision_s: float | None = 7200.0
    boot_s: float | None = 1200.0
    join_s: float | None = 600.0


class EndpointSpec(Model):
    """Roots; "" = Google's own."""

    tpu: str = ""
    compute: str = ""
    secretmanager: str = ""
    storage: str = ""


class PoolSpec(Model):
    name: Annotated[PoolName, plain(MAX_POOL_NAME)]
    accelerator: str  # as the API calls it: v4-32, v5litepod-16
    zones: tuple[Zone, ...] = Field(min_length=1)  # exactly one until the provisioning work
    tier: Tier = "spot"
    runtime: str  # filled with the generation's usual one
    slices: int = Field(ge=0)
    deadlines: DeadlineSpec = DeadlineSpec()

    @property
    def zone(self) -> Zone:
        return self.zones[0]


class ClusterSpec(Model):
    version: Literal[1] = 1
    cluster: Annotated[ClusterName, plain(MAX_CLUSTER_NAME)]
    project: str
    backend: Backend = "gcp"
    head: HeadSpec
    endpoints: EndpointSpec = EndpointSpec()
    grant: GrantSpec | None = None  # None: `grant: none`, or absent with the emulator
    network: NetworkSpec = NetworkSpec()
    storage: tuple[tuple[str, str], ...] = ()  # (region prefix, URL); at most one entry until the runs work
    detection: DetectionSpec = DetectionSpec()
    pools: tuple[PoolSpec, ...]

    def pool(self, name: str) -> PoolSpec | None:
        return next((pool for pool in self.pools if pool.name == name), None)
