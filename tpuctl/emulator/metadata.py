"""The metadata server of one emulated machine, as `http://metadata.google.internal/computeMetadata/v1/` of a real one.

Served by the emulator's event loop on the machine's own address. Keys and manners: Compute Engine documentation,
"About VM metadata" and "Predefined metadata keys"; of the service account only what client libraries ask for.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from tpuctl.base.errors import TpuctlError
from tpuctl.emulator.events import GuestAttribute, VmDescription

PORTS = (80, 8780)  # the first that this user may bind on the machine's address
ROOT = "/computeMetadata/v1"
FLAVOR = {"Metadata-Flavor": "Google", "Server": "Metadata Server for VM"}
VERBATIM = ("attributes", "guestAttributes")  # below these, keys are the user's own and are never respelled
UPCOMING = "instance/upcoming-maintenance"
NOTHING_COMING = "no notifications have been received yet, try again later"
MAX_VALUE_BYTES = 262_144
PROJECT_NUMBER = 100_000_000_001  # of every project here, also in the tpu-env that the state machine writes
SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]


class MetadataServer:
    """`start` binds it, `hold` and `release` play a frozen machine, `stop` ends it without a word to its clients."""

    def __init__(self, vm: VmDescription, report: Callable[[GuestAttribute], None]) -> None:
        self.port = 0
        self.waiting = 0  # requests that wait for a change
        self._vm = vm
        self._report = report
        self._preempted = False
        self._maintenance = "NONE"
        self._upcoming: Mapping[str, str] | None = None
        self._guest: dict[str, dict[str, str]] = {}
        self._changed = asyncio.Event()
        self._answering = asyncio.Event()
        self._answering.set()
        self._runner: web.AppRunner | None = None

    @property
    def host(self) -> str:
        """`address:port`, the value of GCE_METADATA_HOST."""
        return f"{self._vm.address}:{self.port}"

    async def start(self) -> None:
        """Serve. Raises TpuctlError when neither port can be had."""
        if self._runner is not None:
            return
        app = web.Application(client_max_size=MAX_VALUE_BYTES, middlewares=[self._manners])
        app.router.add_get("/", self._ping)
        app.router.add_get(ROOT + "/{path:.*}", self._get)
        app.router.add_route("PUT", ROOT + "/instance/guest-attributes/{namespace}/{key}", self._put)
        app.router.add_route("DELETE", ROOT + "/instance/guest-attributes/{namespace}/{key}", self._delete)
        # A client that hangs up ends its wait_for_change: each restart of a watcher would leave one behind otherwise.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05)
        await self._runner.setup()
        ports = (self.port,) if self.port else PORTS  # after a reset: what the machine's programs were told
        for port in ports:
            try:
                await web.TCPSite(self._runner, self._vm.address, port).start()
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EADDRINUSE) or port == ports[-1]:
                    await self.stop()
                    raise TpuctlError(
                        f"metadata server of {self._vm.name!r}: cannot serve on {self._vm.address}: {error}"
                    ) from error
            else:
                self.port = port
                return

    async def stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            self._answering.set()
            await runner.cleanup()

    def hold(self) -> None:
        """Take requests and answer none, until `release`."""
        self._answering.clear()

    def release(self) -> None:
        self._answering.set()

    def set_preempted(self, *, preempted: bool) -> None:
        self._preempted = preempted
        self._wake()

    def set_maintenance(self, event: str, upcoming: Mapping[str, str] | None) -> None:
        self._maintenance, self._upcoming = event, upcoming
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    @web.middleware
    async def _manners(self, request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        await self._answering.wait()
        if "X-Forwarded-For" in request.headers:
            return refusal(403, "Your client does not have permission: X-Forwarded-For is not allowed.")
        if request.path != "/" and request.headers.get("Metadata-Flavor") != "Google":
            return refusal(403, "Missing Metadata-Flavor:Google header.")
        try:
            response: web.StreamResponse = await handler(request)
        except web.HTTPException as error:
            response = refusal(error.status, error.reason)
        await self._answering.wait()  # frozen meanwhile
        return response

    async def _ping(self, _request: web.Request) -> web.Response:
        return web.Response(text="computeMetadata/\n", headers=FLAVOR)

    async def _get(self, request: web.Request) -> web.Response:
        path, query = request.match_info["path"], request.query
        if path.startswith("instance/service-accounts/") and path.endswith("/token"):
            return web.json_response(self._token(), headers=FLAVOR)
        found = lookup(self.tree(), path)
        if found is None:
            return refusal(404, f"The requested URL {request.path} was not found on this server.")
        whole = path.strip("/") == UPCOMING  # a document of its own, not a directory
        recursive = whole or query.get("recursive", "").lower() in ("true", "1")
        if isinstance(found, dict) and path and not path.endswith("/") and not whole:
            headers = {**FLAVOR, "Location": str(request.rel_url.with_path(request.path + "/").with_query(query))}
            return web.Response(status=301, headers=headers)
        if query.get("wait_for_change", "").lower() in ("true", "1"):
            try:
                limit_s = float(query["timeout_sec"]) if "timeout_sec" in query else None
            except ValueError:
                return refusal(400, "Invalid value for timeout_sec.")
            await self._wait(path, recursive, query.get("alt", ""), query.get("last_etag"), limit_s)
        body, content_type = render(lookup(self.tree(), path), recursive, query.get("alt", ""))
        return web.Response(text=body, content_type=content_type, headers={**FLAVOR, "ETag": etag_of(body)})

    async def _wait(self, path: str, recursive: bool, alt: str, last_etag: str | None, limit_s: float | None) -> None:
        """Until the answer's ETag is another one than `last_etag` (or than now), or the time is over."""

        def current() -> str:
            return etag_of(render(lookup(self.tree(), path), recursive, alt)[0])

        last = current() if last_etag is None else last_etag
        self.waiting += 1
        try:
            async with asyncio.timeout(limit_s):
                while current() == last:
                    await self._changed.wait()
        except TimeoutError:
            return
        finally:
            self.waiting -= 1

    async def _put(self, request: web.Request) -> web.Response:
        attributes = self._vm.attributes
        # Cloud TPU switches them on for its machines (host keys arrive through them); an instance's owner has to.
        if "agent-worker-number" not in attributes and attributes.get("enable-guest-attributes", "").upper() != "TRUE":
            return refusal(403, "Guest attributes endpoint access is disabled.")
        namespace, key = request.match_info["namespace"], request.match_info["key"]
        value = await request.text()
        self._guest.setdefault(namespace, {})[key] = value
        self._wake()
        self._report(GuestAttribute(self._vm.name, namespace, key, value))
        return web.Response(headers=FLAVOR)

    async def _delete(self, request: web.Request) -> web.Response:
        namespace = self._guest.get(request.match_info["namespace"], {})
        if namespace.pop(request.match_info["key"], None) is None:
            return refusal(404, "no such guest attribute")
        self._wake()
        return web.Response(headers=FLAVOR)

    def _token(self) -> dict[str, Any]:
        token = f"ya29.emulated-{self._vm.numeric_id}"  # not a secret: the emulated services ask for none
        return {"access_token": token, "expires_in": 3599, "token_type": "Bearer"}

    def tree(self) -> dict[str, Any]:
        vm = self._vm
        email = f"{PROJECT_NUMBER}-compute@developer.gserviceaccount.com"
        account = {"aliases": ["default"], "email": email, "scopes": SCOPES}
        return {
            "instance": {
                "attributes": dict(vm.attributes),
                "guest-attributes": self._guest,
                "hostname": f"{vm.name}.{vm.zone}.c.{vm.project}.internal",
                "id": vm.numeric_id,
                "maintenance-event": self._maintenance,
                "name": vm.name,
                "network-interfaces": {"0": {"ip": vm.address}},
                "preempted": "TRUE" if self._preempted else "FALSE",
                "scheduling": {"preemptible": "TRUE" if vm.preemptible else "FALSE"},
                "service-accounts": {"default": account, email: account},
                "upcoming-maintenance": dict(self._upcoming) if self._upcoming else {"error": NOTHING_COMING},
                "zone": f"projects/{PROJECT_NUMBER}/zones/{vm.zone}",
            },
            "project": {"attributes": {}, "numeric-project-id": PROJECT_NUMBER, "project-id": vm.project},
            "universe": {"universe-domain": "googleapis.com"},
        }


