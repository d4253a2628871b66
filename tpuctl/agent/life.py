"""One life of the agent: claim the head's records, serve, dispatch, and end together.

If any of the loops ends by an error, the process ends with it and the unit starts the next life: every part derives
what is left to do from the store, the folders, Ray and the cloud.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpuctl.agent.cron import HeadCron
from tpuctl.agent.dispatch import Dispatch, World
from tpuctl.agent.folders import Folders
from tpuctl.agent.home import Bell, Home, Records, Scene
from tpuctl.agent.passes import Passes
from tpuctl.agent.places import Identity, Places
from tpuctl.agent.round import Round
from tpuctl.agent.senders import send
from tpuctl.agent.service import build_service, listen
from tpuctl.agent.telling import Teller
from tpuctl.base.chance import Chance
from tpuctl.base.clock import Clock
from tpuctl.base.errors import BusyError, StaleError, UserError
from tpuctl.base.ids import Epoch, epoch_order
from tpuctl.hosts.detection import Detection
from tpuctl.runs.plan import PlanSettings
from tpuctl.store.database import Store
from tpuctl.store.records import Event

log = logging.getLogger(__name__)


@contextlib.contextmanager
def only_agent(path: Path) -> Iterator[None]:
    """Held for the process's life and let go by the kernel with it. Raises BusyError."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(f"another agent holds {path}: there is one on a head") from error
        yield


def claim_store(store: Store, me: Identity) -> None:
    """Put cluster and epoch into the records; a newer epoch replaces an older one.

    Raises UserError for the records of another cluster (a disk attached to the wrong head) and StaleError for those of
    a newer head: then this VM is the one that is out of date.
    """
    with store.transaction() as tx:
        cluster, epoch = tx.meta("cluster"), tx.meta("epoch")
        if cluster not in (None, me.cluster):
            raise UserError(f"the data disk holds cluster {cluster!r}, this head is of {me.cluster!r}: not touched")
        if epoch is not None and epoch_order(Epoch(epoch)) > epoch_order(me.epoch):
            raise StaleError(f"the records are of epoch {epoch}, newer than this head's {me.epoch}: not touched")
        if cluster is None:
            tx.put_meta("cluster", me.cluster)
        if epoch != me.epoch:
            tx.put_meta("epoch", me.epoch)
            tx.add_event(Event(store.now(), "epoch", me.cluster, f"head of epoch {me.epoch} takes over from {epoch}"))


@dataclass(frozen=True)
class Parts:
    """What one life is made of. Built by __main__ for real, by tests with their own."""

    identity: Identity
    places: Places
    open_store: Callable[[], Store]
    world: World
    pass_command: Callable[[str | None], Sequence[str]]  # takes the dashboard's URL
    detection: Detection
    secret: str
    port: int
    clock: Clock
    chance: Chance
    cron: HeadCron | None = None  # None: no crontab is touched


async def live(parts: Parts, *, until: asyncio.Event | None = None) -> None:
    """Serve until SIGTERM or SIGINT, or until the event."""
    end = until or asyncio.Event()
    loop = asyncio.get_running_loop()
    if until is None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end.set)
    records = Records(parts.open_store)
    try:
        await records.do(lambda store: claim_store(store, parts.identity))
        if parts.cron is not None:
            await records.do(parts.cron.restore)
        await _serve(parts, records, end)
    finally:
        records.close()


async def _serve(parts: Parts, records: Records, end: asyncio.Event) -> None:
    scene = Scene()
    passes = Passes(lambda: parts.pass_command(scene.ray_head.dashboard if scene.ray_head else None), parts.clock)
    folders = Folders(parts.places, parts.identity, parts.detection)
    home = Home(parts.identity, parts.places, folders, records, scene, parts.clock, parts.chance, Bell(), passes.ask)
    dispatch = Dispatch(home, Round(folders, parts.identity.epoch, settings_of(parts.detection)), parts.world, passes)
    runner = await listen(build_service(home, passes, parts.secret, parts.cron), parts.identity.address, parts.port)
    log.info("agent of %s, epoch %s, at %s:%d", *_names(parts))
    try:
        async with asyncio.TaskGroup() as group:
            loops = [group.create_task(each.loop()) for each in (dispatch, passes, Teller(home, send))]
            await end.wait()
            for task in loops:
                task.cancel()
    finally:
        await runner.cleanup()


def settings_of(detection: Detection) -> PlanSettings:
    return PlanSettings(hold_s=detection.hold_s, lease_s=detection.lease_s, fence_margin_s=detection.lease_margin_s)


def _names(parts: Parts) -> tuple[str, str, str, int]:
    return parts.identity.cluster, parts.identity.epoch, parts.identity.address, parts.port
