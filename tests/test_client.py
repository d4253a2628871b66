"""AgentClient against a real HTTP server on the loopback address: every call, every refusal, every way to fail."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tpuctl.base.errors import RetryLaterError, UserError
from tpuctl.client import (
    AgentBadRequestError,
    AgentClient,
    AgentConflictError,
    AgentNotFoundError,
    AgentNotReadyError,
    AgentRefusedError,
    AgentUnauthorizedError,
    AgentUnreachableError,
    LogChunk,
)

Reply = tuple[int, dict[str, str], bytes]


class Agent:
    """Keeps what it heard; `reply` is what it says next."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, str, bytes]] = []  # method, path, authorization, body
        self.reply: Callable[[str], Reply] = lambda _: (200, {}, b"{}")
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                agent.heard.append((self.command, self.path, self.headers.get("Authorization", ""), body))
                status, headers, data = agent.reply(self.headers.get("Authorization", ""))
                self.send_response(status)
                for name, text in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, text)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_HEAD = answer  # noqa: N815  http.server's names

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"

    def says(self, status: int, document: Any, **headers: str) -> None:
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.reply = lambda _: (status, headers, data)

    def refuses(self, status: int, kind: str = "k", message: str = "m") -> None:
        self.says(status, {"error": {"kind": kind, "message": message}})


