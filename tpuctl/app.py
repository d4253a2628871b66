"""The composition root: the only place that builds clients, clock, chance and store. One builder a command.

Heavy imports (Google's clients, Ray) stand inside the builder that needs them, so that help and status stay quick.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.base.chance import Chance, SystemChance
from tpuctl.base.clock import Clock, SystemClock
from tpuctl.base.errors import UserError

if TYPE_CHECKING:  # the spec's models cost more than a whole `tpuctl status`, the rest is imported where it is used
    from tpuctl.base.ids import Zone
    from tpuctl.client import AgentClient
    from tpuctl.cloud.model import ComputeApi, Endpoints, SecretApi, TpuApi
    from tpuctl.cron.local import LocalCron
    from tpuctl.fleet.metadata import HostWorld
    from tpuctl.fleet.model import RayView
    from tpuctl.fleet.pass_ import OnePass
    from tpuctl.head.bring_up import BringUp
    from tpuctl.head.folder import ClusterFolder
    from tpuctl.head.home import HeadHome
    from tpuctl.head.take_down import TakeDown
    from tpuctl.spec.cluster import ClusterSpec
    from tpuctl.store.database import Store

Say = Callable[[str], None]
_warned: set[str] = set()
_SILENCE = "the head's last pass"  # its text has an age and is never twice the same
# Cron gives a command next to no environment.
NEEDED_BY_CRON = ("TPUCTL_EMULATOR", "GOOGLE_APPLICATION_CREDENTIALS", "HTTPS_PROXY", "https_proxy")
PROBE_S = 3.0  # how long the head at its known address may take to say that it lives


@dataclass(frozen=True)
class Settings:
    """What the environment and the global options say. Only TPUCTL_* is read."""

    home: Path
    emulator: str  # TPUCTL_EMULATOR: root of all endpoints; "" = none

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], state_dir: Path | None = None) -> Settings:
        home = state_dir or Path(environment.get("TPUCTL_HOME") or Path.home() / ".tpuctl")
        return cls(home.expanduser().absolute(), environment.get("TPUCTL_EMULATOR", "").rstrip("/"))


@dataclass(frozen=True)
class Basis:
    """What nearly every builder starts from."""

    settings: Settings
    clock: Clock
    chance: Chance


def basis(state_dir: Path | None = None) -> Basis:
    return Basis(Settings.from_environment(os.environ, state_dir), SystemClock(), SystemChance())


def warn(text: str) -> None:
    """What went wrong beside the work. Once is enough: commands look several times at what they remember."""
    if text not in _warned:
        _warned.add(text)
        print(f"tpuctl: {text}", file=sys.stderr, flush=True)


def heard_pass_age(age_s: float | None) -> None:
    """The dead-man rule, for every command: one line when the head's last pass is long ago."""
    from tpuctl.head.silence import silence_of

    if (text := silence_of(age_s)) and _SILENCE not in _warned:
        _warned.add(_SILENCE)
        print(f"tpuctl: {text}", file=sys.stderr, flush=True)


def silence_is_shown() -> None:
    """This command shows the age of the last pass itself."""
    _warned.add(_SILENCE)


def endpoints_of(spec: ClusterSpec, settings: Settings) -> Endpoints:
    """TPUCTL_EMULATOR sets all four; else the spec's own, else Google's, but those only for `backend: gcp`.

    Raises UserError.
    """
    from tpuctl.cloud.model import Endpoints

    if settings.emulator:
        return Endpoints.all_at(settings.emulator)
    named = spec.endpoints
    if spec.backend == "emulator" and not all((named.tpu, named.compute, named.secretmanager)):
        # Never Google by default: a forgotten variable must not turn an exercise into a bill.
        raise UserError(
            f"cluster {spec.cluster!r} has `backend: emulator`, but TPUCTL_EMULATOR is not set; "
            'run: eval "$(tpuctl emulator start)" (it prints the same line again for one that runs)'
        )
    google = Endpoints()
    return Endpoints(
        (named.tpu or google.tpu).rstrip("/"),
        (named.compute or google.compute).rstrip("/"),
        (named.secretmanager or google.secretmanager).rstrip("/"),
        (named.storage or google.storage).rstrip("/"),
    )


