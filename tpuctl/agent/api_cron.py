"""`/v1/cron`: show, install and remove the line in the head's own crontab."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from tpuctl.agent.answers import UnavailableError, json_body
from tpuctl.agent.cron import EVERY, HeadCron
from tpuctl.agent.home import Home
from tpuctl.agent.sign_of_life import note_user
from tpuctl.cron.table import check_every
from tpuctl.store.database import Store


def routes(home: Home, cron: HeadCron | None) -> list[web.RouteDef]:
    def here() -> HeadCron:
        if cron is None:
            raise UnavailableError("this agent runs on no head: it has no crontab of its own")
        return cron

    async def wish(every: str) -> None:
        def work(store: Store) -> None:
            with store.transaction() as tx:
                tx.put_meta(EVERY, every)
                note_user(tx, home.clock.now())

        await home.records.do(work)

    async def answer(**more: Any) -> web.StreamResponse:
        return web.json_response({**await asyncio.to_thread(here().document), **more})

    async def show(_: web.Request) -> web.StreamResponse:
        return await answer()

    async def install(request: web.Request) -> web.StreamResponse:
        body = await json_body(request, every_min=int)
        check_every(body["every_min"])
        changed = await asyncio.to_thread(here().install, body["every_min"])
        await wish(str(body["every_min"]))
        return await answer(changed=changed)

    async def remove(_: web.Request) -> web.StreamResponse:
        await wish("")
        return await answer(changed=await asyncio.to_thread(here().remove))

    return [web.get("/v1/cron", show), web.put("/v1/cron", install), web.delete("/v1/cron", remove)]
