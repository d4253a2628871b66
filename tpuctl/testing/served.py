"""The in-process cloud behind a real loopback port, still on virtual time: for programs that are not ours.

    with served(world.emulated, step_s=30) as url:
        subprocess.run(["gcloud", ...], env={"CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{url}/", ...})

Each call lets `step_s` pass before it is answered, so that programs that wait for operations see them end. While one is
open nothing else may touch the cloud: calls are served one at a time, on a thread of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from tpuctl.emulator.wire import Request
from tpuctl.testing.in_process import EmulatedCloud


@contextmanager
def served(emulated: EmulatedCloud, *, step_s: float) -> Iterator[str]:
    """Yields the URL, without a slash at its end."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            emulated.pass_time(step_s)
            response = emulated.exchange(Request.from_url(self.command, self.path, dict(self.headers), body), None)
            self.send_response(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            self.wfile.write(response.body)

        do_GET = do_POST = do_DELETE = do_PATCH = answer  # noqa: N815 -- as http.server wants them named

        def log_message(self, *_: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
