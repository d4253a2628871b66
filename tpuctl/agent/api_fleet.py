"""The cluster's calls: health, head, status, spec, pass, down, events."""

from __future__ import annotations

import asyncio

from aiohttp import web

import tpuctl
from tpuctl.agent.answers import BadRequestError, UnavailableError, json_body, takes, whole_number
from tpuctl.agent.documents import event_row, status_document
from tpuctl.agent.home import API_VERSION, Home
from tpuctl.agent.intake import begin_down, has_spec, put_spec, what_remains
from tpuctl.agent.passes import PLAN_LIMIT_S, Passes
from tpuctl.agent.picture import events_since, read_picture
from tpuctl.agent.sign_of_life import keep
from tpuctl.base.units import Instant
from tpuctl.store.events import EventFilter

MAX_WAIT_S = 3600.0
MAX_EVENTS = 10_000


def routes(home: Home, passes: Passes) -> list[web.RouteDef]:
    calls = FleetCalls(home, passes)
    return [
        web.get("/v1/health", calls.health),
        web.get("/v1/head", calls.head),
        web.get("/v1/status", calls.status),
        web.put("/v1/spec", calls.put_spec),
        web.post("/v1/pass", calls.run_pass),
        web.get("/v1/plan", calls.plan),
        web.post("/v1/down", calls.begin_down),
        web.get("/v1/down", calls.remaining),
        web.post("/v1/keep", calls.keep),
        web.get("/v1/events", calls.events),
    ]


class FleetCalls:
    def __init__(self, home: Home, passes: Passes) -> None:
        self._home = home
        self._passes = passes

    async def health(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"ok": True, "version": tpuctl.__version__, "api": API_VERSION})

    async def head(self, _: web.Request) -> web.StreamResponse:
        ray, me = self._home.scene.ray_head, self._home.identity
        known = await self._home.records.do(has_spec)
        return web.json_response(
            {
                "cluster": me.cluster,
                "epoch": me.epoch,
                "version": tpuctl.__version__,
                "api": API_VERSION,
                "has_spec": known,
                "ray": None if ray is None else ray.document(),
            }
        )

    async def status(self, _: web.Request) -> web.StreamResponse:
        home = self._home
        picture = await home.records.do(lambda store: read_picture(store, home.identity, home.scene))
        return web.json_response(status_document(picture, home.clock.now()))

    async def put_spec(self, request: web.Request) -> web.StreamResponse:
        body = await json_body(request, document=(dict, str), text=(str, type(None)), beyond_grant=(bool, type(None)))
        home, beyond = self._home, bool(body.get("beyond_grant"))
        answer = await home.records.do(
            lambda store: put_spec(
                store, body["document"], home.identity.cluster, home.clock.now(), beyond_grant=beyond
            )
        )
        if answer["changed"]:
            self._passes.ask("the spec changed")
        home.dispatch_bell.ring()
        return web.json_response(answer)

    @takes(MAX_WAIT_S + 30.0)
    async def run_pass(self, request: web.Request) -> web.StreamResponse:
        body = await json_body(request, wait=(bool, type(None)), timeout_s=(int, float, type(None)))
        limit_s = float(body.get("timeout_s") or 180.0)
        if not 0 < limit_s <= MAX_WAIT_S:
            raise BadRequestError(f"{request.path}: timeout_s={limit_s:g} is not between 0 and {MAX_WAIT_S:g}")
        if not body.get("wait"):
            self._passes.ask("asked for")
            return web.json_response({"exit": None, "summary": "asked for"})
        try:
            async with asyncio.timeout(limit_s):
                result = await self._passes.run("asked for")
        except TimeoutError as error:
            raise UnavailableError(
                f"no pass ended within {limit_s:g} s; it goes on without you", kind="timeout"
            ) from error
        return web.json_response({"exit": result.exit, "summary": result.summary})

    @takes(PLAN_LIMIT_S + 10.0)
    async def plan(self, _: web.Request) -> web.StreamResponse:
        try:
            return web.json_response(await self._passes.plan())
        except TimeoutError as error:
            raise UnavailableError(f"no plan within {PLAN_LIMIT_S:g} s", kind="timeout") from error

    async def begin_down(self, request: web.Request) -> web.StreamResponse:
        body = await json_body(request, wait_runs=(bool, type(None)), orphans=(bool, type(None)))
        home, wait_runs, orphans = self._home, bool(body.get("wait_runs")), bool(body.get("orphans"))
        await home.records.do(lambda store: begin_down(store, home.clock.now(), wait_runs=wait_runs, orphans=orphans))
        home.dispatch_bell.ring()
        self._passes.ask("down")
        return web.json_response({})

    async def remaining(self, _: web.Request) -> web.StreamResponse:
        return web.json_response(await self._home.records.do(what_remains))

    async def keep(self, _: web.Request) -> web.StreamResponse:
        home = self._home
        answer = await home.records.do(lambda store: keep(store, home.clock.now()))
        self._passes.ask("a sign of life")
        return web.json_response(answer)

    async def events(self, request: web.Request) -> web.StreamResponse:
        after = whole_number(request, "since", 0)
        limit = whole_number(request, "limit", MAX_EVENTS, least=1, most=MAX_EVENTS)
        query = request.query
        wanted = EventFilter(
            _instant(request, "from"), tuple(query.getall("kind", ())), query.get("subject", ""),
            self._home.identity.cluster,
        )  # fmt: skip
        rows = await self._home.records.do(lambda store: events_since(store, after, limit, wanted))
        return web.json_response({"events": [event_row(number, event) for number, event in rows]})


def _instant(request: web.Request, name: str) -> Instant | None:
    text = request.query.get(name)
    if not text:
        return None
    try:
        return Instant.parse(text)
    except ValueError as error:
        raise BadRequestError(f"{request.path}: {name}={text!r} is no time like 2026-12-01T10:00:00Z") from error
