"""`tpuctl events`: where it begins, pages without end, one document a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tpuctl import app as composition
from tpuctl.base.chance import SeededChance
from tpuctl.base.errors import UserError
from tpuctl.cli.events import PAGE, starting_point
from tpuctl.cli.main import app, register_all
from tpuctl.client import AgentUnreachableError
from tpuctl.testing.clock import START, FakeClock


class Agent:
    """One with so many events, which fails once after its first answer."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.asked: list[tuple[int, dict[str, Any]]] = []
        self.fails: list[Exception] = []

    def events(self, since: int, **query: Any) -> dict[str, Any]:
        self.asked.append((since, query))
        if self.fails:
            raise self.fails.pop()
        ids = range(since + 1, min(self.count, since + query["limit"]) + 1)
        return {"events": [{"id": n, "at": START.iso(), "kind": "ready", "subject": "v4-0", "text": ""} for n in ids]}


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    here = composition.Basis(composition.Settings(tmp_path, ""), clock, SeededChance(1))
    monkeypatch.setattr(composition, "basis", lambda *_: here)
    return clock


def run(*arguments: str) -> Result:
    if not app.registered_commands:
        register_all()
    return CliRunner().invoke(app, ["events", *arguments])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", (0, "")),
        ("120", (120, "")),
        ("1h30m", (0, START.plus(-5400).iso())),
        ("2026-12-01", (0, "2026-12-01T00:00:00.000Z")),
        ("2026-12-01T10:30", (0, "2026-12-01T10:30:00.000Z")),
        ("2026-12-01T10:30:00+02:00", (0, "2026-12-01T08:30:00.000Z")),
    ],
)
def test_since_takes_a_span_a_time_or_an_id(text: str, found: tuple[int, str]) -> None:
    assert starting_point(text, START) == found


@pytest.mark.parametrize("text", ["yesterday", "-1", "2h ago", "2026-13-01", "½"])
def test_since_refuses_the_rest(text: str) -> None:
    with pytest.raises(UserError, match="--since"):
        starting_point(text, START)


def test_more_than_a_page_is_shown_whole_a_document_a_line(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(2 * PAGE + 5)
    monkeypatch.setattr(composition, "connect", lambda *_: agent)

    result = run("--json", "--since", "2h", "--kind", "ready", "--kind", "lost", "--subject", "v4-0")

    lines = result.stdout.splitlines()
    assert (result.exit_code, len(lines), [since for since, _ in agent.asked]) == (0, 2 * PAGE + 5, [0, PAGE, 2 * PAGE])
    assert json.loads(lines[-1])["id"] == 2 * PAGE + 5
    assert json.loads(lines[0])["version"] == 1
    query = {"start": START.plus(-7200).iso(), "kinds": ["ready", "lost"], "subject": "v4-0", "limit": PAGE}
    assert [asked for _, asked in agent.asked] == [query] * 3


def test_following_goes_on_from_the_last_and_survives_a_lost_head(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, slept = Agent(2), list[float]()
    monkeypatch.setattr(composition, "connect", lambda *_: agent)

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 1:
            agent.fails.append(AgentUnreachableError("no answer", sent=True))
        elif len(slept) == 2:
            agent.count = 3
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(clock, "sleep", sleep)

    result = run("--follow", "--since", "1", "--json")

    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == [2, 3]
    assert [since for since, _ in agent.asked] == [1, 2, 2]
    assert "no answer; asking again" in result.stderr


def test_no_events_is_said_to_people_only(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composition, "connect", lambda *_: Agent(0))

    assert (run().stdout, run("--json").stdout) == ("no events\n", "")
