"""The control API below /emulator/v1/: what people and tests do to the emulated cloud. It wants the token."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any

from aiohttp import web

from tpuctl.base.errors import TpuctlError
from tpuctl.emulator.control_limits import Limits
from tpuctl.emulator.control_rules import Rules
from tpuctl.emulator.control_slices import Slices
from tpuctl.emulator.service import Service

PREFIX = "/emulator/v1"
Document = dict[str, Any]
Verb = Callable[[Document], Document]


class Control:
    """One method a verb: a JSON document in, one out. Raises TpuctlError with what is wrong (400)."""

    def __init__(self, service: Service, token: str, identity: Document) -> None:
        self._service = service
        self._cloud = service.cloud
        self._slices = Slices(service)
        self._rules = Rules(service)
        self._limits = Limits(service)
        self._token = token
        self._identity = identity  # id, name, port, root, network: no secret

    def add_routes(self, application: web.Application) -> None:
        verbs: dict[str, Verb] = {
            "status": self.status, "calls": self.calls, "history": self.history, "stop": self.stop,
            **self._slices.verbs(), **self._rules.verbs(), **self._limits.verbs(),
        }  # fmt: skip
        for name, verb in verbs.items():
            application.router.add_post(f"{PREFIX}/{name}", self._guarded(verb))

    def _guarded(self, verb: Verb) -> Callable[[web.Request], Any]:
        async def handler(request: web.Request) -> web.Response:
            given = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(), self._token.encode()):
                return web.json_response({"error": {"message": "wrong token; it is in the state file"}}, status=401)
            try:
                document = await request.json() if request.can_read_body else {}
                return web.json_response(verb(document))
            except (TpuctlError, ValueError) as error:
                return web.json_response({"error": {"message": str(error)}}, status=400)

        return handler

    def status(self, _: Document) -> Document:
        now = self._service.clock.now()
        life, compute = self._cloud.tpu.life, self._cloud.compute.life
        started = self._cloud.world.started
        return {
            "version": 1,
            "at": now.iso(),
            **self._identity,
            "started_at": started.iso() if started else now.iso(),
            "queued_resources": [
                {
                    "name": record.name, "zone": record.zone, "state": record.state.value,
                    "accelerator": record.asked.accelerator.name, "created": record.created.iso(),
                }
                for record in life.queued.values()
            ],
            "nodes": [
                {
                    "name": node.name, "node": node.node_id, "zone": node.zone, "state": node.state,
                    "accelerator": node.accelerator.name, "hosts": node.accelerator.hosts, "booted": len(node.booted),
                    "addresses": list(node.addresses), "vms": list(node.vms), "leaving": node.leaving,
                    "health": node.document().get("health"), "upcoming_maintenance": node.upcoming,
                }
                for node in life.nodes.values()
            ],
            "instances": [
                {
                    "name": instance.name, "zone": instance.zone, "status": instance.status,
                    "address": instance.address, "vm": instance.vm,
                }
                for instance in compute.instances.values()
            ],
            **self._rules.in_force(),
            "calls": len(self._cloud.calls),
        }  # fmt: skip

    def calls(self, _: Document) -> Document:
        return {"version": 1, "at": self._now(), "calls": [call.document() for call in self._cloud.calls]}

    def history(self, _: Document) -> Document:
        return {"version": 1, "at": self._now(), "history": [change.document() for change in self._cloud.history]}

    def stop(self, _: Document) -> Document:
        self._service.stop()
        return {}

    def _now(self) -> str:
        return self._service.clock.now().iso()