@pytest.fixture
def agent() -> Iterator[Agent]:
    started = Agent()
    thread = threading.Thread(target=started.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield started
    started.server.shutdown()
    thread.join()
    started.server.server_close()


CALLS: list[tuple[Callable[[AgentClient], object], str, str, Any]] = [
    (lambda c: c.health(), "GET", "/v1/health", None),
    (lambda c: c.head(), "GET", "/v1/head", None),
    (lambda c: c.status(), "GET", "/v1/status", None),
    (
        lambda c: c.put_spec({"a": 1}, "a: 1"),
        "PUT",
        "/v1/spec",
        {"document": {"a": 1}, "text": "a: 1", "beyond_grant": False},
    ),
    (lambda c: c.start_pass(wait=True, timeout_s=9.0), "POST", "/v1/pass", {"wait": True, "timeout_s": 9.0}),
    (lambda c: c.down(wait_runs=True), "POST", "/v1/down", {"wait_runs": True, "orphans": False}),
    (lambda c: c.down(orphans=True), "POST", "/v1/down", {"wait_runs": False, "orphans": True}),
    (lambda c: c.down_state(), "GET", "/v1/down", None),
    (lambda c: c.has_bundle("ab"), "HEAD", "/v1/bundles/ab", None),
    (lambda c: c.get_bundle("ab"), "GET", "/v1/bundles/ab", None),
    (
        lambda c: c.submit({"name": "x"}, "ab", "me", "r1"),
        "POST",
        "/v1/runs",
        {"spec": {"name": "x"}, "bundle": "ab", "user": "me", "request_id": "r1"},
    ),
    (lambda c: c.runs(), "GET", "/v1/runs", None),
    (lambda c: c.run("a/b c"), "GET", "/v1/runs/a%2Fb%20c", None),
    (lambda c: c.cancel("x"), "POST", "/v1/runs/x/cancel", {}),
    (lambda c: c.why("v4-0"), "GET", "/v1/why/v4-0", None),
    (lambda c: c.events(7), "GET", "/v1/events?since=7", None),
]


@pytest.mark.parametrize(("call", "method", "path", "body"), CALLS, ids=[f"{m} {p}" for _, m, p, _ in CALLS])
def test_call_is_sent_as_the_contract_says(
    agent: Agent, call: Callable[[AgentClient], object], method: str, path: str, body: Any
) -> None:
    call(AgentClient(agent.address, "tok"))

    heard = agent.heard[0]
    assert heard[:3] == (method, path, "Bearer tok")
    assert (json.loads(heard[3]) if heard[3] else None) == body


def test_answer_is_the_agents_document(agent: Agent) -> None:
    agent.says(200, {"slices": [1]})

    assert AgentClient(agent.address, "tok").status() == {"slices": [1]}


def test_bundle_is_sent_byte_for_byte(agent: Agent, tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(bytes(range(256)) * 4096)

    AgentClient(agent.address, "tok").put_bundle("ab", archive)

    assert agent.heard[0][3] == archive.read_bytes()


def test_missing_bundle_is_no_error(agent: Agent) -> None:
    agent.says(404, b"")

    assert AgentClient(agent.address, "tok").has_bundle("ab") is False


def test_logs_are_bytes_with_their_place(agent: Agent) -> None:
    headers = {"X-Attempt": "2", "X-Rank": "1", "X-Next-Offset": "104", "X-Complete": "true"}
    agent.reply = lambda _: (200, headers, b"\xff\x00\r\n")

    chunk = AgentClient(agent.address, "tok").read_logs("x", attempt=2, rank=1, offset=100)

    assert chunk == LogChunk(b"\xff\x00\r\n", 104, True, 2, 1)
    assert agent.heard[0][1] == "/v1/runs/x/logs?rank=1&offset=100&limit=1048576&attempt=2"


@pytest.mark.parametrize("said", ["1", "true", "True"])
def test_complete_is_read_in_any_spelling(agent: Agent, said: str) -> None:
    agent.says(200, b"", **{"X-Complete": said})

    assert AgentClient(agent.address, "tok").read_logs("x").complete


@pytest.mark.parametrize(
    ("status", "kind", "exit_code"),
    [
        (400, AgentBadRequestError, 2),
        (401, AgentUnauthorizedError, 1),
        (404, AgentNotFoundError, 1),
        (409, AgentConflictError, 1),
        (500, AgentRefusedError, 1),
        (503, AgentNotReadyError, 1),
    ],
)
def test_refusal_has_its_kind_and_the_agents_words(
    agent: Agent, status: int, kind: type[AgentRefusedError | AgentNotReadyError], exit_code: int
) -> None:
    agent.refuses(status, "word", "the run 'x' lives")

    with pytest.raises(kind, match="the run 'x' lives") as caught:
        AgentClient(agent.address, "tok").runs()

    assert caught.value.exit_code == exit_code


def test_token_is_read_again_once_after_a_401(agent: Agent) -> None:
    agent.reply = lambda token: (200, {}, b'{"ok": 1}') if token == "Bearer new" else (401, {}, b"{}")

    assert AgentClient(agent.address, "old", renew_token=lambda: "new").head() == {"ok": 1}
    with pytest.raises(AgentUnauthorizedError, match="right cluster"):
        AgentClient(agent.address, "old", renew_token=lambda: "older").head()

    assert [heard[2] for heard in agent.heard] == ["Bearer old", "Bearer new", "Bearer old", "Bearer older"]


def test_bundle_is_sent_whole_again_after_a_401(agent: Agent, tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    archive.write_bytes(b"x" * 1000)
    agent.reply = lambda token: (200, {}, b"{}") if token == "Bearer new" else (401, {}, b"{}")

    AgentClient(agent.address, "old", renew_token=lambda: "new").put_bundle("ab", archive)

    assert agent.heard[1][3] == b"x" * 1000


def test_refused_connection_was_never_sent() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(AgentUnreachableError, match="cannot be reached") as caught:
            AgentClient(f"http://127.0.0.1:{taken.getsockname()[1]}", "tok").status()

    assert not caught.value.sent
    assert isinstance(caught.value, RetryLaterError)


def test_silent_agent_is_unreachable_within_the_time_limit_and_may_have_heard() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = AgentClient(f"http://127.0.0.1:{silent.getsockname()[1]}", "tok", timeout_s=0.05)
        with pytest.raises(AgentUnreachableError, match="no answer in time") as caught:
            client.status()

    assert caught.value.sent


@pytest.mark.parametrize("data", [b"<html>", b"[1]", b""])
def test_answer_of_somebody_else_is_unreachable(agent: Agent, data: bytes) -> None:
    agent.says(200, data)

    with pytest.raises(AgentUnreachableError, match="not the agent's"):
        AgentClient(agent.address, "tok").status()


@pytest.mark.parametrize("address", ["", "10.0.0.2:7578", "https://10.0.0.2", "file:///x"])
def test_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(UserError):
        AgentClient(address, "tok")


def test_token_is_in_no_error(agent: Agent) -> None:
    agent.refuses(401)

    with pytest.raises(AgentUnauthorizedError) as caught:
        AgentClient(agent.address, "hush-hush").status()

    assert "hush" not in f"{caught.value!r}{caught.value}"
