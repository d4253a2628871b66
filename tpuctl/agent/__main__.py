"""`python -m tpuctl.agent`, on the head: the unit tpuctl-agent.service."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import sys

from tpuctl.agent.cloud_words import ask_cloud
from tpuctl.agent.cron import head_cron
from tpuctl.agent.dispatch import World
from tpuctl.agent.life import Parts, live, only_agent
from tpuctl.agent.passes import reconcile_command
from tpuctl.agent.places import Identity, Places
from tpuctl.agent.ray_cluster import read_ray_table
from tpuctl.agent.ray_head import RayHead
from tpuctl.agent.ray_jobs import RayJobs
from tpuctl.agent.supervisors import Supervisors
from tpuctl.base.chance import SystemChance
from tpuctl.base.clock import Clock, SystemClock
from tpuctl.base.errors import TpuctlError
from tpuctl.base.ids import QrName, Zone
from tpuctl.cloud.model import TpuApi
from tpuctl.fleet.model import RayView
from tpuctl.hosts.config import VmConfig, VmPlaces
from tpuctl.hosts.lookup import cloud_lookup
from tpuctl.hosts.metadata import Metadata
from tpuctl.runs.model import CloudWord
from tpuctl.store.database import Store

RAY_LIMIT_S = 3.0  # a dashboard that takes longer is as good as silent for a loop of one second


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    vm = VmPlaces.from_environment(os.environ)
    try:
        places = Places(vm.prefix / "data")
        places.data.mkdir(parents=True, exist_ok=True)
        with only_agent(places.lock):
            asyncio.run(live(real_parts(vm, places, SystemClock())))
    except TpuctlError as error:
        # The unit starts the next life in two seconds: a cloud that does not answer yet is asked again by that.
        print(f"tpuctl.agent: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def real_parts(vm: VmPlaces, places: Places, clock: Clock) -> Parts:
    """Raises TpuctlError when the cloud or the metadata server cannot be asked, or the VM is no head."""
    config = vm.read_config()
    lookup = cloud_lookup()
    epoch = lookup.find_head().epoch
    lookup.read_token()
    secret = vm.token.read_text().strip()
    me = Identity(config.cluster, epoch, Metadata.from_environment(os.environ).own_address())
    return Parts(
        identity=me,
        places=places,
        open_store=lambda: Store.open(places.store, clock=clock, create=True),
        world=real_world(config, places, secret, clock),
        pass_command=lambda dashboard: reconcile_command(sys.executable, places.data, epoch, dashboard),
        detection=config.detection,
        secret=secret,
        port=config.agent_port,
        clock=clock,
        chance=SystemChance(),
        cron=head_cron(vm.prefix, me, places),
    )


def real_world(config: VmConfig, places: Places, secret: str, clock: Clock) -> World:
    @functools.cache
    def tpu() -> TpuApi:
        # Google's client costs half a second and 60 MB: imported with the first question, which may never come.
        from tpuctl.cloud.tpu import RestTpu

        return RestTpu(config.endpoints.tpu, config.project, clock)

    def table(head: RayHead) -> RayView:
        return read_ray_table(head.dashboard, secret, clock, head_since=head.started_at, timeout_s=RAY_LIMIT_S)

    def jobs(head: RayHead) -> Supervisors:
        return Supervisors(RayJobs(head.dashboard, secret, timeout_s=RAY_LIMIT_S), places)

    def cloud(zone: Zone, name: QrName) -> CloudWord:
        return ask_cloud(tpu, zone, name, clock)

    return World(table, jobs, cloud)


if __name__ == "__main__":
    sys.exit(main())
