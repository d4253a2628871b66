"""PUT, GET and HEAD of `/v1/bundles/<sha256>`: clients bring working directories, launchers fetch them."""

from __future__ import annotations

from aiohttp import web

from tpuctl.agent.answers import MissingError, takes
from tpuctl.agent.bundles import Bundles
from tpuctl.agent.home import Home

TRANSFER_LIMIT_S = 900.0  # 256 MiB at 300 kB/s
_CHUNK_BYTES = 256 * 1024


def routes(home: Home) -> list[web.RouteDef]:
    bundles = Bundles(home.places.bundles)

    @takes(TRANSFER_LIMIT_S)
    async def put(request: web.Request) -> web.StreamResponse:
        digest = request.match_info["digest"]
        chunks = request.content.iter_chunked(_CHUNK_BYTES)
        size = await bundles.receive(digest, chunks, request.content_length)
        return web.json_response({"digest": digest, "bytes": size})

    @takes(TRANSFER_LIMIT_S)
    async def get(request: web.Request) -> web.StreamResponse:
        digest = request.match_info["digest"]
        if not bundles.has(digest):
            raise MissingError(f"no bundle {digest[:12]}… here: submit the run again, its client sends the archive")
        return web.FileResponse(bundles.path(digest), headers={"Content-Type": "application/octet-stream"})

    return [web.put("/v1/bundles/{digest}", put), web.get("/v1/bundles/{digest}", get)]