def build_tpu(endpoints: Endpoints, project: str, clock: Clock) -> TpuApi:
    from tpuctl.cloud.tpu import RestTpu

    return RestTpu(endpoints.tpu, project, clock)


def build_compute(endpoints: Endpoints, project: str, clock: Clock) -> ComputeApi:
    from tpuctl.cloud.compute import RestCompute

    return RestCompute(endpoints.compute, project, clock)


def build_secrets(endpoints: Endpoints, project: str) -> SecretApi:
    from tpuctl.cloud.secrets import RestSecrets

    return RestSecrets(endpoints.secretmanager, project)


def cluster_folder(here: Basis, file: Path) -> ClusterFolder:
    """What this machine remembers of the spec's cluster. The whole spec is read only if its name is not plain."""
    from tpuctl.head.folder import ClusterFolder, cluster_named_in

    name = cluster_named_in(file)
    if not name:
        from tpuctl.spec.yaml import load_cluster

        name = load_cluster(file).cluster
    return ClusterFolder(here.settings.home, name, warn)


def known_agent(here: Basis, file: Path, *, timeout_s: float = 15.0) -> AgentClient | None:
    """The agent where it was last found, without asking anybody; None when this machine never found it."""
    from tpuctl.client import AgentClient
    from tpuctl.head.reach import agent_address

    folder = cluster_folder(here, file)
    head, token = folder.head(), folder.token()
    if head is None or not head.address or not token:
        return None
    return AgentClient(
        agent_address(head.address), token, timeout_s=timeout_s, heard=heard_pass_age,
        renew_token=lambda: renewed_token(here, file),
    )  # fmt: skip


def renewed_token(here: Basis, file: Path) -> str:
    """The secret, read again and remembered."""
    from tpuctl.spec.yaml import load_cluster

    return build_head(here, load_cluster(file)).read_token()


def connect(here: Basis, file: Path) -> AgentClient:
    """The agent of the spec's cluster: where it was last found if it answers there, else looked for in the cloud.

    Raises NoHeadError when there is none, CloudError when the cloud cannot be asked, UserError for the spec.
    """
    from tpuctl.client import AgentClient, AgentNotReadyError, AgentRefusedError, AgentUnreachableError

    probe = known_agent(here, file, timeout_s=PROBE_S)
    if probe is not None:
        try:
            probe.health()
        except (AgentUnreachableError, AgentNotReadyError, AgentRefusedError):
            probe = None  # gone, or another machine has its address now
            heard_pass_age(_remembered_pass_age(here, file))
    if probe is None:
        from tpuctl.spec.yaml import load_cluster

        found = build_head(here, load_cluster(file)).find()
        renew = functools.partial(renewed_token, here, file)
        return AgentClient(found.address, found.token, renew_token=renew, heard=heard_pass_age)
    known = known_agent(here, file)
    assert known is not None  # the probe was made of the same files
    return known


def _remembered_pass_age(here: Basis, file: Path) -> float | None:
    from tpuctl.head.silence import remembered_age

    last = cluster_folder(here, file).last_status()
    return remembered_age(None if last is None else last.document, here.clock.now())


