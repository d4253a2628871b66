"""submit, runs, logs, cancel and why as a user runs them, against a served agent."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.agent.conftest import Served
from tests.agent.serving import TOKEN
from tests.agent.stage import a_cluster_spec
from tests.agent.test_api import finished_attempt
from tpuctl import app as builders
from tpuctl.base.errors import TpuctlError, UserError
from tpuctl.cli import cancel, logs, runs, submit, why
from tpuctl.cli.submission import Options, name_after, parcel, send, wait_for_end
from tpuctl.cli.submit import user
from tpuctl.cli.tailing import Tail
from tpuctl.client import AgentClient, AgentUnreachableError
from tpuctl.spec.document import dump
from tpuctl.spec.run import RunSpec, UseEntry
from tpuctl.testing.clock import START, FakeClock

RUN_YAML = """
version: 1
name: digits
command: python train.py --epochs 40
workdir: .
use: [{pool: v4}]
env: {MODE: fast}
checkpoint: {dir: "gs://lab/runs/digits"}
"""


@dataclass(frozen=True)
class Said:
    exit: int
    out: str
    err: str


Tpuctl = Callable[..., Said]


@pytest.fixture
def tpuctl(served: Served, monkeypatch: pytest.MonkeyPatch) -> Tpuctl:
    """Runs a verb in process. Our errors leave as the console script makes them: a message and an exit code."""
    served.ok("PUT", "/v1/spec", {"document": json.loads(dump(a_cluster_spec())), "text": ""})
    monkeypatch.setattr(builders, "connect", lambda here, file: AgentClient(served.root, TOKEN))
    cli = typer.Typer()
    for verb in (submit, runs, logs, cancel, why):
        verb.register(cli)

    def run(*arguments: str) -> Said:
        result = CliRunner().invoke(cli, arguments)
        if isinstance(result.exception, TpuctlError):
            return Said(result.exception.exit_code, result.stdout, f"tpuctl: {result.exception}")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Said(result.exit_code, result.stdout, result.stderr)

    return run


def run_of(served: Served, name: str) -> Any:
    return served.ok("GET", f"/v1/runs/{name}")


def spec_of(served: Served, name: str) -> RunSpec:
    run_id = run_of(served, name)["id"]

    def work(store: Any) -> str:
        with store.snapshot() as tx:
            return str(tx.run(run_id).spec_json)

    return RunSpec.model_validate_json(served.store(work))


def test_file_is_submitted_with_its_working_directory(served: Served, tpuctl: Tpuctl, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("print('hi')")
    (tmp_path / "project" / "run.yaml").write_text(RUN_YAML)

    said = tpuctl("submit", str(tmp_path / "project" / "run.yaml"))

    assert (said.exit, said.out) == (0, "digits\n")
    assert len([path for path in served.home.places.bundles.iterdir() if len(path.name) == 64]) == 1
    assert spec_of(served, "digits").use == (UseEntry(pool="v4"),)


WORDS = ["python", "train.py", "it's $5", "a b", "--", "", '"quoted"', "--name", "ü"]


def test_words_after_the_dashes_reach_the_run_as_they_are(served: Served, tpuctl: Tpuctl) -> None:
    """A27."""
    options = ["--name", "x", "--env", "MODE=a=b c", "--slices", "2", "--checkpoint-dir", "gs://lab/x"]

    assert tpuctl("submit", *options, "--", *WORDS).exit == 0

    spec = spec_of(served, "x")
    assert spec.command == tuple(WORDS)
    assert dict(spec.env) == {"MODE": "a=b c"}
    assert (spec.min_slices, spec.max_slices) == (2, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "either RUN.yaml or a command"),
        (("run.yaml", "--", "python"), "either RUN.yaml or a command"),
        (("--",), "no command after --"),
        (("--env", "1=2", "--", "x"), "NAME=VALUE"),
        (("--workdir", "/nowhere/at/all", "--", "x"), "not a directory"),
        (("--pool", "v6", "--checkpoint-dir", "gs://lab/x", "--", "x"), "v6"),
    ],
)
def test_usage_errors_exit_2_and_queue_nothing(
    served: Served, tpuctl: Tpuctl, arguments: Sequence[str], words: str
) -> None:
    said = tpuctl("submit", *arguments)

    assert said.exit == 2
    assert words in said.err
    assert served.ok("GET", "/v1/runs")["runs"] == []


def test_failure_of_ours_under_wait_is_125(tpuctl: Tpuctl) -> None:
    assert tpuctl("submit", "--wait", "--pool", "v6", "--", "x").exit == 125


def test_runs_cancel_and_why_say_what_the_agent_says(served: Served, tpuctl: Tpuctl) -> None:
    tpuctl("submit", "--name", "digits", "--checkpoint-dir", "gs://lab/x", "--", "x")

    assert "digits" in tpuctl("runs").out
    assert json.loads(tpuctl("runs", "--json").out)["runs"][0]["name"] == "digits"
    assert json.loads(tpuctl("runs", "digits", "--json").out)["attempts"] == []
    assert "QUEUED" in tpuctl("why", "digits").out
    assert json.loads(tpuctl("why", "digits", "--json").out)["subject"] == "digits"
    assert tpuctl("cancel", "digits").out == "CANCELLED\n"
    assert tpuctl("why", "nothing").exit == 1


def test_logs_print_bytes_to_stdout_and_headers_to_stderr(
    served: Served, tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    tpuctl("submit", "--name", "digits", "--checkpoint-dir", "gs://lab/x", "--", "x")
    finished_attempt(served, "digits", b"\x81\x00step 1\r")
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)

    logs.logs("digits", follow=False, rank=0, attempt=None, headers=True)

    assert isinstance(out.buffer, io.BytesIO)
    assert out.buffer.getvalue() == b"\x81\x00step 1\r"
    assert "attempt 1 on v4-0, rank 0, failed" in err.getvalue()


@pytest.mark.parametrize("verb", ["submit", "runs", "logs", "cancel", "why"])
def test_every_help_has_examples(tpuctl: Tpuctl, verb: str) -> None:
    said = tpuctl(verb, "--help")

    assert said.exit == 0
    assert "Examples" in said.out
    assert f"tpuctl {verb}" in said.out


class Flaky:
    """An agent whose answers get lost, and a run that goes through states as it is looked at."""

    def __init__(self, losses: int, states: Sequence[tuple[str, int | None]] = ()) -> None:
        self.losses = losses
        self.states = list(states)
        self.request_ids: list[str] = []

    def has_bundle(self, digest: str) -> bool:
        return True

    def put_bundle(self, digest: str, archive: Path) -> None:
        raise AssertionError("the bundle is there")

    def submit(self, spec: dict[str, Any], bundle: str, user: str, request_id: str) -> dict[str, Any]:
        self.request_ids.append(request_id)
        self._lose()
        return {"name": spec["name"], "id": "digits-1"}

    def run(self, name: str) -> dict[str, Any]:
        self._lose()
        state, code = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return {"name": name, "state": state, "attempt": 1, "slices": [], "reason": "", "exit_code": code}

    def _lose(self) -> None:
        if self.losses:
            self.losses -= 1
            raise AgentUnreachableError("no answer in time", sent=True)


def ignore(_: str) -> None:
    """What is said is not the question."""


def test_lost_answers_are_asked_for_again_under_one_request_id() -> None:
    """A42."""
    agent = Flaky(losses=3)
    wish = parcel(None, ("x",), Options(name="digits"), START)

    assert send(agent, wish, "ada", "request-1", FakeClock(), ignore)["name"] == "digits"
    assert agent.request_ids == ["request-1"] * 4


def test_agent_that_never_answers_is_told_to_the_user() -> None:
    wish = parcel(None, ("x",), Options(name="digits"), START)

    with pytest.raises(AgentUnreachableError):
        send(Flaky(losses=99), wish, "ada", "request-1", FakeClock(), ignore)


@pytest.mark.parametrize(
    ("state", "code", "status"),
    [("SUCCEEDED", 0, 0), ("FAILED", 3, 3), ("FAILED", None, 125), ("CANCELLED", None, 125)],
)
def test_wait_gives_the_programs_status(state: str, code: int | None, status: int) -> None:
    agent = Flaky(losses=4, states=[("QUEUED", None), ("RUNNING", None), (state, code)])

    assert wait_for_end(agent, "digits", FakeClock(), ignore) == status


def test_wait_gives_up_on_an_agent_that_stays_away() -> None:
    with pytest.raises(AgentUnreachableError):
        wait_for_end(Flaky(losses=10_000, states=[("RUNNING", None)]), "digits", FakeClock(), ignore)


@pytest.mark.parametrize(
    ("command", "stem"),
    [(("python", "x"), "python"), (("./Train_It.py",), "train-it"), (("7zip",), "run-7zip"), (("…",), "run")],
)
def test_name_of_a_command_is_plain(command: tuple[str, ...], stem: str) -> None:
    assert name_after(command, START).rsplit("-", 1)[0] == stem


def test_options_go_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(RUN_YAML)

    wish = parcel(path, None, Options(name="other", env=("MODE=slow", "X=1"), priority=5), START)

    assert (wish.spec.name, wish.spec.priority, wish.workdir) == ("other", 5, tmp_path / ".")
    assert dict(wish.spec.env) == {"MODE": "slow", "X": "1"}
    with pytest.raises(UserError):
        parcel(path, ("x",), Options(), START)


@pytest.mark.parametrize("name", ["Digits", "d" * 41, "a/b"])
@pytest.mark.parametrize("command", [("x",), None])
def test_name_that_no_run_may_have_is_refused_before_anything_is_sent(
    tmp_path: Path, name: str, command: tuple[str, ...] | None
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(RUN_YAML)

    with pytest.raises(UserError, match="no plain name of at most 40"):
        parcel(None if command else path, command, Options(name=name), START)


class Chunk:
    def __init__(self, data: bytes, next_offset: int, complete: bool) -> None:
        self.data, self.next_offset, self.complete = data, next_offset, complete


class Growing:
    """A run of two attempts whose logs grow by a piece a look."""

    def __init__(self) -> None:
        self.pieces = {1: [b"one ", b"", b"more\n"], 2: [b"two\n"]}
        self.attempt = 1
        self.state = "RUNNING"
        self.lose_next = True

    def run(self, name: str) -> dict[str, Any]:
        row = {"name": name, "state": self.state, "attempt": self.attempt, "reason": "", "attempts": []}
        if not self.pieces[1]:
            self.attempt = 2
        if not self.pieces[2]:
            self.state = "SUCCEEDED"
        return row

    def read_logs(self, name: str, *, attempt: int, rank: int, offset: int) -> Chunk:
        if self.lose_next:
            self.lose_next = False
            raise AgentUnreachableError("no answer in time", sent=True)
        data = self.pieces[attempt].pop(0) if self.pieces[attempt] else b""
        return Chunk(data, offset + len(data), not self.pieces[attempt])


def test_following_goes_through_all_attempts_and_over_lost_answers() -> None:
    got = io.BytesIO()

    Tail(Growing(), "digits", 0, FakeClock(), got.write, got.flush, ignore).show(None, follow=True)

    assert got.getvalue() == b"one more\ntwo\n"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (Options(name="Bad Name"), "--name: 'Bad Name' is no plain name"),
        (Options(env=("TPUCTL_RUN=other",)), "--env: TPUCTL_RUN is set or removed by tpuctl"),
        (Options(env=("1X=a",)), "--env '1X=a'"),
        (
            Options(checkpoint_dir="checkpoints"),
            "--checkpoint-dir: 'checkpoints': must begin with {storage}, gs:// or /",
        ),
        (Options(checkpoint_dir="{storage}/{user}"), "--checkpoint-dir: '{storage}/{user}': {user} is not known"),
        (Options(slices=1001), "--slices: Input should be less than or equal to 1000"),
        (Options(priority=10**30), "--priority"),
        (Options(max_failures=10**30), "--max-failures"),
        (Options(env=("X=\udcff",)), "--env"),
    ],
    ids=str,
)
@pytest.mark.parametrize("from_file", [False, True])
def test_options_are_held_to_the_rules_of_a_file(options: Options, told: str, from_file: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(RUN_YAML)

    with pytest.raises(UserError) as refused:
        parcel(path if from_file else None, None if from_file else ("x",), options, START)

    assert told in str(refused.value)


@pytest.mark.parametrize("command", [("",), (" ", "x"), ("x", "\udcff")])
def test_command_that_no_host_could_start_is_refused(command: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match="the command after --"):
        parcel(None, command, Options(name="a"), START)


def test_what_cannot_be_shipped_is_refused_before_a_call(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a directory"):
        parcel(None, ("x",), Options(workdir=tmp_path / "none"), START)


def test_user_without_a_name_is_told_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr("getpass.getuser", nobody)

    assert user() == f"uid {os.getuid()}"
