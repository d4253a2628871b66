"""Telling people: a script and a loopback server hear it once; what fails is bounded, repeated and shows no secret."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.agent.stage import CLUSTER, DETECTION, ME, a_cluster_spec
from tpuctl.agent.folders import Folders
from tpuctl.agent.home import Bell, Home, Records, Scene
from tpuctl.agent.intake import put_spec
from tpuctl.agent.places import Places
from tpuctl.agent.senders import NotToldError, channels_of, host_of, post, run_command, send
from tpuctl.agent.telling import Teller
from tpuctl.base.chance import SeededChance
from tpuctl.base.process import identify, is_alive
from tpuctl.base.units import Instant
from tpuctl.spec.cluster import NotifySpec
from tpuctl.spec.document import dump
from tpuctl.store.database import Store
from tpuctl.store.records import PassRecord
from tpuctl.testing.clock import START, FakeClock
from tpuctl.testing.machines import until

DOCUMENT = {"version": 1, "kind": "run-ended", "subject": "digits", "text": "tpuctl lab: it's $over"}
SECRET = "T0/very-secret"


class Hook:
    """A webhook's server: what it heard, and what it answers."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        hook = self
        self.heard: list[dict[str, Any]] = []
        self.status = 200

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.heard.append(json.loads(body))
                self.send_response(hook.status)
                if 300 <= hook.status < 400:
                    self.send_header("Location", hook.url)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None: ...  # a client that refuses our certificate

        self.server = Server(("127.0.0.1", 0), Handler)
        scheme = "http"
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            scheme = "https"
        self.url = f"{scheme}://127.0.0.1:{self.server.server_address[1]}/{SECRET}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


def failure_of(coroutine: Any) -> str:
    with pytest.raises(NotToldError) as caught:
        asyncio.run(coroutine)
    return str(caught.value)


def test_command_gets_the_document_on_its_input_and_the_text_in_its_environment(tmp_path: Path) -> None:
    line = f'cat > {tmp_path}/document; printf "%s|%s" "$TPUCTL_MESSAGE" "$TPUCTL_NOTICE" > {tmp_path}/text'

    asyncio.run(send("command", NotifySpec(command=line), DOCUMENT))

    assert json.loads((tmp_path / "document").read_text()) == DOCUMENT
    assert (tmp_path / "text").read_text() == "tpuctl lab: it's $over|run-ended"


def test_command_that_fails_says_how_and_one_that_reads_nothing_is_fine() -> None:
    assert failure_of(run_command("echo no mailer; exit 3", DOCUMENT, 10)) == "notify.command exited 3: no mailer"
    asyncio.run(run_command("exit 0", {"text": "x" * 200_000}, 10))


def test_command_that_hangs_is_ended_with_all_that_it_began(tmp_path: Path) -> None:
    fifo, pid = tmp_path / "fifo", tmp_path / "pid"
    line = f"mkfifo {fifo}; sh -c 'echo $$ >{pid}.new; mv {pid}.new {pid}; exec cat {fifo}' & cat {fifo}"

    said = ""
    for limit_s in (0.2, 2.0, 20.0):  # the first that is long enough for the shell, on a machine with other work, too
        said = failure_of(run_command(line, DOCUMENT, limit_s))
        if pid.exists():
            break
        fifo.unlink(missing_ok=True)

    assert f"longer than {limit_s:g} s" in said
    left = identify(int(pid.read_text()))
    # The signal is sent when the failure is told; a process that nobody waits for takes a moment to be gone.
    asyncio.run(until(lambda: left is None or not is_alive(left), "the background process to end"))


def test_webhook_gets_the_document_as_json(hook: Hook) -> None:
    asyncio.run(send("webhook", NotifySpec(webhook=hook.url), DOCUMENT))

    assert hook.heard == [DOCUMENT]


@pytest.mark.parametrize("status", [302, 404, 500])
def test_webhook_that_refuses_or_leads_elsewhere_is_a_failure_without_its_secret(hook: Hook, status: int) -> None:
    hook.status = status

    said = failure_of(post(hook.url, DOCUMENT, 10))

    assert (f"answered {status}" in said, SECRET in said, len(hook.heard)) == (True, False, 1)


