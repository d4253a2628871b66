"""The emulated cloud: one deterministic state machine. It has no clock, no thread and no socket.

The caller says what time it is; times must not run backwards. Same settings, seed, requests and times: same answers.
"""

from __future__ import annotations

from collections import deque

from tpuctl.base.units import Instant
from tpuctl.emulator.addresses import IN_PROCESS_NETWORK, Network
from tpuctl.emulator.calls import Call, CallRecord
from tpuctl.emulator.compute import ComputeApi
from tpuctl.emulator.events import GuestAttribute, VmBooted, VmEvent, VmReport
from tpuctl.emulator.faults import Faults, planted_error
from tpuctl.emulator.maintenance import Maintenances
from tpuctl.emulator.node_states import NodeStates
from tpuctl.emulator.preemption import Preemptions
from tpuctl.emulator.scenario import FaultRule, Override, Settings
from tpuctl.emulator.secret_manager import SecretManagerApi
from tpuctl.emulator.tpu_api import TpuApi
from tpuctl.emulator.tpu_maintenance_api import MaintenanceApi
from tpuctl.emulator.wire import Answer, Request, Response, ServiceError, delayed, json_response, numbered_enums
from tpuctl.emulator.world import KEPT, Shown, Transition, World

_BEFORE = ("error-before", "lost-before", "lost-late", "hang-before")


class Cloud:
    def __init__(self, settings: Settings, seed: int | None = None, network: Network = IN_PROCESS_NETWORK) -> None:
        """`seed` None: that of the settings. VMs get the addresses of `network` from .2 on."""
        self.world = World(settings, settings.seed if seed is None else seed, network)
        self.tpu = TpuApi(self.world)
        self.compute = ComputeApi(self.world)
        self.secrets = SecretManagerApi(self.world)
        self.faults = Faults(settings.faults, self.world.seed)
        self.preemptions = Preemptions(self.tpu.life)
        self.maintenances = Maintenances(self.tpu.life)
        self.node_states = NodeStates(self.tpu.life)
        self.tpu.add(MaintenanceApi(self.tpu.finder, self.tpu.operations, self.maintenances).verbs())
        self.calls: deque[CallRecord] = deque(maxlen=KEPT)
        self._now: Instant | None = None

    @property
    def history(self) -> tuple[Transition, ...]:
        """Every change of state of every resource, oldest first."""
        return tuple(self.world.history)

    def handle(self, now: Instant, request: Request, *, repeat: bool = False) -> Response:
        """Answer one call. `repeat`: the caller does again what an answer's `again_at` asked for."""
        now = self._reach(now)
        rule = None if repeat else self.faults.meet(request, self.world.age(now))
        if rule is not None and rule.kind in _BEFORE:
            answer = Answer({})
            response = self._disturbed(rule, json_response(200, {}), request)
            if rule.kind == "lost-late":
                self.world.later(now, rule.seconds, lambda at: self._lands(at, request, rule))
        else:
            if rule is not None and rule.kind == "grant-first":
                self._grant_first(now, request)
            answer, response = self._served(Call(now, request, rule))
            if rule is not None:
                self._disturb_operation(rule, str(answer.document.get("name", "")))
                response = self._disturbed(rule, response, request)
        if response.again_at is not None:
            return response
        self._log(now, request, rule, answer, response)
        return delayed(response, self.world.drawn(self.world.settings.latencies.call), lost=response.lost)

    def advance(self, now: Instant) -> tuple[VmEvent, ...]:
        """Let time pass, and take what the machines must do, in order. Each event is given out once."""
        self._reach(now)
        events = tuple(self.world.events)
        self.world.events.clear()
        return events

    def report(self, now: Instant, report: VmReport) -> None:
        """A machine tells something. What an unknown (ended) machine tells is passed over."""
        now = self._reach(now)
        for node in self.tpu.life.nodes.values():
            if report.name not in node.vms:
                continue
            if isinstance(report, VmBooted):
                self.tpu.life.booted(now, node, report.name)
            else:
                node.guest[node.vms.index(report.name), report.namespace, report.key] = report.value
            return
        if isinstance(report, GuestAttribute):
            self.compute.guest_attribute(report)

    def next_deadline(self) -> Instant | None:
        """When something happens next if nobody calls; None: never."""
        return self.world.timeline.next_deadline()

    def override(self, now: Instant, rule: Override) -> None:
        """From now on the resource shows these raw values."""
        now = self._reach(now)
        self.world.overrides.append(Shown(rule, None if rule.seconds is None else now.plus(rule.seconds)))

    def clear_overrides(self) -> None:
        self.world.overrides.clear()

    def _reach(self, now: Instant) -> Instant:
        # A wall clock may be set back a little while a service runs: the cloud's own time stands still meanwhile.
        self._now = now if self._now is None else max(self._now, now)
        if self.world.started is None:
            self.world.started = self._now
            for each in (self.preemptions, self.maintenances, self.node_states):
                each.begin(self._now)
            for rule in self.world.settings.overrides:
                self.override(self._now, rule)
        self.world.timeline.run_until(self._now)
        return self._now

    def _lands(self, now: Instant, request: Request, rule: FaultRule) -> None:
        """A call that its sender gave up long ago takes effect. It is logged once more, at this time."""
        answer, response = self._served(Call(now, request, rule))
        self._log(now, request, rule, answer, delayed(response, 0.0, lost=True))

    def _disturb_operation(self, rule: FaultRule, name: str) -> None:
        if rule.kind in ("operation-slow", "operation-never", "operation-lost"):
            self.tpu.operations.disturb(name, rule.kind, rule.seconds)
            self.compute.life.disturb(name, rule.kind, rule.seconds)

    def _grant_first(self, now: Instant, request: Request) -> None:
        record = self.tpu.life.queued.get(request.path.split("/", 2)[-1])
        if record is not None:
            self.tpu.life.rush(now, record)

    def _served(self, call: Call) -> tuple[Answer, Response]:
        service = next((s for s in (self.tpu, self.compute, self.secrets) if s.owns(call.request.path)), None)
        if service is None:
            text = f"The requested URL {call.request.path} was not found on this server."
            return Answer({}), ServiceError("NOT_FOUND", text).response()
        try:
            answer = service.handle(call)
        except ServiceError as error:
            return Answer({}), error.response()
        self.world.timeline.run_until(call.now)  # what the call planned for this very moment
        numbers = "enum-encoding=int" in call.request.query.get("$alt", "")
        response = json_response(200, numbered_enums(answer.document) if numbers else answer.document)
        if answer.again_at is not None:
            response = Response(503, {}, b"", again_at=answer.again_at)
        return answer, response

    def _disturbed(self, rule: FaultRule, response: Response, request: Request) -> Response:
        match rule.kind:
            case "error-before" | "error-after":
                return planted_error(rule, compute=self.compute.owns(request.path)).response()
            case "lost-before" | "lost-after" | "lost-late":
                return delayed(response, 0.0, lost=True)
            case "hang-before" | "hang-after":
                return delayed(response, rule.seconds, lost=True)
            case "slow":
                return delayed(response, rule.seconds)
            case _:
                return response  # the service itself looked at the rule, or its operations did

    def _log(self, now: Instant, request: Request, rule: FaultRule | None, answer: Answer, response: Response) -> None:
        record = CallRecord(
            at=now,
            method=request.method,
            path=request.path,
            query=dict(request.query),
            status=0 if response.lost else response.status,
            effect=answer.effect,
            resource=answer.resource,
            labels=dict(answer.labels),
            fault=rule.kind if rule else "",
        )
        self.calls.append(record)
