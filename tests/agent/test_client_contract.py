"""The real client against the real service: both sides of docs/architecture.md, "The agent's API"."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.agent.conftest import Served
from tests.agent.serving import TOKEN
from tests.agent.stage import a_cluster_spec
from tests.agent.test_api import finished_attempt
from tpuctl.client import AgentBadRequestError, AgentClient, AgentConflictError, AgentNotFoundError
from tpuctl.head.errors import AgentUnauthorizedError
from tpuctl.spec.document import dump

SPEC = {"name": "digits", "command": ["python", "train.py", "it's $5"]}


@pytest.fixture
def client(served: Served) -> AgentClient:
    return AgentClient(served.root, TOKEN)


def put_spec(client: AgentClient) -> None:
    client.put_spec(json.loads(dump(a_cluster_spec())), "text")


def test_every_call_of_the_client_is_answered(served: Served, client: AgentClient, tmp_path: Path) -> None:
    assert client.health()["ok"] is True
    assert client.head()["ray"] is None
    put_spec(client)
    assert client.start_pass(wait=True)["exit"] == 0
    archive = tmp_path / "archive"
    archive.write_bytes(b"tar" * 100_000)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert not client.has_bundle(digest)
    client.put_bundle(digest, archive)
    assert client.has_bundle(digest)
    assert client.get_bundle(digest) == archive.read_bytes()
    run = client.submit(SPEC, digest, "ada", "request-1")
    assert client.submit(SPEC, digest, "ada", "request-1") == run
    assert client.runs()["runs"][0]["id"] == client.run("digits")["id"] == run["id"]
    assert client.status()["runs"][0]["name"] == "digits"
    assert client.why("digits")["subject"] == "digits"
    finished_attempt(served, "digits", b"\x81\x00log")
    chunk = client.read_logs("digits", attempt=1)
    assert (chunk.data, chunk.complete, chunk.attempt, chunk.rank) == (b"\x81\x00log", True, 1, 0)
    assert client.cancel("digits") == {"state": "CANCELLED"}
    assert [event["kind"] for event in client.events()["events"]][-1] == "cancelled"
    client.down()
    assert client.down_state() == {"remaining": [], "runs": [], "orphans": []}


def test_refusals_arrive_as_their_kinds(served: Served, client: AgentClient) -> None:
    with pytest.raises(AgentConflictError, match="no spec yet"):
        client.submit(SPEC, "", "ada", "request-1")
    put_spec(client)
    client.submit(SPEC, "", "ada", "request-1")
    with pytest.raises(AgentConflictError, match="a run named 'digits' is QUEUED"):
        client.submit(SPEC, "", "bob", "request-2")
    with pytest.raises(AgentNotFoundError):
        client.run("nobody")
    with pytest.raises(AgentBadRequestError, match="pool"):
        client.submit({**SPEC, "name": "b", "use": [{"pool": "v6"}]}, "", "ada", "request-3")
    with pytest.raises(AgentUnauthorizedError):
        AgentClient(served.root, "wrong").status()


def test_secret_that_was_rotated_is_read_again_once(served: Served) -> None:
    asked: list[str] = []

    def renew() -> str:
        asked.append("read")
        return TOKEN

    assert AgentClient(served.root, "old", renew_token=renew).runs() == {"runs": []}
    assert asked == ["read"]
