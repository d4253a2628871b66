"""Long-running operations of the TPU service: made by a call, finished by the timeline."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tpuctl.base.units import Instant
from tpuctl.emulator.tpu_versions import in_version
from tpuctl.emulator.wire import Json, ServiceError
from tpuctl.emulator.world import World

_KINDS = {"Node": "nodes", "QueuedResource": "queuedResources"}


@dataclass(slots=True)
class Operation:
    name: str
    target: str
    verb: str
    created: Instant
    ended: Instant | None = None
    response: Json | None = None
    response_type: str = ""
    error: Json | None = None
    shown_after_s: float = 0.0  # its end shows so much later than it happens; inf: never
    cancel_requested: bool = False
    lost: bool = False  # 404, whatever becomes of the work

    def document(self, version: str) -> Json:
        metadata: Json = {
            "@type": f"type.googleapis.com/google.cloud.tpu.{version}.OperationMetadata",
            "createTime": self.created.iso(),
            "target": self.target,
            "verb": self.verb,
            "cancelRequested": self.cancel_requested,
            "apiVersion": version,
        }
        document: Json = {"name": self.name, "metadata": metadata, "done": self.ended is not None}
        if self.ended is None:
            return document
        metadata["endTime"] = self.ended.iso()
        if self.error is not None:
            document["error"] = self.error
        elif self.response is None:
            document["response"] = {"@type": "type.googleapis.com/google.protobuf.Empty"}
        else:
            kind = f"type.googleapis.com/google.cloud.tpu.{version}.{self.response_type}"
            document["response"] = {"@type": kind, **in_version(version, _KINDS[self.response_type], self.response)}
        return document


class Operations:
    def __init__(self, world: World) -> None:
        self._world = world
        self._all: dict[str, Operation] = {}
        self._by_request: dict[tuple[str, str, str], str] = {}

    def begin(self, now: Instant, parent: str, target: str, verb: str, request_id: str = "") -> Operation:
        chance = self._world.chance
        parts = f"{chance.getrandbits(48):012x}-{chance.getrandbits(32):08x}-{chance.getrandbits(32):08x}"
        name = f"{parent}/operations/operation-{int(now.unix_s * 1000)}-{parts}"
        operation = self._all[name] = Operation(name, target, verb, now)
        if request_id:
            self._by_request[verb, target, request_id] = name
        return operation

    def repeated(self, verb: str, target: str, request_id: str) -> Operation | None:
        """The operation of the same call under the same request id: a repeat has no effect of its own."""
        name = self._by_request.get((verb, target, request_id)) if request_id else None
        found = self._all.get(name) if name else None
        return found and self._as_shown(found)

    def get(self, name: str) -> Operation:
        """Raises ServiceError NOT_FOUND."""
        if name not in self._all or self._all[name].lost:
            raise ServiceError("NOT_FOUND", f"Resource '{name}' was not found")
        return self._as_shown(self._all[name])

    def cancel(self, name: str) -> None:
        """Asked for and shown; the work goes on, as the definition of the call allows. Raises ServiceError."""
        self.get(name)
        self._all[name].cancel_requested = True

    def drop(self, name: str) -> None:
        self.get(name)
        self._all[name].lost = True

    def latest(self, verb: str, target: str) -> Operation | None:
        """The newest of its kind, also when callers cannot see it any more."""
        found = [o for o in self._all.values() if (o.verb, o.target) == (verb, target)]
        return self._as_shown(found[-1]) if found else None

    def below(self, parent: str) -> list[Operation]:
        return [
            self._as_shown(operation)
            for name, operation in self._all.items()
            if name.startswith(f"{parent}/operations/") and not operation.lost
        ]

    def disturb(self, name: str, kind: str, seconds: float) -> None:
        """The operation that a call answered with goes wrong; the work that it stands for goes on."""
        operation = self._all.get(name)
        if operation is not None:
            operation.lost = kind == "operation-lost"
            operation.shown_after_s = {"operation-slow": seconds, "operation-never": math.inf}.get(kind, 0.0)

    def _as_shown(self, operation: Operation) -> Operation:
        """A copy that has not ended while its end is not yet to be seen."""
        now, ended = self._world.timeline.now, operation.ended
        if ended is None or now is None or now.since(ended) >= operation.shown_after_s:
            return operation
        return replace(operation, ended=None)


def finish(operation: Operation, now: Instant, kind: str = "", response: Json | None = None) -> None:
    if operation.ended is None:
        operation.ended, operation.response_type, operation.response = now, kind, response


def fail(operation: Operation, now: Instant, error: Json) -> None:
    if operation.ended is None:
        operation.ended, operation.error = now, error