def test_webhook_that_is_not_there_shows_no_secret(hook: Hook) -> None:
    for url in ("http://127.0.0.1:1/" + SECRET, "http://[bad/" + SECRET, f"http://ada:{SECRET}@127.0.0.1:1/x"):
        assert SECRET not in failure_of(post(url, DOCUMENT, 10))
    assert host_of("https://ada:pw@hooks.example.com:8443/a?b=c") == "https://hooks.example.com:8443/…"


def test_webhook_with_a_certificate_that_nobody_vouches_for_hears_nothing() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(__file__).with_name("self_signed.pem"))
    made = Hook(context)
    try:
        said = failure_of(post(made.url, DOCUMENT, 10))
    finally:
        made.close()

    assert ("Certificate" in said, made.heard) == (True, [])


class Stage:
    """A teller on real records, with a clock and a channel that the test holds."""

    def __init__(self, directory: Path, notify: NotifySpec) -> None:
        self.clock, places = FakeClock(), Places(directory)
        self.records = Records(lambda: Store.open(places.store, clock=self.clock, create=True))
        self.home = Home(
            ME,
            places,
            Folders(places, ME, DETECTION),
            self.records,
            Scene(),
            self.clock,
            SeededChance(1),
            Bell(),
            print,
        )
        self.sent: list[tuple[str, str]] = []
        self.fail = ""
        spec = a_cluster_spec().model_copy(update={"notify": notify})
        asyncio.run(self.records.do(lambda store: put_spec(store, dump(spec), CLUSTER, self.clock.now())))
        self.teller = Teller(self.home, self.send)

    async def send(self, channel: str, _: NotifySpec, document: Mapping[str, Any]) -> None:
        self.sent.append((channel, document["text"]))
        if self.fail:
            raise NotToldError(self.fail)

    def later(self, seconds: float) -> list[tuple[str, str]]:
        self.clock.advance(seconds)
        before = len(self.sent)
        asyncio.run(self.teller.once())
        return self.sent[before:]

    def complete_a_pass(self) -> None:
        def work(store: Store) -> None:
            with store.transaction() as tx:
                tx.add_pass(PassRecord(self.clock.now(), self.clock.now(), 0, ""))

        asyncio.run(self.records.do(work))

    def events(self) -> list[tuple[str, str]]:
        def work(store: Store) -> list[tuple[str, str]]:
            with store.snapshot() as tx:
                return [(event.kind, event.text) for _, event in tx.events_since(0, 100)]

        return asyncio.run(self.records.do(work))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, NotifySpec(command="true", webhook="https://h/x"))
    yield made
    made.records.close()


def test_silence_is_told_once_on_both_channels_also_by_the_next_agent_and_again_after_a_pass(stage: Stage) -> None:
    assert stage.later(600) == []
    assert [channel for channel, _ in stage.later(1)] == ["command", "webhook"]
    assert stage.sent[0][1] == "tpuctl lab: no pass was completed for 10m01s: lost slices are not replaced"
    assert stage.later(3600) == []

    stage.complete_a_pass()
    assert stage.later(5) == []
    assert len(stage.later(700)) == 2

    stage.teller = Teller(stage.home, stage.send)
    assert stage.later(0) == []


def test_what_fails_is_repeated_later_and_given_up_with_an_event(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.fail = "the webhook at https://h/… answered 500"

    with caplog.at_level(logging.WARNING):
        tries = [len(stage.later(after_s)) for after_s in (601, 29, 1, 60, 120, 240, 1e6)]

    assert tries == [2, 0, 2, 2, 2, 2, 0]
    assert len(caplog.records) == 10
    assert [text for kind, text in stage.events() if kind == "notify-failed"] == [
        f"nobody could be told of no-pass by {channel}: {stage.fail}" for channel in ("command", "webhook")
    ]


def test_without_a_channel_nothing_is_remembered_but_the_age_of_the_last_pass_is_known(tmp_path: Path) -> None:
    stage = Stage(tmp_path, NotifySpec())
    try:
        ages = list[Instant | None]()
        for act in (lambda: None, lambda: stage.later(700), stage.complete_a_pass, lambda: stage.later(5)):
            act()
            ages.append(stage.home.scene.last_pass)
        assert (ages, stage.sent) == ([None, START, START, START.plus(700)], [])
    finally:
        stage.records.close()


def test_channels_are_those_that_the_spec_names() -> None:
    assert channels_of(NotifySpec()) == ()
    assert channels_of(NotifySpec(webhook="https://h/x")) == ("webhook",)
