"""Cloud TPU's REST face, v2 and v2alpha1: which verb of which kind a call is, and whether the caller may."""

from __future__ import annotations

from tpuctl.emulator.access import CreateRate, check_api, check_permission, check_zone
from tpuctl.emulator.calls import Call
from tpuctl.emulator.operations import Operations
from tpuctl.emulator.quota import Quotas
from tpuctl.emulator.tpu_catalogue import CatalogueApi
from tpuctl.emulator.tpu_life import TpuLife
from tpuctl.emulator.tpu_node_api import NodeApi
from tpuctl.emulator.tpu_nodes import NodeLife
from tpuctl.emulator.tpu_paths import Finder, Verbs, Where, where_of
from tpuctl.emulator.tpu_queued_api import QueuedApi
from tpuctl.emulator.wire import Answer, ServiceError
from tpuctl.emulator.world import World

_METHOD_ACTIONS = {"GET": "get", "POST": "create", "DELETE": "delete", "PATCH": "update"}
_READING_VERBS = {"getGuestAttributes": "get", "getMaintenanceInfo": "get"}
_ONLY_ALPHA = (
    "performMaintenance",
    "performMaintenanceQueuedResource",
    "simulateMaintenanceEvent",
    "getMaintenanceInfo",
)


class TpuApi:
    def __init__(self, world: World) -> None:
        self.world = world
        self.operations = Operations(world)
        self.life = TpuLife(world, self.operations)
        self.nodes = NodeLife(self.life)
        self.quotas = Quotas(world.settings.quotas, world.settings.default_quota)
        self.finder = finder = Finder(world, self.life)
        rate = CreateRate(world.settings)
        self._verbs: Verbs = {
            **QueuedApi(finder, self.operations, self.nodes, self.quotas, rate).verbs(),
            **NodeApi(finder, self.operations, self.nodes, self.quotas, rate).verbs(),
            **CatalogueApi(finder, self.operations).verbs(),
        }

    def add(self, verbs: Verbs) -> None:
        """Those of a part that is built upon this one."""
        self._verbs |= verbs

    def owns(self, path: str) -> bool:
        return where_of(path) is not None

    def handle(self, call: Call) -> Answer:
        """Raises ServiceError."""
        where = where_of(call.request.path)
        if where is None:
            raise ServiceError("NOT_FOUND", f"The requested URL {call.request.path} was not found on this server.")
        settings = self.world.settings
        check_api(settings, "tpu", where.project)
        permission = f"tpu.{(where.kind or 'locations').lower()}.{_action(call.request.method, where)}"
        check_permission(settings, permission, where.name.rstrip("/"))
        if where.zone and where.zone != "-":
            check_zone(settings, where.zone, where.project, self.world.event_id())
        found = self._verbs.get((call.request.method, where.kind, where.is_one, where.verb))
        if found is None or not _has(where):
            what = f"{call.request.method} {where.kind}{':' + where.verb if where.verb else ''}"
            raise ServiceError("UNIMPLEMENTED", f"Operation is not implemented, or supported, or enabled. ({what})")
        return found(call, where)


def _action(method: str, where: Where) -> str:
    if where.verb:
        return _READING_VERBS.get(where.verb, where.verb)
    return "list" if method == "GET" and not where.is_one else _METHOD_ACTIONS.get(method, method.lower())


def _has(where: Where) -> bool:
    """Whether this version of the API has the verb. v1 is of another kind of node: its catalogues alone are here."""
    if where.version == "v1":
        return where.kind in ("", "acceleratorTypes")
    return where.version == "v2alpha1" or not (where.verb in _ONLY_ALPHA or where.kind == "reservations")
