"""What `python -m tpuctl.hosts` does: build the daemon's world from the VM, and run it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tpuctl.base.clock import Clock, SystemClock
from tpuctl.base.errors import RetryLaterError
from tpuctl.hosts.chips import ChipPlaces
from tpuctl.hosts.config import ConfigError, HostConfig, VmConfig, VmPlaces
from tpuctl.hosts.daemon import HostDaemon, HostWorld, install_signals
from tpuctl.hosts.follow import HeadFinder
from tpuctl.hosts.identity import HostIdentity, IdentityError, read_identity
from tpuctl.hosts.lookup import cloud_lookup
from tpuctl.hosts.metadata import Metadata, MetadataError
from tpuctl.hosts.probe import own_versions
from tpuctl.hosts.say import Say

_AGAIN_S = 10.0


def main() -> int:
    """Returns when the unit is stopped. Raises ConfigError."""
    places = VmPlaces.from_environment(os.environ)
    config = places.read_config()
    if config.host is None:
        raise ConfigError(f"{places.config} has no `host`: the host daemon runs on hosts only")
    clock, metadata = SystemClock(), Metadata.from_environment(os.environ)
    daemon = HostDaemon(build_world(config, _await_identity(config.host, metadata, clock), places, metadata, clock))
    install_signals(daemon)
    return daemon.run()


def build_world(
    config: VmConfig, identity: HostIdentity, places: VmPlaces, metadata: Metadata, clock: Clock
) -> HostWorld:
    return HostWorld(
        config=config,
        identity=identity,
        places=places,
        chips=ChipPlaces.from_environment(os.environ),
        metadata=metadata,
        finder=HeadFinder(config, places, clock, cloud_lookup()),
        clock=clock,
        environment=dict(os.environ),
        ray_command=ray_command(),
        versions=own_versions(),
        cpus=len(os.sched_getaffinity(0)),
    )


def ray_command() -> tuple[str, ...]:
    """The `ray` of this very environment, whatever PATH says."""
    return (str(Path(sys.executable).with_name("ray")),)


def _await_identity(host: HostConfig, metadata: Metadata, clock: Clock) -> HostIdentity:
    """Never goes on without an index: says so where it can be read from outside, and asks again."""
    say = Say("tpuctl-host", clock)
    while True:
        try:
            return read_identity(host, metadata)
        except RetryLaterError as error:
            say(str(error))
            clock.sleep(error.after_s)
        except IdentityError as error:
            say(f"refused: {error}")
            _tell_outside(metadata, say, f"refused: {error}")
            clock.sleep(_AGAIN_S)


def _tell_outside(metadata: Metadata, say: Say, text: str) -> None:
    try:
        metadata.write_guest_attribute("tpuctl", "stage", text)
    except MetadataError as error:
        say(str(error))
