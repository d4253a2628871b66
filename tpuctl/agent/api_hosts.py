"""POST `/v1/hosts/report`: what hosts tell of themselves: boot stages, and above all the notice of preemption."""

from __future__ import annotations

from aiohttp import web

from tpuctl.agent.answers import BadRequestError, json_body
from tpuctl.agent.home import Home
from tpuctl.agent.intake import HostReport, take_report
from tpuctl.base.ids import QrName

STAGES = ("booting", "joining", "joined", "notice", "refused", "left")
MAX_DETAIL = 2000


def routes(home: Home) -> list[web.RouteDef]:
    async def report(request: web.Request) -> web.StreamResponse:
        body = await json_body(request, incarnation=str, worker=int, boot_id=str, stage=str)
        if body["stage"] not in STAGES:
            raise BadRequestError(f"{request.path}: stage {body['stage']!r} is none of {', '.join(STAGES)}")
        told = HostReport(
            QrName(body["incarnation"]), body["worker"], body["stage"], str(body.get("detail") or "")[:MAX_DETAIL]
        )
        changed = await home.records.do(lambda store: take_report(store, told, home.clock.now()))
        if changed:
            home.dispatch_bell.ring()
        if told.stage in ("joined", "notice", "left"):
            home.ask_pass(f"{told.stage} from {told.incarnation}")
        return web.json_response({})

    return [web.post("/v1/hosts/report", report)]
