"""Paths of Cloud TPU's REST face, and what all its verbs share: finding, showing and listing records."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tpuctl.emulator.calls import Call
from tpuctl.emulator.tpu_life import TpuLife
from tpuctl.emulator.tpu_records import NodeRecord, QueuedRecord
from tpuctl.emulator.tpu_versions import in_version
from tpuctl.emulator.wire import Answer, Json, ServiceError
from tpuctl.emulator.world import World

_PATH = re.compile(
    r"/(?P<version>v1|v2|v2alpha1)/projects/(?P<project>[^/:]+)/locations"
    r"(?:/(?P<zone>[^/:]+)(?:/(?P<kind>\w+)(?:/(?P<id>[^/:]+))?)?)?(?::(?P<verb>\w+))?"
)


@dataclass(frozen=True, slots=True)
class Where:
    version: str
    project: str
    zone: str
    kind: str
    id: str
    verb: str

    @property
    def parent(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}"

    @property
    def name(self) -> str:
        return f"{self.parent}/{self.kind}/{self.id}"

    @property
    def is_one(self) -> bool:
        return bool(self.id)


Handler = Callable[[Call, Where], Answer]
Verbs = dict[tuple[str, str, bool, str], Handler]  # (method, kind, one of them?, custom verb)


def where_of(path: str) -> Where | None:
    match = _PATH.fullmatch(path)
    return None if match is None else Where(**{key: value or "" for key, value in match.groupdict().items()})


def not_found(name: str) -> ServiceError:
    return ServiceError("NOT_FOUND", f"Resource '{name}' was not found")


class Finder:
    """Records by the place that a call names, shown as overrides and the call's version of the API want them."""

    def __init__(self, world: World, life: TpuLife) -> None:
        self.world = world
        self.life = life

    def queued(self, where: Where) -> QueuedRecord:
        """Raises ServiceError NOT_FOUND."""
        record = self.life.queued.get(where.name)
        if record is None:
            raise not_found(where.name)
        return record

    def node(self, where: Where) -> NodeRecord:
        """Raises ServiceError NOT_FOUND."""
        node = self.life.nodes.get(where.name)
        if node is None:
            raise not_found(where.name)
        return node

    def labels(self, name: str) -> dict[str, str]:
        record = self.life.queued.get(name) or self.life.nodes.get(name)
        return dict(record.labels) if record is not None else {}

    def answer(self, call: Call, where: Where, record: QueuedRecord | NodeRecord) -> Answer:
        """Raises ServiceError NOT_FOUND for what is to look absent."""
        document = in_version(where.version, where.kind, record.document())
        shown = self.world.shown(call.now, record.name, document)
        if shown is None:
            raise not_found(record.name)
        return Answer(shown, resource=record.name, labels=record.labels)

    def list(self, call: Call, where: Where, records: Sequence[QueuedRecord | NodeRecord]) -> Answer:
        unreachable = self._unreachable(call, where)
        shown: dict[str, Json] = {}
        for record in sorted(records, key=lambda each: each.name):
            if record.project != where.project or where.zone not in ("-", record.zone) or record.zone in unreachable:
                continue
            document = in_version(where.version, where.kind, record.document())
            document_shown = self.world.shown(call.now, record.name, document)
            if document_shown is not None:
                shown[record.name] = document_shown
        listing = self.page(call, where.kind, list(shown), list(shown.values()))
        if unreachable:
            listing["unreachable"] = [f"projects/{where.project}/locations/{zone}" for zone in unreachable]
        return Answer(listing)

    def page(self, call: Call, key: str, names: Sequence[str], documents: Sequence[Json]) -> Json:
        page, token = call.page(documents, names, self.world.settings.page_size, "pageSize")
        return {key: page, "nextPageToken": token}

    def _unreachable(self, call: Call, where: Where) -> tuple[str, ...]:
        """Zones of this list that cannot be read now, or that a planted `partial` fault hides (by default: all)."""
        hidden = self.world.out_of_sight(call.now)
        found = tuple(zone for zone in hidden if where.zone in ("-", zone))
        if call.fault is not None and call.fault.kind == "partial":
            found += call.fault.unreachable or (where.zone,)
        return tuple(dict.fromkeys(found))
