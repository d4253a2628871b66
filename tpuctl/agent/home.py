"""What the agent's parts share: the records on their own thread, the scene of now, and the rest by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from tpuctl.agent.folders import Folders
from tpuctl.agent.places import Identity, Places
from tpuctl.agent.ray_head import RayHead
from tpuctl.base.chance import Chance
from tpuctl.base.clock import Clock
from tpuctl.base.ids import RunId
from tpuctl.base.units import Instant
from tpuctl.cloud.model import Unknown
from tpuctl.fleet.model import RayView
from tpuctl.store.database import Store

T = TypeVar("T")

API_VERSION = 1


class Records:
    """The store, on one thread of its own: SQLite never blocks the service, and no two writes of ours interleave."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="records")
        # Opened on the thread that will use it: a connection belongs to its thread.
        self._store = self._executor.submit(open_store).result()

    async def do(self, work: Callable[[Store], T]) -> T:
        """Run `work` on the thread of the records. It runs to its end even if this call is cancelled."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, self._store)

    def close(self) -> None:
        self._executor.submit(self._store.close).result()
        self._executor.shutdown()


@dataclass
class Scene:
    """What was seen last. Of the event loop alone; lost with the process and seen again within a second."""

    ray: RayView = field(default_factory=lambda: Unknown("Ray was not asked yet"))
    ray_head: RayHead | None = None
    waits: Mapping[RunId, str] = field(default_factory=dict)  # the planner's reasons of the last round
    last_pass: Instant | None = None  # its end, or since when the first is waited for; None while there is no spec


class Bell:
    """Wakes the dispatch loop before its second is over."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        self._event.set()

    async def wait(self, limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await self._event.wait()
        except TimeoutError:
            return
        finally:
            self._event.clear()


@dataclass(frozen=True)
class Home:
    identity: Identity
    places: Places
    folders: Folders
    records: Records
    scene: Scene
    clock: Clock
    chance: Chance
    dispatch_bell: Bell
    ask_pass: Callable[[str], None]
