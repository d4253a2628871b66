"""up, down, status and events as a user meets them: exit codes, what goes where, and what nothing costs."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tpuctl import app as composition
from tpuctl.base.errors import TpuctlError
from tpuctl.cli.main import app, register_all
from tpuctl.head.folder import ClusterFolder, KnownHead

SPEC = """\
version: 1
cluster: lab
project: p
backend: emulator
head: {zone: us-central1-a}
pools:
  - {name: v4, accelerator: v4-16, zones: [us-central2-b], slices: 2}
"""
STATUS = {
    "version": 1,
    "at": "2026-12-01T10:00:00.000Z",
    "cluster": "lab",
    "epoch": "t6m8gb",
    "head": {"state": "RUNNING", "address": "127.0.0.1"},
    "last_pass": None,
    "grant": [],
    "slices": [
        {
            "name": f"v4-{n}",
            "pool": "v4",
            "zone": "us-central2-b",
            "accelerator": "v4-16",
            "queued_resource": f"lab-v4-{n}-t6m8gb-1",
            "phase": "READY",
            "cloud_state": "ACTIVE",
            "node_state": "READY",
            "hosts": {"expected": 2, "joined": 2},
            "run": None,
            "since": "2026-12-01T09:00:00.000Z",
            "unseen_since": None,
            "reason": "",
        }
        for n in range(10)
    ],
    "runs": [],
}
EVENTS = {
    "events": [{"id": 7, "at": "2026-12-01T10:00:00.000Z", "kind": "ready", "subject": "v4-0", "text": "2 of 2 hosts"}]
}


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A head's agent that answers each call with the status document, on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = json.dumps(EVENTS if self.path.startswith("/v1/events") else STATUS).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    port = int(server.server_address[1])
    monkeypatch.setattr("tpuctl.head.reach.AGENT_PORT", port)
    yield port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tpuctl.yaml"
    path.write_text(SPEC)
    monkeypatch.setenv("TPUCTL_SPEC", str(path))
    monkeypatch.setenv("TPUCTL_HOME", str(tmp_path / "home"))
    return path


def run(*arguments: str) -> Result:
    if not app.registered_commands:
        register_all()
    return CliRunner().invoke(app, list(arguments))


def known(tmp_path: Path, address: str = "127.0.0.1") -> ClusterFolder:
    folder = ClusterFolder(tmp_path / "home", "lab")
    folder.save_token("tok")
    folder.save_head(KnownHead("us-central1-a", "tpuctl-lab-head", address))
    return folder


def test_status_shows_what_the_head_says_and_remembers_it(agent: int, spec: Path, tmp_path: Path) -> None:
    folder = known(tmp_path)

    result = run("status", "--json")

    assert (result.exit_code, json.loads(result.stdout)) == (0, STATUS)
    last = folder.last_status()
    assert last is not None
    assert last.document == STATUS


def test_status_for_people_has_every_slice(agent: int, spec: Path, tmp_path: Path) -> None:
    known(tmp_path)

    result = run("status")

    assert result.exit_code == 0
    assert [n for n in range(10) if f"v4-{n}" not in result.stdout] == []


def test_unreachable_head_shows_the_last_answer_with_its_age_and_exits_3(spec: Path, tmp_path: Path) -> None:
    known(tmp_path, "127.255.255.254").save_status(STATUS)

    result = run("status")
    as_json = run("status", "--json")

    assert (result.exit_code, as_json.exit_code) == (3, 3)
    assert "the head did not answer" in result.stdout
    assert "status --cloud" in result.stderr
    assert json.loads(as_json.stdout)["stale_age_s"] >= 0


@pytest.mark.parametrize("arguments", [("up", "--timeout", "5"), ("down", "--yes", "--timeout", "soon")])
def test_duration_without_a_unit_is_refused_before_any_call(spec: Path, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)

    assert isinstance(result.exception, TpuctlError)
    assert result.exception.exit_code == 2
    assert "--timeout" in str(result.exception)


@pytest.mark.parametrize("verb", ["cancel", "logs", "runs", "why"])
@pytest.mark.parametrize("name", ["a/b", "../x", "Bad Name", "\udcff", "x" * 64])
def test_what_can_be_no_name_is_refused_before_any_call(spec: Path, verb: str, name: str) -> None:
    result = run(verb, name)

    assert isinstance(result.exception, TpuctlError)
    assert (result.exception.exit_code, "is no name" in str(result.exception)) == (2, True)


@pytest.mark.parametrize("deadline", ["none", "0s"])
def test_pass_without_time_or_without_end_is_refused(spec: Path, deadline: str) -> None:
    result = run("reconcile", "--deadline", deadline)

    assert isinstance(result.exception, TpuctlError)
    assert (result.exception.exit_code, "--deadline" in str(result.exception)) == (2, True)


def test_home_that_cannot_be_used_does_not_keep_the_answer_back(
    agent: int, spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tpuctl.head.folder.write_json_atomic", full)

    result = run("status", "--json")

    assert (result.exit_code, json.loads(result.stdout)) == (0, STATUS)
    assert "No space left on device" in result.stderr


def test_down_without_a_terminal_wants_the_disks_fate_named(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPUCTL_EMULATOR", "http://127.0.0.1:9")

    result = run("down")

    assert isinstance(result.exception, TpuctlError)
    assert result.exception.exit_code == 2
    assert "--keep-disk" in str(result.exception)


@pytest.mark.parametrize("by", [None, signal.SIGTERM])
@pytest.mark.parametrize(("verb", "arguments"), [("build_bring_up", ("up",)), ("build_take_down", ("down", "--yes"))])
def test_interrupt_exits_130_and_names_what_may_exist(
    spec: Path, monkeypatch: pytest.MonkeyPatch, verb: str, arguments: tuple[str, ...], by: signal.Signals | None
) -> None:
    monkeypatch.setenv("TPUCTL_EMULATOR", "http://127.0.0.1:9")
    original = getattr(composition, verb)

    class Interrupted:
        def __init__(self, home: Any) -> None:
            self.home = home

        def up(self, *_: Any) -> None:
            if by is None:
                raise KeyboardInterrupt
            signal.raise_signal(by)

        run = up

    monkeypatch.setattr(composition, verb, lambda *given, **named: Interrupted(original(*given, **named).home))

    result = run(*arguments)

    assert result.exit_code == 130
    for name in ("tpuctl-lab-head", "tpuctl-lab-data", "tpuctl-lab-token", "lab-*"):
        assert name in result.stderr


def test_events_are_shown_and_given_as_a_versioned_document(agent: int, spec: Path, tmp_path: Path) -> None:
    known(tmp_path)

    text, as_json = run("events"), run("events", "--since", "3", "--json")

    assert (text.exit_code, as_json.exit_code) == (0, 0)
    assert "v4-0" in text.stdout
    assert [json.loads(line) for line in as_json.stdout.splitlines()] == [{"version": 1, **EVENTS["events"][0]}]


@pytest.mark.parametrize("verb", ["up", "down", "status", "events"])
def test_help_has_examples(verb: str) -> None:
    result = run(verb, "--help")

    assert result.exit_code == 0
    assert "Examples" in result.stdout


# Not pydantic: typer itself imports it to read the options.
HEAVY = ("google", "ray", "jax", "requests", "aiohttp", "yaml", "sqlite3", "tpuctl.spec.cluster", "tpuctl.cloud.model")


def test_status_imports_nothing_heavy_while_the_head_answers(agent: int, spec: Path, tmp_path: Path) -> None:
    known(tmp_path)
    program = (
        "import sys, tpuctl.head.reach as reach\n"
        f"reach.AGENT_PORT = {agent}\n"
        "from tpuctl.cli.main import app, register_all\n"
        "register_all()\n"
        "app(['status'], standalone_mode=False)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "v4-9" in done.stdout
    assert done.stderr.strip() == "[]"
