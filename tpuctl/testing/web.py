"""A tiny HTTP server with scripted answers, on a loopback address, for tests of plain HTTP clients."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Asked:
    method: str
    path: str  # with the query
    headers: dict[str, str]  # names in lower case
    body: bytes

    def document(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """What to answer: a document becomes JSON, text and bytes go as they are."""

    body: Any = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    def raw(self) -> bytes:
        match self.body:
            case bytes():
                return self.body
            case str():
                return self.body.encode()
            case _:
                return json.dumps(self.body).encode()


class ScriptedServer:
    """`answer` is called in a thread for each request; `asked` keeps them all, in order."""

    def __init__(self, answer: Callable[[Asked], Reply], address: str = "127.0.0.1", port: int = 0) -> None:
        self.asked: list[Asked] = []
        script = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Asked(self.command, self.path, headers, self.rfile.read(length))
                script.asked.append(request)
                reply = answer(request)
                body = reply.raw()
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                # A client that was killed, or has waited long enough, is not there to read it.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 (the names http.server looks for)

            def log_message(self, *_: Any) -> None:
                """Tests read `asked`; nothing goes to stderr."""

        self._server = ThreadingHTTPServer((address, port), Handler)
        self._server.daemon_threads = True
        # A short poll: shutdown() waits for one, and each test would pay for it.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def host(self) -> str:
        address, port = self._server.server_address[:2]
        return f"{address!s}:{port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> ScriptedServer:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()
