"""The control API below /emulator/v1/: what people and tests do to the emulated cloud. It wants the token."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any

from aiohttp import web

from tpuctl.base.errors import TpuctlError
from tpuctl.emulator.events import VmEvent, VmFreeze, VmKill, VmReset, VmThaw
from tpuctl.emulator.scenario import CapacityRule, FaultRule, Override, parse_part
from tpuctl.emulator.service import Service
from tpuctl.emulator.tpu_records import NodeRecord

PREFIX = "/emulator/v1"
Document = dict[str, Any]
Verb = Callable[[Document], Document]


class Control:
    """One method a verb: a JSON document in, one out. Raises TpuctlError with what is wrong (400)."""

    def __init__(self, service: Service, token: str, identity: Document) -> None:
        self._service = service
        self._cloud = service.cloud
        self._token = token
        self._identity = identity  # id, name, port, root, network: no secret

    def add_routes(self, application: web.Application) -> None:
        verbs: dict[str, Verb] = {
            "status": self.status, "preempt": self.preempt, "kill-host": self.kill_host,
            "freeze-host": self.freeze_host, "thaw-host": self.thaw_host, "reset-head": self.reset_head,
            "capacity": self.capacity,
            "set-capacity": self.set_capacity, "faults": self.faults, "add-fault": self.add_fault,
            "clear-faults": self.clear_faults, "override": self.override, "clear-overrides": self.clear_overrides,
            "calls": self.calls, "history": self.history, "stop": self.stop,
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
            "capacity": self._capacity_table(),
            "faults": [fault.document() for fault in self._cloud.faults.all()],
            "calls": len(self._cloud.calls),
        }  # fmt: skip

    def preempt(self, asked: Document) -> Document:
        """{node, notice_s?, shows?: PREEMPTED|TERMINATED|gone, lag_s?}"""
        node = self._node(asked)
        notice, shows = asked.get("notice_s"), asked.get("shows")
        if shows not in (None, "PREEMPTED", "TERMINATED", "gone"):
            raise TpuctlError(f"preempt: shows is {shows!r}; it is PREEMPTED, TERMINATED or gone")
        self._cloud.preemptions.preempt(
            self._service.clock.now(),
            node,
            notice_s=None if notice is None else float(notice),
            shows=shows,
            lag_s=float(asked.get("lag_s", 0)),
        )
        return {"node": node.name, "leaving": node.leaving}

    def kill_host(self, asked: Document) -> Document:
        """{node, worker}: all processes of one machine die; the cloud does not notice."""
        return self._to_host(asked, VmKill)

    def freeze_host(self, asked: Document) -> Document:
        return self._to_host(asked, VmFreeze)

    def thaw_host(self, asked: Document) -> Document:
        return self._to_host(asked, VmThaw)

    def reset_head(self, asked: Document) -> Document:
        """{instance}: a reboot of a Compute instance."""
        for instance in self._cloud.compute.life.instances.values():
            if instance.name == asked.get("instance") and instance.vm:
                self._cloud.world.events.append(VmReset(instance.vm))
                return {"vm": instance.vm}
        known = ", ".join(i.name for i in self._cloud.compute.life.instances.values()) or "none"
        raise TpuctlError(f"no running instance {asked.get('instance')!r}; instances: {known}")

    def capacity(self, _: Document) -> Document:
        return {"capacity": self._capacity_table()}

    def set_capacity(self, asked: Document) -> Document:
        """{zone, type, chips}: from now on; chips null is without limit."""
        rule = parse_part(CapacityRule, asked, "capacity")
        now, started = self._service.clock.now(), self._cloud.world.started
        self._cloud.tpu.life.capacity.set(rule.zone, rule.type, rule.chips, now.since(started) if started else 0.0)
        self._cloud.preemptions.capacity_changed(now)
        return {"capacity": self._capacity_table()}

    def faults(self, _: Document) -> Document:
        return {"faults": [fault.document() for fault in self._cloud.faults.all()]}

    def add_fault(self, asked: Document) -> Document:
        return self._cloud.faults.plant(parse_part(FaultRule, asked, "fault")).document()

    def clear_faults(self, asked: Document) -> Document:
        """{id?}: one, or all."""
        return {"removed": self._cloud.faults.remove(asked.get("id"))}

    def override(self, asked: Document) -> Document:
        rule = parse_part(Override, asked, "override")
        self._cloud.override(self._service.clock.now(), rule)
        return rule.model_dump(mode="json")

    def clear_overrides(self, _: Document) -> Document:
        self._cloud.clear_overrides()
        return {}

    def calls(self, _: Document) -> Document:
        return {"version": 1, "at": self._now(), "calls": [call.document() for call in self._cloud.calls]}

    def history(self, _: Document) -> Document:
        return {"version": 1, "at": self._now(), "history": [change.document() for change in self._cloud.history]}

    def stop(self, _: Document) -> Document:
        self._service.stop()
        return {}

    def _now(self) -> str:
        return self._service.clock.now().iso()

    def _capacity_table(self) -> list[dict[str, object]]:
        started = self._cloud.world.started
        age_s = self._service.clock.now().since(started) if started else 0.0
        return self._cloud.tpu.life.capacity.table(age_s)

    def _node(self, asked: Document) -> NodeRecord:
        nodes = self._cloud.tpu.life.nodes
        found = [node for name, node in nodes.items() if asked.get("node") in (name, node.node_id)]
        if len(found) == 1:
            return found[0]
        if found:
            raise TpuctlError(
                f"node {asked.get('node')!r} is in several zones; name one of: {', '.join(n.name for n in found)}"
            )
        known = ", ".join(node.node_id for node in nodes.values()) or "none"
        raise TpuctlError(f"there is no node {asked.get('node')!r}; nodes: {known}")

    def _to_host(self, asked: Document, make: Callable[[str], VmEvent]) -> Document:
        node, worker = self._node(asked), int(asked.get("worker", 0))
        if not node.running:
            raise TpuctlError(f"node {node.node_id!r} is {node.state}: its machines do not run")
        if not 0 <= worker < len(node.vms):
            raise TpuctlError(f"node {node.node_id!r} has {len(node.vms)} machine(s); there is no worker {worker}")
        self._cloud.world.events.append(make(node.vms[worker]))
        return {"vm": node.vms[worker]}
