"""Cloud TPU v2 over REST, by Google's client: the one way to queued resources, of the service and of the emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import requests
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports.rest import TpuRestTransport
from requests.adapters import BaseAdapter

from tpuctl.base.clock import Clock
from tpuctl.base.ids import QrName, Zone
from tpuctl.cloud.access import account_of, credentials_for, scheme_and_host
from tpuctl.cloud.classify import Caller
from tpuctl.cloud.failures import cloud_call
from tpuctl.cloud.model import Listing, Node, QrRequest, QueuedResource
from tpuctl.cloud.retry import reading
from tpuctl.cloud.tpu_wire import create_request, node_of, queued_resource_of

T = TypeVar("T")

MAX_PAGES = 10_000  # a service that repeats a page token for ever ends here, as an error


class RestTpu:
    """TpuApi. Safe to use from several threads.

    The transport's own methods are called, not the client's: those wrap the answer in an operation object whose
    constructor reads the result, and which raises TypeError when a finished operation has a result of another type.
    Nothing here waits for operations: look at the resource.
    """

    def __init__(
        self,
        endpoint: str,
        project: str,
        clock: Clock,
        *,
        adapter: BaseAdapter | None = None,
        timeout_s: float = 20.0,
    ) -> None:
        """`adapter` is mounted for the endpoint: tests put an emulator in process behind the real client.

        Raises CredentialsError when an https endpoint finds no credentials.
        """
        scheme, host = scheme_and_host(endpoint)
        self._project, self._clock, self._timeout_s = project, clock, timeout_s
        with cloud_call(f"use {endpoint}"):
            credentials = credentials_for(endpoint)
            self._transport = TpuRestTransport(host=host, credentials=credentials, url_scheme=scheme)
        self._caller = Caller(project, account_of(credentials))
        session: requests.Session = self._transport._session  # noqa: SLF001  the client offers no other way in
        if scheme == "http":
            session.trust_env = False  # no proxy of the environment stands between us and this machine
        if adapter is not None:
            session.mount(f"{scheme}://{host}", adapter)

    def list_queued_resources(self, zone: Zone) -> Listing[QueuedResource]:
        what = f"list queued resources in {zone}"

        def page(token: str) -> Any:
            request = tpu_v2.ListQueuedResourcesRequest(parent=self._parent(zone), page_token=token)
            answer = self._transport.list_queued_resources(request, timeout=self._timeout_s)
            return tpu_v2.ListQueuedResourcesResponse.pb(answer)

        return self._listing(what, page, lambda raw: [queued_resource_of(item) for item in raw.queued_resources])

    def list_nodes(self, zone: Zone) -> Listing[Node]:
        what = f"list nodes in {zone}"

        def page(token: str) -> Any:
            request = tpu_v2.ListNodesRequest(parent=self._parent(zone), page_token=token)
            return tpu_v2.ListNodesResponse.pb(self._transport.list_nodes(request, timeout=self._timeout_s))

        return self._listing(what, page, lambda raw: [node_of(item) for item in raw.nodes])

    def get_queued_resource(self, zone: Zone, name: QrName) -> QueuedResource:
        request = tpu_v2.GetQueuedResourceRequest(name=self._qr(zone, name))
        answer = self._read(
            f"get queued resource {name!r} in {zone}",
            lambda: self._transport.get_queued_resource(request, timeout=self._timeout_s),
        )
        return queued_resource_of(tpu_v2.QueuedResource.pb(answer))

    def get_node(self, zone: Zone, node_id: str) -> Node:
        request = tpu_v2.GetNodeRequest(name=f"{self._parent(zone)}/nodes/{node_id}")
        answer = self._read(
            f"get node {node_id!r} in {zone}", lambda: self._transport.get_node(request, timeout=self._timeout_s)
        )
        return node_of(tpu_v2.Node.pb(answer))

    def create_queued_resource(self, request: QrRequest, request_id: str) -> None:
        message = create_request(self._project, request, request_id)
        with cloud_call(f"create queued resource {request.name!r} in {request.zone}", self._caller):
            self._transport.create_queued_resource(message, timeout=self._timeout_s)

    def delete_queued_resource(self, zone: Zone, name: QrName, request_id: str) -> None:
        request = tpu_v2.DeleteQueuedResourceRequest(name=self._qr(zone, name), request_id=request_id, force=True)
        with cloud_call(f"delete queued resource {name!r} in {zone}", self._caller):
            self._transport.delete_queued_resource(request, timeout=self._timeout_s)

    def _parent(self, zone: Zone) -> str:
        return f"projects/{self._project}/locations/{zone}"

    def _qr(self, zone: Zone, name: QrName) -> str:
        return f"{self._parent(zone)}/queuedResources/{name}"

    def _read(self, what: str, call: Callable[[], T]) -> T:
        def once() -> T:
            with cloud_call(what, self._caller):
                return call()

        return reading(once, self._clock)

    def _listing(self, what: str, page: Callable[[str], Any], items: Callable[[Any], list[T]]) -> Listing[T]:
        found: list[T] = []
        complete = True
        for raw in self._pages(what, page):
            found += items(raw)
            complete = complete and not raw.unreachable
        return Listing(tuple(found), complete)

    def _pages(self, what: str, page: Callable[[str], Any]) -> Iterator[Any]:
        token = ""
        for _ in range(MAX_PAGES):
            raw = self._read(what, partial(page, token))
            yield raw
            token = raw.next_page_token
            if not token:
                return
        with cloud_call(what):
            raise ValueError(f"more than {MAX_PAGES} pages")
