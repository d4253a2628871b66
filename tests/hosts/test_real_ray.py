"""Head keeper and host daemons with the real Ray, as plain processes on loopback addresses."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tpuctl.agent.ray_cluster import read_ray_table
from tpuctl.agent.ray_jobs import RayJobs
from tpuctl.base.clock import SystemClock
from tpuctl.base.files import read_json
from tpuctl.base.process import identify, kill_tree, signal_all, tree_of
from tpuctl.base.web import call
from tpuctl.cloud.model import Known
from tpuctl.fleet.model import RayHost
from tpuctl.spec.accelerators import accelerator

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(400)]


class Cluster:
    """A head and two hosts of one slice, up."""

    def __init__(self, lab: Any) -> None:
        self.lab = lab
        self.head = lab.vm("head")
        self.ray_json = self.head.prefix / "data" / "ray.json"
        lab.agent.ray = lambda: read_json(self.ray_json)
        self.keeper = self.head.start()
        lab.eventually(self.ray_json.exists, 90, "a Ray head that answers")
        self.hosts = [lab.vm(worker=worker) for worker in (0, 1)]
        self.daemons = [host.start() for host in self.hosts]
        self.await_workers([0, 1], 100)

    @property
    def dashboard(self) -> str:
        document = read_json(self.ray_json)
        return str(document["dashboard"]) if document else "http://127.0.0.1:9"

    def table(self) -> tuple[RayHost, ...]:
        view = read_ray_table(self.dashboard, self.lab.agent.token, SystemClock(), head_since=None)
        return view.value.hosts if isinstance(view, Known) else ()

    def await_workers(self, expected: list[int], limit_s: float) -> None:
        self.lab.eventually(
            lambda: [host.worker for host in self.table()] == expected, limit_s, f"the workers {expected} in Ray"
        )

    def last_words_of(self, address: str) -> str:
        answer = call(
            "GET", f"{self.dashboard}/api/v0/nodes?limit=100&detail=true", token=self.lab.agent.token, timeout_s=5
        )
        rows = answer.document()["data"]["result"]["result"]
        return next(str(row["state_message"]) for row in rows if row["node_ip"] == address and row["state"] == "DEAD")


@pytest.fixture
def cluster(lab: Any) -> Cluster:
    return Cluster(lab)


def test_hosts_join_survive_a_restart_of_the_head_and_drain_on_notice(cluster: Cluster, lab: Any) -> None:
    first, second = cluster.table()
    assert (first.slice, first.incarnation, first.chips) == ("v4-0", "lab-v4-0-t6m8gb-1", 4)
    assert first.chips + second.chips == accelerator("v4-16").chips
    assert (first.address, second.address) == (cluster.hosts[0].address, cluster.hosts[1].address)
    host_file = read_json(cluster.hosts[0].prefix / "host.json")
    assert host_file is not None
    assert first.boot_id == host_file["boot_id"]

    jobs = RayJobs(cluster.dashboard, lab.agent.token)
    jobs.submit("a-t6m8gb-1", "echo $GREETING", {"GREETING": "hello"}, {"run": "a"})
    again = jobs.submit("a-t6m8gb-1", "echo $GREETING", {"GREETING": "hello"}, {"run": "a"})
    assert again is not None
    lab.eventually(lambda: (job := jobs.get("a-t6m8gb-1")) and job.status == "SUCCEEDED", 60, "the job's end")

    # The head's processes are killed and its unit starts them again: hosts come back by themselves.
    root = identify(cluster.keeper.pid)
    assert root is not None
    kill_tree(root)
    cluster.keeper.wait()
    cluster.keeper = cluster.head.start()
    cluster.await_workers([0, 1], 100)
    assert {host.node_id for host in cluster.table()}.isdisjoint({first.node_id, second.node_id})

    # The notice: Ray is told that it is a preemption, and the host stays away.
    cluster.hosts[1].metadata.change("preempted", "TRUE")
    cluster.await_workers([0], 40)
    assert "preemption" in cluster.last_words_of(cluster.hosts[1].address)
    assert lab.agent.stages(1)[-1] == "notice"
    assert cluster.daemons[1].poll() is None

    # SIGTERM, as systemd stops a unit: nothing is left of this host's Ray.
    cluster.daemons[0].send_signal(signal.SIGTERM)
    assert cluster.daemons[0].wait(timeout=40) == 0
    cluster.await_workers([], 10)


def test_a_frozen_host_is_seen_as_dead_and_joins_again_when_it_thaws(cluster: Cluster, lab: Any) -> None:
    root = identify(cluster.daemons[0].pid)
    assert root is not None
    frozen = tree_of(root)
    before = cluster.table()[0]
    signal_all(frozen, signal.SIGSTOP)
    cluster.await_workers([1], 20)

    signal_all(frozen, signal.SIGCONT)

    cluster.await_workers([0, 1], 100)
    assert cluster.table()[0].node_id != before.node_id