def refusal(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text + "\n", headers=FLAVOR)


def lookup(tree: Mapping[str, Any], path: str) -> Any | None:
    node: Any = tree
    for part in path.strip("/").split("/") if path.strip("/") else []:
        if not isinstance(node, dict) or part not in node:
            return None
        node = node[part]
    return node


def etag_of(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]


def render(node: Any, recursive: bool, alt: str) -> tuple[str, str]:
    """Body and content type of a node: a value as text, a directory as its listing, or all below it."""
    if isinstance(node, dict) and not recursive:
        names = [f"{name}/" if isinstance(value, dict) else name for name, value in node.items()]
        return ("".join(f"{name}\n" for name in names), "application/text")
    if alt == "json" or (isinstance(node, dict) and alt != "text"):
        return (json.dumps(respell(node), separators=(",", ":")), "application/json")
    if isinstance(node, dict):
        return ("".join(f"{path} {value}\n" for path, value in flatten(node)), "application/text")
    return ("\n".join(node) if isinstance(node, list) else str(node), "application/text")


def flatten(node: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in node.items():
        if isinstance(value, dict):
            found += flatten(value, f"{prefix}{name}/")
        else:
            found.append((prefix + name, ",".join(value) if isinstance(value, list) else str(value)))
    return found


def respell(node: Any) -> Any:
    """Names as the JSON form has them: camel case, numbered directories as lists."""
    if not isinstance(node, dict):
        return node
    if node and all(name.isdigit() for name in node):
        return [respell(value) for value in node.values()]
    spelled = {}
    for name, value in node.items():
        head, *rest = name.split("-")
        camel = name if "@" in name else head + "".join(part.capitalize() for part in rest)
        spelled[camel] = value if camel in VERBATIM else respell(value)
    return spelled
