"""The runs' calls: submit, list, show, cancel, logs; and `why` for whatever has a name."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from tpuctl.agent.answers import json_body, whole_number
from tpuctl.agent.home import Home
from tpuctl.agent.intake import Submission, cancel, submit
from tpuctl.agent.logs import MAX_CHUNK_BYTES, read_chunk
from tpuctl.agent.picture import log_place, read_picture, run_document, runs_document
from tpuctl.agent.why import why_document

MAX_RANK = 100_000


def routes(home: Home) -> list[web.RouteDef]:
    calls = RunCalls(home)
    return [
        web.post("/v1/runs", calls.submit),
        web.get("/v1/runs", calls.list),
        web.get("/v1/runs/{name}", calls.show),
        web.post("/v1/runs/{name}/cancel", calls.cancel),
        web.get("/v1/runs/{name}/logs", calls.logs),
        web.get("/v1/why/{name}", calls.why),
    ]


class RunCalls:
    def __init__(self, home: Home) -> None:
        self._home = home

    async def submit(self, request: web.Request) -> web.StreamResponse:
        body = await json_body(request, spec=(dict, str), bundle=(str, type(None)), user=str, request_id=str)
        home = self._home
        wish = Submission(body["spec"], body.get("bundle") or "", body["user"][:100], body["request_id"])
        wish.check()
        run = await home.records.do(
            lambda store: submit(store, home.places, home.folders, wish, home.clock.now(), home.chance)
        )
        home.dispatch_bell.ring()
        return web.json_response({"name": run.name, "id": run.id})

    async def list(self, _: web.Request) -> web.StreamResponse:
        return web.json_response(await self._home.records.do(lambda store: runs_document(store, self._home.scene)))

    async def show(self, request: web.Request) -> web.StreamResponse:
        name, home = request.match_info["name"], self._home
        document = await home.records.do(lambda store: run_document(store, home.places, home.scene, name))
        return web.json_response(document)

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        name, home = request.match_info["name"], self._home
        state = await home.records.do(lambda store: cancel(store, name, home.clock.now(), by_user=True))
        home.dispatch_bell.ring()
        return web.json_response({"state": state.value})

    async def logs(self, request: web.Request) -> web.StreamResponse:
        attempt = whole_number(request, "attempt", 0)
        rank = whole_number(request, "rank", 0, most=MAX_RANK)
        offset = whole_number(request, "offset", 0)
        limit = whole_number(request, "limit", MAX_CHUNK_BYTES, least=1, most=MAX_CHUNK_BYTES)
        name, places = request.match_info["name"], self._home.places
        place = await self._home.records.do(lambda store: log_place(store, places, name, attempt, rank))
        chunk = await asyncio.to_thread(read_chunk, place.path, offset, limit, finished=place.finished)
        headers = {
            "X-Attempt": str(place.attempt),
            "X-Rank": str(rank),
            "X-Next-Offset": str(chunk.next_offset),
            "X-Complete": "true" if chunk.complete else "false",
        }
        return web.Response(body=chunk.data, headers=headers, content_type="application/octet-stream")

    async def why(self, request: web.Request) -> web.StreamResponse:
        name, home = request.match_info["name"], self._home

        def work(store: Any) -> dict[str, Any]:
            picture = read_picture(store, home.identity, home.scene, named=name)
            return why_document(picture, name, home.clock.now())

        return web.json_response(await home.records.do(work))