def build_head(here: Basis, spec: ClusterSpec, say: Say = lambda _: None) -> HeadHome:
    """Finds and builds the spec's head. Raises UserError for a `reach` that is not there yet."""
    from tpuctl.head.apply import HeadApplier
    from tpuctl.head.folder import ClusterFolder
    from tpuctl.head.home import HeadHome
    from tpuctl.head.metadata import head_metadata
    from tpuctl.head.model import HeadNames, HeadWant
    from tpuctl.head.reach import check_reach
    from tpuctl.hosts.digest import source_digest
    from tpuctl.hosts.startup import startup_script

    check_reach(spec.head.reach)
    names = HeadNames(spec.cluster)
    network = spec.network
    want = HeadWant(
        names,
        spec.project,
        spec.head.zone,
        spec.head.machine,
        service_account=spec.head.service_account,
        network=network.network,
        subnetwork=network.subnetwork,
        external_ip=network.external_ips,
        tags=network.tags,
    )
    endpoints = endpoints_of(spec, here.settings)
    compute = build_compute(endpoints, spec.project, here.clock)
    secrets = build_secrets(endpoints, spec.project)
    applier = HeadApplier(
        compute,
        secrets,
        names,
        here.chance,
        metadata=lambda zone: head_metadata(
            want,
            zone,
            endpoints=endpoints,
            detection=spec.detection,
            digest=source_digest(),
            startup_script=startup_script(),
        ),
        say=say,
    )
    return HeadHome(
        compute, secrets, want, applier, ClusterFolder(here.settings.home, spec.cluster, warn), here.clock, say
    )


def local_cron(here: Basis, file: Path) -> LocalCron:
    """For `cron … --here`. All paths are absolute; what of this environment a pass needs goes with the command."""
    import shutil

    from tpuctl.cron.crontab import Crontab
    from tpuctl.cron.local import LocalCron
    from tpuctl.cron.systemd import UserTimer, user_directory
    from tpuctl.cron.tick import TickFiles
    from tpuctl.spec.yaml import load_cluster

    cluster, home = load_cluster(file).cluster, here.settings.home
    files = TickFiles(home / "cron" / f"{cluster}.log")
    python = (sys.executable, "-P", "-m", "tpuctl")
    taken = [f"{name}={os.environ[name]}" for name in NEEDED_BY_CRON if os.environ.get(name)]
    command = (
        *((shutil.which("env") or "/usr/bin/env", *taken) if taken else ()),
        *python, "cron", "run", "--log", str(files.log), "--",
        *python, "reconcile", "--file", str(file.absolute()), "--state-dir", str(home),
    )  # fmt: skip
    return LocalCron(
        cluster, command, files, Crontab(home / "cron" / "crontab.lock"), UserTimer(cluster, user_directory(os.environ))
    )


def build_bring_up(here: Basis, file: Path, say: Say, *, beyond_grant: bool | None = None) -> BringUp:
    """For `up`, and for `reconcile` away from the head, which says nothing of `beyond_grant`.

    Raises GrantOverError when the user asks for what would be billed after the grant's end, and did not say so.
    """
    import json

    from tpuctl.client import AgentClient
    from tpuctl.head.bring_up import BringUp, SpecText
    from tpuctl.spec.document import dump
    from tpuctl.spec.yaml import check_grant, load_cluster

    spec = load_cluster(file)
    if beyond_grant is False:
        check_grant(spec, here.clock.now())
    home = build_head(here, spec, say)
    text = SpecText(
        json.loads(dump(spec)), file.read_text(), sum(pool.slices.min for pool in spec.pools), bool(beyond_grant)
    )
    return BringUp(
        home,
        lambda found: AgentClient(found.address, found.token, renew_token=home.read_token, heard=heard_pass_age),
        text,
        here.clock,
        say,
    )


def build_take_down(here: Basis, file: Path, say: Say) -> TakeDown:
    from tpuctl.client import AgentClient
    from tpuctl.fleet.pools import slot_exists
    from tpuctl.head.sweep import Sweeper
    from tpuctl.head.take_down import TakeDown
    from tpuctl.spec.yaml import load_cluster

    spec = load_cluster(file)
    home = build_head(here, spec, say)
    tpu = build_tpu(endpoints_of(spec, here.settings), spec.project, here.clock)
    return TakeDown(
        home,
        lambda address: AgentClient(address, home.read_token(), renew_token=home.read_token, heard=heard_pass_age),
        Sweeper(tpu, spec.cluster, zones_of(spec), functools.partial(slot_exists, spec), here.chance, here.clock, say),
        here.clock,
        say,
    )


def zones_of(spec: ClusterSpec) -> tuple[Zone, ...]:
    """Where slices of the cluster may be: its pools' zones and its grant's, since a pool may have left the spec."""
    zones = [zone for pool in spec.pools for zone in pool.zones]
    zones += [entry.zone for entry in spec.grant.entries] if spec.grant else []
    return tuple(dict.fromkeys(zones))


