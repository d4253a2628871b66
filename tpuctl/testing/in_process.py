"""The emulated cloud under Google's real clients, without a socket and on virtual time.

    clock = FakeClock()
    emulated = EmulatedCloud(clock, Settings(latencies=Latencies(provisioning=60)))
    tpu = RestTpu(EmulatedCloud.ENDPOINT, "lab", clock, adapter=emulated.adapter())
    compute = RestCompute(EmulatedCloud.ENDPOINT, "lab", clock, http=emulated.http())
    tpu.create_queued_resource(...)
    emulated.pass_time(120)          # whatever is due in two minutes has happened

Calls go through the clients' own code down to the last layer: real URLs, real JSON, real error classes. A call takes no
virtual time, unless a planted fault makes it: then the clock moves by the delay or by the caller's timeout, whichever
is shorter, and the caller sees what requests or httplib2 would raise.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import httplib2
import requests
from requests.adapters import BaseAdapter

from tpuctl.emulator.cloud import Cloud
from tpuctl.emulator.events import VmEvent
from tpuctl.emulator.scenario import FaultRule, Settings
from tpuctl.emulator.wire import Request, Response
from tpuctl.testing.clock import FakeClock


class NoAnswerError(Exception):
    """The connection ended before an answer came."""


class NotInTimeError(Exception):
    """The caller's patience ended first."""


class EmulatedCloud:
    """`events` collects what machines would have to do; VMs boot by themselves after `latencies.boot`."""

    ENDPOINT = "http://emulated.invalid"

    def __init__(self, clock: FakeClock, settings: Settings | None = None, seed: int | None = None) -> None:
        self.clock = clock
        self.cloud = Cloud(settings or Settings(), seed)
        self.events: list[VmEvent] = []
        self._catch_up()

    def adapter(self) -> BaseAdapter:
        """For `requests` sessions, such as that of google-cloud-tpu's REST transport."""
        return _Adapter(self)

    def http(self) -> _Http:
        """In place of an `httplib2.Http`, for googleapiclient."""
        return _Http(self)

    def plant(self, kind: str, **rule: Any) -> None:
        """A fault on coming calls, e.g. `plant("lost-after", method="POST", path="queuedResources")`."""
        self.cloud.faults.plant(FaultRule.model_validate({"kind": kind, **rule}))

    def fired(self) -> int:
        """How many planted faults have happened."""
        return sum(fault.fired for fault in self.cloud.faults.all())

    def pass_time(self, seconds: float) -> None:
        """Time passes, and what falls due in it happens at its own time."""
        self.clock.advance(seconds)
        self._catch_up()

    def run_dry(self, limit_s: float = 86_400.0) -> None:
        """Jump from deadline to deadline until nothing is planned any more, or until the limit."""
        end = self.clock.now().plus(limit_s)
        while (due := self.cloud.next_deadline()) is not None and due <= end:
            self.pass_time(max(0.0, due.since(self.clock.now())))

    def exchange(self, request: Request, timeout_s: float | None) -> Response:
        """One call with its delays. Raises NoAnswerError, NotInTimeError."""
        patience_s = float("inf") if timeout_s is None else timeout_s
        response = self.cloud.handle(self.clock.now(), request)
        while response.again_at is not None:
            patience_s = self._wait(response.again_at.since(self.clock.now()), patience_s)
            response = self.cloud.handle(self.clock.now(), request, repeat=True)
        self._wait(response.delay_s, patience_s)
        if response.lost:
            raise NoAnswerError(f"{request.method} {request.path}")
        return response

    def _wait(self, seconds: float, patience_s: float) -> float:
        """Returns the patience that is left."""
        if seconds > patience_s:
            self.pass_time(patience_s)
            raise NotInTimeError(f"no answer within {patience_s:g}s")
        if seconds > 0:
            self.pass_time(seconds)
        return patience_s - seconds

    def _catch_up(self) -> None:
        self.events += self.cloud.advance(self.clock.now())


class _Adapter(BaseAdapter):
    def __init__(self, emulated: EmulatedCloud) -> None:
        super().__init__()
        self._emulated = emulated

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: float | tuple[float, float] | tuple[float, None] | None = None,
        verify: bool | str = True,
        cert: bytes | str | tuple[bytes | str, bytes | str] | None = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        del stream, verify, cert, proxies  # of a connection, which there is none
        body = request.body or b""
        asked = Request.from_url(
            request.method or "GET",
            request.url or "",
            dict(request.headers),
            body.encode() if isinstance(body, str) else bytes(body),
        )
        try:
            answer = self._emulated.exchange(asked, timeout[1] if isinstance(timeout, tuple) else timeout)
        except NoAnswerError as error:
            raise requests.exceptions.ConnectionError(str(error), request=request) from error
        except NotInTimeError as error:
            raise requests.exceptions.ReadTimeout(str(error), request=request) from error
        response = requests.Response()
        response.status_code = answer.status
        response.headers.update(answer.headers)
        response.raw = io.BytesIO(answer.body)
        response.url = request.url or ""
        response.request = request
        return response

    def close(self) -> None:
        return


class _Http:
    """The one method of httplib2.Http that googleapiclient uses, and its timeout."""

    def __init__(self, emulated: EmulatedCloud, timeout: float | None = 60.0) -> None:
        self._emulated = emulated
        self.timeout = timeout

    def request(
        self,
        uri: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        redirections: int = 5,
        connection_type: object = None,
    ) -> tuple[httplib2.Response, bytes]:
        del redirections, connection_type
        data = body.encode() if isinstance(body, str) else body or b""
        try:
            answer = self._emulated.exchange(Request.from_url(method, uri, dict(headers or {}), data), self.timeout)
        except NoAnswerError as error:
            raise ConnectionResetError(str(error)) from error
        except NotInTimeError as error:
            raise TimeoutError(str(error)) from error
        fields = {name.lower(): value for name, value in answer.headers.items()}
        return httplib2.Response({**fields, "status": str(answer.status)}), answer.body

    def close(self) -> None:
        return
