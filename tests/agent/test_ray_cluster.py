"""The view of Ray's nodes. The bodies are what Ray 2.60 answered, shortened."""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.agent.ray_cluster import hosts_of, read_ray_table
from tpuctl.base.units import Instant
from tpuctl.cloud.model import Known, Unknown
from tpuctl.testing.clock import START, FakeClock
from tpuctl.testing.web import Asked, Reply, ScriptedServer

HEAD = {"node_id": "a030", "node_ip": "127.7.1.1", "state": "ALIVE", "labels": {"ray.io/node-id": "a030"}}


def a_row(
    worker: int = 0, node_id: str = "b1", started_ms: int = 1000, labels: dict[str, str] | None = None
) -> dict[str, Any]:
    ours = {
        "tpuctl/cluster": "lab",
        "tpuctl/slice": "v4-0",
        "tpuctl/incarnation": "lab-v4-0-t6m8gb-1",
        "tpuctl/worker": str(worker),
        "tpuctl/boot": "boot-1",
        "tpuctl/chips": "4",
    }
    return {
        "node_id": node_id,
        "node_ip": f"127.7.1.{worker + 2}",
        "state": "ALIVE",
        "resources_total": {"TPU": 4.0, "CPU": 2.0},
        "labels": ours | (labels or {}),
        "start_time_ms": started_ms,
    }


def an_answer(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    table = {
        "total": len(rows),
        "num_after_truncation": len(rows),
        "num_filtered": len(rows),
        "result": list(rows),
        "partial_failure_warning": "",
        "warnings": None,
    }
    return {"result": True, "msg": "", "data": {"result": table | changes}}


def read(reply: Reply, *, token: str = "secret") -> tuple[Known[Any] | Unknown, Asked]:
    with ScriptedServer(lambda _: reply) as server:
        view = read_ray_table(server.url, token, FakeClock(), head_since=Instant(5.0))
        return view, server.asked[0]


def test_hosts_with_our_labels_are_read_and_the_head_is_not_one() -> None:
    view, asked = read(Reply(an_answer(HEAD, a_row(1, "b2"), a_row(0, "b1"))))

    assert isinstance(view, Known)
    assert [(host.worker, host.node_id, host.address, host.chips) for host in view.value.hosts] == [
        (0, "b1", "127.7.1.2", 4),
        (1, "b2", "127.7.1.3", 4),
    ]
    assert view.value.head_since == Instant(5.0)
    assert view.at == START
    assert asked.headers["authorization"] == "Bearer secret"
    assert "filter_values=ALIVE" in asked.path
    assert "detail=true" in asked.path


def test_dead_nodes_that_ray_still_counts_do_not_make_the_table_partial() -> None:
    view, _ = read(Reply(an_answer(a_row(0), total=7, num_after_truncation=1, num_filtered=1)))

    assert isinstance(view, Known)
    assert len(view.value.hosts) == 1


def test_of_a_rejoined_host_and_its_ghost_the_newest_counts() -> None:
    for rows in ([a_row(0, "ghost", 1000), a_row(0, "new", 2000)], [a_row(0, "new", 2000), a_row(0, "ghost", 1000)]):
        assert [host.node_id for host in hosts_of(rows)] == ["new"]


def test_the_same_worker_of_two_incarnations_is_two_hosts() -> None:
    rows = [a_row(0, "old", 9000), a_row(0, "new", 1000, {"tpuctl/incarnation": "lab-v4-0-t6m8gb-2"})]

    assert {host.node_id for host in hosts_of(rows)} == {"old", "new"}


def test_a_dead_row_and_a_row_with_a_broken_worker_label_are_no_hosts() -> None:
    rows = [a_row(0) | {"state": "DEAD"}, a_row(1, labels={"tpuctl/worker": "one"})]

    assert hosts_of(rows) == ()


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        pytest.param(Reply("no", status=401), "refused the cluster's token", id="missing token"),
        pytest.param(Reply("no", status=403), "refused the cluster's token", id="wrong token"),
        pytest.param(Reply("<html>"), "not JSON", id="another server"),
        pytest.param(Reply({"result": False, "msg": "boom", "data": None}, status=500), "answered 500", id="error"),
        pytest.param(Reply({"result": False, "msg": "boom"}), "boom", id="no result"),
        pytest.param(Reply(an_answer(partial_failure_warning="1 of 2 sources")), "1 of 2 sources", id="partial"),
        pytest.param(Reply(an_answer(*[HEAD] * 10_000)), "more than 10000", id="truncated"),
        pytest.param(Reply(an_answer(a_row(), num_filtered=3)), "1 of 3", id="limited"),
    ],
)
def test_an_answer_that_is_not_the_whole_table_is_unknown(reply: Reply, words: str) -> None:
    view, _ = read(reply)

    assert isinstance(view, Unknown)
    assert words in view.reason
    assert "secret" not in view.reason


def test_a_dashboard_that_is_not_there_is_unknown() -> None:
    with ScriptedServer(lambda _: Reply()) as server:
        url = server.url

    view = read_ray_table(url, "secret", FakeClock(), head_since=None)

    assert isinstance(view, Unknown)
    assert "Connection refused" in view.reason
