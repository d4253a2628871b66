"""The agent's HTTP service: which path goes to which handler, and on which address it listens.

It listens on the head's own internal address alone, never on all: whoever can reach it there and holds the cluster's
secret may do everything (README, trust boundary).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable

from aiohttp import web

from tpuctl.agent import api_bundles, api_cron, api_fleet, api_hosts, api_runs
from tpuctl.agent.answers import MAX_BODY_BYTES, errors_as_json
from tpuctl.agent.auth import guard
from tpuctl.agent.cron import HeadCron
from tpuctl.agent.home import Home
from tpuctl.agent.passes import Passes
from tpuctl.base.errors import UserError
from tpuctl.head.silence import PASS_AGE_HEADER


def build_service(home: Home, passes: Passes, secret: str, cron: HeadCron | None = None) -> web.Application:
    # Errors are outermost: what the guard refuses is answered in the same form.
    app = web.Application(middlewares=[errors_as_json, guard(secret)], client_max_size=MAX_BODY_BYTES)
    app.on_response_prepare.append(_tell_pass_age(home))
    app.add_routes(api_fleet.routes(home, passes))
    app.add_routes(api_runs.routes(home))
    app.add_routes(api_bundles.routes(home))
    app.add_routes(api_hosts.routes(home))
    app.add_routes(api_cron.routes(home, cron))
    return app


def _tell_pass_age(home: Home) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Every answer says how long ago the last pass was, so that a command can warn without asking (head/silence.py)."""

    async def tell(_: web.Request, response: web.StreamResponse) -> None:
        if home.scene.last_pass is not None:
            age_s = max(0.0, home.clock.now().since(home.scene.last_pass))
            response.headers[PASS_AGE_HEADER] = str(int(age_s))

    return tell


async def listen(app: web.Application, address: str, port: int) -> web.AppRunner:
    """Serve until the runner is cleaned up. Raises UserError for an address that would mean "every interface"."""
    if ipaddress.ip_address(address).is_unspecified:
        raise UserError(f"the agent does not listen on {address}: it must be one address of this machine")
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=75.0)
    await runner.setup()
    await web.TCPSite(runner, address, port, backlog=128).start()
    return runner
