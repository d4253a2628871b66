"""The agent's API as docs/architecture.md states it, over a real socket and a real store."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.agent.conftest import Served
from tests.agent.stage import EPOCH, a_cluster_spec
from tpuctl.agent import answers
from tpuctl.agent.passes import PassResult
from tpuctl.agent.ray_head import RayHead
from tpuctl.base.ids import QrName, SliceName
from tpuctl.spec.document import dump
from tpuctl.store.records import Attempt, PassRecord, Phase, RunState, Verdict

CALLS = [
    ("GET", "/v1/head"),
    ("GET", "/v1/status"),
    ("PUT", "/v1/spec"),
    ("POST", "/v1/pass"),
    ("POST", "/v1/down"),
    ("GET", "/v1/down"),
    ("PUT", f"/v1/bundles/{'0' * 64}"),
    ("GET", f"/v1/bundles/{'0' * 64}"),
    ("HEAD", f"/v1/bundles/{'0' * 64}"),
    ("POST", "/v1/runs"),
    ("GET", "/v1/runs"),
    ("GET", "/v1/runs/digits"),
    ("POST", "/v1/runs/digits/cancel"),
    ("GET", "/v1/runs/digits/logs"),
    ("GET", "/v1/why/digits"),
    ("GET", "/v1/events"),
    ("POST", "/v1/hosts/report"),
    ("GET", "/v1/nothing-of-the-kind"),
]


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_every_call_but_health_wants_the_secret(served: Served, method: str, path: str) -> None:
    for token in ("", "wrong", "the-cluster's-secret-and-more"):
        assert served.call(method, path, token=token).status == 401


def test_health_answers_anybody(served: Served) -> None:
    answer = served.call("GET", "/v1/health", token="")

    assert answer.document() == {"ok": True, "version": "0.1.0", "api": 1}


def test_page_in_a_browser_is_refused_even_with_the_secret(served: Served) -> None:
    status, kind, _ = served.refused("GET", "/v1/status", headers={"Origin": "http://evil.example"})

    assert (status, kind) == (401, "unauthorized")


def test_head_publishes_ray_once_it_is_up(served: Served) -> None:
    assert served.ok("GET", "/v1/head")["ray"] is None

    served.home.scene.ray_head = RayHead(
        "127.7.1.2:20000", "http://127.7.1.2:20001", "2.60.0", "3.11.7", served.clock.now()
    )

    document = served.ok("GET", "/v1/head")
    assert (document["cluster"], document["epoch"], document["api"]) == ("lab", EPOCH, 1)
    assert document["ray"]["address"] == "127.7.1.2:20000"


def test_body_beyond_the_limit_is_refused(served: Served) -> None:
    body = b"[" + b" " * answers.MAX_BODY_BYTES + b"]"

    assert served.refused("PUT", "/v1/spec", body=body)[:2] == (400, "too-large")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/spec", b"not json"),
        ("PUT", "/v1/spec", b"[]"),
        ("PUT", "/v1/spec", b'{"document": 7}'),
        ("PUT", "/v1/spec", b'{"document": {"cluster": "lab"}}'),
        ("POST", "/v1/pass", b'{"wait": 1}'),
        ("POST", "/v1/pass", b'{"wait": true, "timeout_s": -1}'),
        ("POST", "/v1/pass", b'{"wait": true, "timeout_s": NaN}'),
        ("POST", "/v1/pass", b"[" * 60_000),
        ("POST", "/v1/down", b'{"wait_runs": "yes"}'),
        ("POST", "/v1/hosts/report", b'{"incarnation": "\\ud800", "worker": 0, "boot_id": "b", "stage": "joined"}'),
        ("POST", "/v1/runs", b"{}"),
        ("POST", "/v1/runs", b'{"spec": {}, "user": "ada", "request_id": "short"}'),
        ("POST", "/v1/hosts/report", b'{"incarnation": "x", "worker": true, "boot_id": "b", "stage": "joined"}'),
        ("POST", "/v1/hosts/report", b'{"incarnation": "x", "worker": 0, "boot_id": "b", "stage": "dancing"}'),
        ("GET", "/v1/events?since=-1", None),
        ("GET", "/v1/runs/digits/logs?offset=x", None),
        ("GET", "/v1/runs/digits/logs?limit=0", None),
        ("DELETE", "/v1/runs", None),
    ],
)
def test_bad_request_is_told_in_words(served: Served, method: str, path: str, body: bytes | None) -> None:
    status, kind, message = served.refused(method, path, body=body)

    assert (status, kind) == (400, "bad-request")
    assert message


def test_unknown_things_are_not_found(served: Served) -> None:
    for method, path in (("GET", "/v1/runs/x"), ("POST", "/v1/runs/x/cancel"), ("GET", "/v1/why/x"), ("GET", "/v1/x")):
        assert served.refused(method, path)[:2] == (404, "not-found")


def test_spec_is_stored_once_and_asks_for_a_pass_when_it_changed(served: Served) -> None:
    first, again = served.put_spec(), served.put_spec()

    assert (first["changed"], again["changed"]) == (True, False)
    assert first["digest"] == again["digest"]
    assert served.passes.asked == ["the spec changed"]
    assert served.put_spec(slices=3)["changed"] is True


def test_spec_of_another_cluster_is_refused(served: Served) -> None:
    document = dump(a_cluster_spec()).replace('"cluster":"lab"', '"cluster":"other"')

    assert served.refused("PUT", "/v1/spec", {"document": document, "text": ""})[0] == 409


def test_pass_is_waited_for_or_only_asked_for(served: Served) -> None:
    served.passes.result = PassResult(3, "one zone failed to list")

    assert served.ok("POST", "/v1/pass", {"wait": True}) == {"exit": 3, "summary": "one zone failed to list"}
    assert served.ok("POST", "/v1/pass", {"wait": False})["exit"] is None


def test_pass_that_takes_too_long_is_told_and_goes_on(served: Served) -> None:
    served.passes.result = None

    assert served.refused("POST", "/v1/pass", {"wait": True, "timeout_s": 0.05})[:2] == (503, "timeout")


def test_status_shows_slots_slices_and_runs(served: Served) -> None:
    served.put_spec(slices=2)
    served.make_slices(1)
    served.submit()

    document = served.ok("GET", "/v1/status")

    assert {"version", "at", "cluster", "epoch", "head", "last_pass", "grant", "slices", "runs"} <= set(document)
    assert [(row["name"], row["phase"]) for row in document["slices"]] == [("v4-0", "READY"), ("v4-1", "NONE")]
    assert document["slices"][0]["hosts"] == {"expected": 2, "joined": 2}
    assert set(document["slices"][0]) == {
        *("name", "pool", "zone", "accelerator", "queued_resource", "phase", "cloud_state", "node_state", "hosts"),
        *("run", "since", "unseen_since", "reason"),
    }
    assert [(row["name"], row["state"]) for row in document["runs"]] == [("digits", "QUEUED")]


def test_submission_repeated_after_a_lost_answer_makes_one_run(served: Served) -> None:
    """A42."""
    served.put_spec()

    first, again = served.submit(request_id="request-1"), served.submit(request_id="request-1")

    assert first == again
    assert len(served.ok("GET", "/v1/runs")["runs"]) == 1


def test_name_of_a_living_run_is_taken_until_it_is_over(served: Served) -> None:
    served.put_spec()
    first = served.submit(request_id="request-1")
    body = {"spec": {"name": "digits", "command": "x"}, "bundle": "", "user": "bob", "request_id": "request-2"}

    status, kind, message = served.refused("POST", "/v1/runs", body)
    assert (status, kind) == (409, "conflict")
    assert first["id"] in message

    assert served.ok("POST", "/v1/runs/digits/cancel") == {"state": "CANCELLED"}
    assert served.ok("POST", "/v1/runs", body)["id"] != first["id"]


def test_run_without_a_cluster_spec_or_its_bundle_is_refused(served: Served) -> None:
    body: dict[str, Any] = {"spec": {"name": "a", "command": "x"}, "bundle": "", "user": "u", "request_id": "request-1"}
    assert served.refused("POST", "/v1/runs", body)[0] == 409

    served.put_spec()
    assert served.refused("POST", "/v1/runs", body | {"bundle": "0" * 64})[:2] == (404, "no-bundle")
    assert served.refused("POST", "/v1/runs", body | {"spec": {"name": "No Name", "command": "x"}})[0] == 400


def test_bundle_goes_in_and_comes_out_by_its_digest(served: Served) -> None:
    data = b"archive " * 100_000
    digest = hashlib.sha256(data).hexdigest()
    path = f"/v1/bundles/{digest}"
    assert served.call("HEAD", path).status == 404

    assert served.call("PUT", path, body=data).document() == {"digest": digest, "bytes": len(data)}

    assert served.call("HEAD", path).status == 200
    assert served.call("GET", path).body == data
    assert served.refused("PUT", path, body=b"other")[0] == 400
    assert served.call("GET", path).body == data
    assert served.call("GET", "/v1/bundles/..%2F..%2Fstore.sqlite3").status == 400


def finished_attempt(served: Served, name: str, log: bytes) -> None:
    run_id = served.ok("GET", f"/v1/runs/{name}")["id"]
    now = served.clock.now()

    def work(store: Any) -> None:
        with store.transaction() as tx:
            run = tx.run(run_id)
            slices = ((SliceName("v4-0"), QrName(f"lab-v4-0-{EPOCH}-1")),)
            tx.put_run(type(run)(**{**{n: getattr(run, n) for n in run.__slots__}, "attempts": 1}))
            tx.put_attempt(
                Attempt(run_id, 1, EPOCH, 1, slices, now, now, ended_at=now, verdict=Verdict.FAILED, evidence="exit 3")
            )

    served.store(work)
    directory: Path = served.home.places.runs / run_id / "attempts" / "1" / "logs"
    directory.mkdir(parents=True)
    (directory / "0.log").write_bytes(log)


def test_logs_are_bytes_with_where_they_go_on(served: Served) -> None:
    served.put_spec()
    served.submit()
    assert served.refused("GET", "/v1/runs/digits/logs")[:2] == (404, "no-attempt")
    finished_attempt(served, "digits", b"step 1\r\x81\x00\nstep 2\n")

    first = served.call("GET", "/v1/runs/digits/logs?attempt=1&rank=0&offset=0&limit=7")
    rest = served.call("GET", f"/v1/runs/digits/logs?offset={first.headers['x-next-offset']}")

    assert first.body + rest.body == b"step 1\r\x81\x00\nstep 2\n"
    assert [(each.headers["x-attempt"], each.headers["x-complete"]) for each in (first, rest)] == [
        ("1", "false"),
        ("1", "true"),
    ]
    assert served.refused("GET", "/v1/runs/digits/logs?attempt=2")[0] == 404
    shown = served.ok("GET", "/v1/runs/digits")["attempts"]
    assert [(each["n"], each["verdict"], each["ranks"]) for each in shown] == [(1, "failed", [0])]


def test_notice_marks_the_slice_draining_and_hurries(served: Served) -> None:
    served.put_spec()
    served.make_slices(1)
    report = {"incarnation": f"lab-v4-0-{EPOCH}-1", "worker": 1, "boot_id": "b", "stage": "notice", "detail": ""}

    served.ok("POST", "/v1/hosts/report", report)
    served.ok("POST", "/v1/hosts/report", report)

    (row,) = [row for row in served.ok("GET", "/v1/status")["slices"] if row["name"] == "v4-0"]
    assert row["phase"] == Phase.DRAINING.value
    assert "worker 1" in row["reason"]
    kinds = [event["kind"] for event in served.ok("GET", "/v1/events")["events"]]
    assert kinds.count("notice") == 1
    assert any("notice" in reason for reason in served.passes.asked)


def test_report_of_an_unknown_incarnation_changes_nothing(served: Served) -> None:
    served.put_spec()
    before = served.ok("GET", "/v1/events")

    served.ok("POST", "/v1/hosts/report", {"incarnation": "x", "worker": 0, "boot_id": "b", "stage": "notice"})

    assert served.ok("GET", "/v1/events") == before


def test_down_takes_no_runs_and_tells_what_remains(served: Served) -> None:
    served.put_spec()
    served.make_slices(2)
    served.submit()

    assert served.ok("POST", "/v1/down", {"wait_runs": True}) == {}

    remaining = served.ok("GET", "/v1/down")
    assert remaining == {"remaining": [f"lab-v4-{n}-{EPOCH}-1" for n in (0, 1)], "runs": ["digits"], "orphans": []}
    body = {"spec": {"name": "b", "command": "x"}, "bundle": "", "user": "u", "request_id": "request-b"}
    assert served.refused("POST", "/v1/runs", body)[0] == 409
    assert served.put_spec()["changed"] is True  # 'up' makes the cluster wanted again
    assert served.ok("POST", "/v1/runs", body)["name"] == "b"


def test_why_of_slices_and_runs(served: Served) -> None:
    served.put_spec(slices=2)
    served.make_slices(1)
    run = served.submit()
    served.home.scene.waits = {run["id"]: "waits for 1 slice of v4-16"}

    assert "waits for 1 slice of v4-16" in served.ok("GET", "/v1/why/digits")["lines"]
    assert "READY" in served.ok("GET", "/v1/why/v4-0")["lines"][0]
    assert served.ok("GET", f"/v1/why/lab-v4-0-{EPOCH}-1")["subject"] == f"lab-v4-0-{EPOCH}-1"
    assert "not asked for yet" in served.ok("GET", "/v1/why/v4-1")["lines"][0]


def test_events_go_on_after_the_last_one_seen(served: Served) -> None:
    served.put_spec()
    first = served.ok("GET", "/v1/events?since=0")["events"]
    served.submit()

    fresh = served.ok("GET", f"/v1/events?since={first[-1]['id']}")["events"]

    assert [event["kind"] for event in fresh] == ["submitted"]
    assert set(fresh[0]) == {"id", "at", "kind", "subject", "text"}


def test_state_of_a_run_that_is_over_stays(served: Served) -> None:
    served.put_spec()
    served.submit()

    states = [served.ok("POST", "/v1/runs/digits/cancel")["state"] for _ in range(2)]

    assert states == [RunState.CANCELLED.value] * 2


def test_why_a_run_waits_includes_what_the_last_pass_could_not_do(served: Served) -> None:
    served.put_spec()
    served.submit()
    now = served.clock.now()

    def work(store: Any) -> None:
        with store.transaction() as tx:
            tx.add_pass(PassRecord(now, now, 3, "hold v4-0: pool v4 is paused"))

    served.store(work)

    for name in ("digits", "v4-0"):
        assert "the last pass: hold v4-0: pool v4 is paused" in served.ok("GET", f"/v1/why/{name}")["lines"]
