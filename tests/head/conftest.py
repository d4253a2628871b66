"""A head's world: the emulated cloud under Google's real clients, on virtual time, and a maker that can be killed."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tpuctl.base.chance import SeededChance
from tpuctl.base.ids import ClusterName, Epoch, IncarnationId, PoolName, QrName, Zone
from tpuctl.cloud.compute import RestCompute
from tpuctl.cloud.model import Endpoints, QrRequest
from tpuctl.cloud.secrets import RestSecrets
from tpuctl.cloud.tpu import RestTpu
from tpuctl.head.apply import HeadApplier
from tpuctl.head.folder import ClusterFolder
from tpuctl.head.home import HeadHome
from tpuctl.head.metadata import head_metadata
from tpuctl.head.model import HeadNames, HeadWant
from tpuctl.head.sweep import Sweeper
from tpuctl.spec.cluster import DetectionSpec
from tpuctl.testing.clock import FakeClock
from tpuctl.testing.in_process import EmulatedCloud

ZONE = Zone("us-central1-a")
TPU_ZONE = Zone("us-central2-b")
CLUSTER = ClusterName("lab")


class KilledError(BaseException):
    """The process is gone: nothing catches it."""


class KillingHttp:
    """Dies at the n-th call: before it is sent, or after its effect and before its answer."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.calls = inner, 0
        self.die_at, self.after = 0, False
        self.log: list[str] = []

    def request(self, uri: str, method: str = "GET", **rest: Any) -> Any:
        self.calls += 1
        if self.calls == self.die_at and not self.after:
            raise KilledError
        answer = self.inner.request(uri, method, **rest)
        self.log.append(f"{method} {uri}")
        if self.calls == self.die_at:
            raise KilledError
        return answer

    def close(self) -> None: ...


# Reading the discovery documents costs 0.1 s: once for all worlds.
@cache
def compute_client() -> RestCompute:
    return RestCompute(EmulatedCloud.ENDPOINT, "p", FakeClock())


@cache
def secrets_client() -> RestSecrets:
    return RestSecrets(EmulatedCloud.ENDPOINT, "p")


class World:
    def __init__(self, home: Path) -> None:
        self.clock = FakeClock()
        self.emulated = EmulatedCloud(self.clock)
        self.http = KillingHttp(self.emulated.http())
        self.names = HeadNames(CLUSTER)
        self.folder = ClusterFolder(home, CLUSTER)
        self.said: list[str] = []
        self.chance = SeededChance(3)
        self.compute, self.secrets = copy(compute_client()), copy(secrets_client())
        for client in (self.compute, self.secrets):
            client._http, client._clock = self.http, self.clock
        self.tpu = RestTpu(EmulatedCloud.ENDPOINT, "p", self.clock, adapter=self.emulated.adapter())

    def home(self, zone: Zone = ZONE) -> HeadHome:
        want = HeadWant(self.names, "p", zone, "e2-standard-4")
        endpoints = Endpoints.all_at(EmulatedCloud.ENDPOINT)

        def metadata(place: Zone) -> dict[str, str]:
            return head_metadata(
                want,
                place,
                endpoints=endpoints,
                detection=DetectionSpec(),
                digest="0123456789abcdef",
                startup_script="#!/bin/sh\n",
            )

        applier = HeadApplier(self.compute, self.secrets, self.names, SeededChance(1), metadata, self.said.append)
        return HeadHome(self.compute, self.secrets, want, applier, self.folder, self.clock, self.said.append)

    def sweeper(self, zones: tuple[Zone, ...] = (TPU_ZONE,)) -> Sweeper:
        def in_the_spec(pool: str, slot: int) -> bool:
            return (pool, slot) in (("v4", 0), ("v4", 1))

        return Sweeper(self.tpu, CLUSTER, zones, in_the_spec, SeededChance(2), self.clock, self.said.append)

    def ask_for_slice(
        self, name: str, cluster: str = CLUSTER, zone: Zone = TPU_ZONE, accelerator: str = "v4-16"
    ) -> None:
        own, pool, slot, epoch, n = name.split("-")
        labels = IncarnationId(ClusterName(own), PoolName(pool), int(slot), Epoch(epoch), int(n)).labels
        labels["tpuctl-cluster"] = cluster
        request = QrRequest(QrName(name), zone, accelerator, "tpu-ubuntu2204-base", labels, {})
        self.tpu.create_queued_resource(request, self.chance.request_id())

    def slices(self) -> list[str]:
        return sorted(item.name for item in self.tpu.list_queued_resources(TPU_ZONE).items)

    def count_calls(self, work: Callable[[], object]) -> int:
        before = self.http.calls
        work()
        return self.http.calls - before

    def killed_at(self, n: int, work: Callable[[], object], *, after: bool) -> None:
        """Run `work` in a process that dies at its n-th call."""
        self.http.die_at, self.http.after = self.http.calls + n, after
        with pytest.raises(KilledError):
            work()
        self.http.die_at = 0


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def new_world(tmp_path: Path) -> Callable[[str], World]:
    """Several worlds in one test, each with its own folder."""
    return lambda name: World(tmp_path / name)