@contextmanager
def build_pass(here: Basis, store_dir: Path, epoch: str, ray_url: str, *, rebuild: bool = False) -> Iterator[OnePass]:
    """A pass on the head, on the store in `store_dir`. What the head knows of its world is its own `tpuctl-config`;
    where there is none (a test, the emulator without machines) the stored spec and TPUCTL_EMULATOR say it.

    Raises StoreError kinds, UserError without an epoch or a spec.
    """
    from tpuctl.base.ids import ClusterName, Epoch
    from tpuctl.fleet.metadata import node_metadata
    from tpuctl.fleet.pass_ import OnePass, PassTools
    from tpuctl.runs.demand import demand_of
    from tpuctl.store.database import Store
    from tpuctl.store.lock import PassLock

    if not epoch:
        raise UserError("--store needs --epoch: a pass without one could not be told from a former head's")
    path = store_dir / "store.sqlite3"
    store = Store.rebuild(path, clock=here.clock) if rebuild else Store.open(path, clock=here.clock, create=False)
    try:
        world = _world_of(here, store)
        tools = PassTools(
            store,
            PassLock(store_dir / "pass.lock"),
            build_tpu(world.endpoints, world.project, here.clock),
            here.clock,
            here.chance,
            node_metadata(world),
            lambda: _ray_view(here, store_dir, ray_url),
            demand=demand_of,
        )
        yield OnePass(tools, ClusterName(world.cluster), Epoch(epoch))
    finally:
        store.close()


def _world_of(here: Basis, store: Store) -> HostWorld:
    from tpuctl.base.files import read_json
    from tpuctl.fleet.metadata import HostWorld
    from tpuctl.head.model import RAY_PORTS, HeadNames
    from tpuctl.head.reach import AGENT_PORT
    from tpuctl.hosts.config import VmPlaces, parse_config
    from tpuctl.hosts.digest import source_digest
    from tpuctl.hosts.startup import startup_script
    from tpuctl.spec.cluster import DetectionSpec
    from tpuctl.spec.document import read_cluster

    with store.snapshot() as tx:
        stored = tx.spec()
    spec = None if stored is None else read_cluster(stored.document)
    detection = DetectionSpec() if spec is None else spec.detection
    script, config_path = startup_script(), VmPlaces.from_environment(os.environ).config
    if "TPUCTL_VM_DIR" in os.environ and (document := read_json(config_path)) is not None:
        vm = parse_config(document)
        return HostWorld(
            vm.cluster, vm.project, vm.endpoints, vm.head_name, vm.head_zone, vm.secret, vm.agent_port, vm.ray_ports,
            vm.digest, detection, script,
        )  # fmt: skip
    if spec is None:
        raise UserError(f"{store.path} has no spec yet, and this machine is no head: nothing says whose pass this is")
    names = HeadNames(spec.cluster)
    return HostWorld(
        spec.cluster, spec.project, endpoints_of(spec, here.settings), names.head, spec.head.zone, names.secret,
        AGENT_PORT, RAY_PORTS, source_digest(), detection, script,
    )  # fmt: skip


def _ray_view(here: Basis, store_dir: Path, url: str) -> RayView:
    """The node table at `url`, read with the cluster's token; Unknown when there is no Ray to ask."""
    from tpuctl.agent.ray_cluster import read_ray_table
    from tpuctl.agent.ray_head import read_ray_head
    from tpuctl.cloud.model import Unknown
    from tpuctl.hosts.config import VmPlaces

    if not url:
        return Unknown("Ray is not up on the head")
    places = VmPlaces.from_environment(os.environ)
    try:
        token = places.token.read_text().strip()
    except OSError as error:
        return Unknown(f"the token {places.token} cannot be read: {error.strerror}")
    head = read_ray_head(store_dir / "ray.json")
    return read_ray_table(url, token, here.clock, head_since=None if head is None else head.started_at)
