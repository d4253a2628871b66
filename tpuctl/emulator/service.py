"""The core behind a loopback port: answers calls, lets the wall clock pass, hands events to the machines."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from aiohttp import web

from tpuctl.base.clock import Clock
from tpuctl.base.errors import TpuctlError
from tpuctl.emulator.cloud import Cloud
from tpuctl.emulator.events import VmEvent, VmReport
from tpuctl.emulator.wire import Request, Response

TICK_S = 0.05
_MAX_BODY = 4 << 20
_MAX_WAIT_S = 110.0


class Machines(Protocol):
    """What carries out the core's events. It reports back through the callable that it was built with."""

    async def start(self) -> None: ...

    async def carry_out(self, events: Sequence[VmEvent]) -> None:
        """In their order."""
        ...

    async def stop(self) -> None:
        """End every machine."""
        ...


class NoMachines:
    """The core's machines boot by themselves; there is nothing to carry out."""

    async def start(self) -> None:
        return

    async def carry_out(self, events: Sequence[VmEvent]) -> None:  # noqa: ARG002 -- nothing to do
        return

    async def stop(self) -> None:
        return


class Service:
    """Serves until `stop()`. All of it runs in one event loop, so the core needs no lock."""

    def __init__(self, cloud: Cloud, clock: Clock, log: Callable[[str], None]) -> None:
        self.cloud = cloud
        self.clock = clock
        self.stopping = asyncio.Event()
        self._log = log
        self._pending: asyncio.Queue[Sequence[VmEvent]] = asyncio.Queue()

    def report(self, report: VmReport) -> None:
        """Called by machines, in this event loop."""
        self.cloud.report(self.clock.now(), report)

    def app(self, add_routes: Callable[[web.Application], None]) -> web.Application:
        """`add_routes` brings the control API; every other path belongs to the cloud."""
        application = web.Application(client_max_size=_MAX_BODY, middlewares=[_only_from_here])
        add_routes(application)
        application.router.add_route("*", "/{path:.*}", self._cloud_call)
        return application

    async def run(self, machines: Machines) -> None:
        """Let time pass and carry out what follows, until `stop()`; then end the machines."""
        await machines.start()
        carrier = asyncio.create_task(self._carry(machines))
        try:
            while not self.stopping.is_set():
                events = self.cloud.advance(self.clock.now())
                if events:
                    self._pending.put_nowait(events)
                await self._pause(TICK_S)
                if carrier.done():
                    carrier.result()  # machines that cannot be carried out end the service, with the reason
        finally:
            carrier.cancel()
            await asyncio.gather(carrier, return_exceptions=True)
            await machines.stop()

    def stop(self) -> None:
        self.stopping.set()

    async def _carry(self, machines: Machines) -> None:
        """A task of its own: starting processes takes a while and must not hold up the clock."""
        while True:
            events = await self._pending.get()
            for event in events:
                self._log(_line(event))
            try:
                await machines.carry_out(events)
            except TpuctlError as error:
                # One machine's failure must not end the cloud of all others: its callers see a host that is not up.
                self._log(f"failed: {error}")

    async def _pause(self, seconds: float) -> None:
        """Ends early when the service stops: no hanging call holds that up."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)

    async def _cloud_call(self, request: web.Request) -> web.StreamResponse:
        asked = Request.from_url(request.method, str(request.rel_url), dict(request.headers), await request.read())
        response = self.cloud.handle(self.clock.now(), asked)
        waited_s = 0.0
        while response.again_at is not None and waited_s < _MAX_WAIT_S and not self.stopping.is_set():
            pause_s = max(TICK_S, response.again_at.since(self.clock.now()))
            waited_s += pause_s
            await self._pause(pause_s)
            response = self.cloud.handle(self.clock.now(), asked, repeat=True)
        if response.delay_s:
            await self._pause(response.delay_s)
        if response.lost:
            return _hang_up(request)
        return _written(response)


def _line(event: VmEvent) -> str:
    name = event.vm.name if hasattr(event, "vm") else event.name
    return f"{type(event).__name__} {name}"


def _written(response: Response) -> web.Response:
    return web.Response(status=response.status, headers=dict(response.headers), body=response.body)


def _hang_up(request: web.Request) -> web.StreamResponse:
    """The connection ends without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=503)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _only_from_here(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A web page in the user's browser can reach a loopback port: foreign names and any page's origin are refused."""
    if "Origin" in request.headers or not is_local_host(request.headers.get("Host", "")):
        return web.json_response(
            {
                "error": {
                    "code": 403,
                    "message": "only programs of this machine may call the emulator",
                    "status": "PERMISSION_DENIED",
                }
            },
            status=403,
        )
    return await handler(request)


def is_local_host(host: str) -> bool:
    """True for `localhost` and for addresses of 127/8, with or without a port."""
    name = host.rsplit(":", 1)[0] if host.count(":") == 1 else host
    if name == "localhost":
        return True
    try:
        return ipaddress.IPv4Address(name).is_loopback
    except ipaddress.AddressValueError:
        return False
