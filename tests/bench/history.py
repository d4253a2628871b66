"""`status` and `why` of a head with a long past beside one with none: whole commands, and the agent's answers alone.

The long past: 100,000 events and 2,000 incarnations that are gone, of the ten slots that both heads have now.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from tests.agent.serving import TOKEN, Service, serve
from tests.agent.stage import CLUSTER, a_cluster_spec, a_ready_slice
from tests.bench.commands import cost
from tpuctl.agent.places import Places
from tpuctl.base.clock import Clock, SystemClock
from tpuctl.base.web import call
from tpuctl.head.folder import ClusterFolder, KnownHead
from tpuctl.head.reach import AGENT_PORT
from tpuctl.spec.document import dump
from tpuctl.store.database import Store
from tpuctl.store.records import Event, Phase

SLOTS, PAST, EVENTS = 10, 2_000, 100_000
LIMIT = 1.5
KINDS = ("requested", "waiting", "ready", "lost", "deleting", "gone")
SPEC = f"version: 1\ncluster: {CLUSTER}\nproject: p\nbackend: emulator\n"


def fill(path: Path, clock: Clock, past: int, events: int) -> None:
    now = clock.now()
    with closing(Store.open(path, clock=clock, create=True)) as store, store.transaction() as tx:
        document = dump(a_cluster_spec(SLOTS))
        tx.put_spec(document, "", now)
        tx.put_meta("wanted", "up")
        for i in range(past):
            slot, n = i % SLOTS, i // SLOTS + 1
            ended = now.plus(-3600.0 * (past - i))
            tx.put_incarnation(
                replace(a_ready_slice(slot, ended, n), phase=Phase.GONE, cloud_state="", node_state="", joined=0)
            )
        for slot in range(SLOTS):
            tx.put_incarnation(a_ready_slice(slot, now, past // SLOTS + 1))
        for i in range(events):
            subject = f"{CLUSTER}-v4-{i % SLOTS}-t6m8gb-{i % (past // SLOTS) + 1}"
            tx.add_event(Event(now.plus(-30.0 * (events - i)), KINDS[i % len(KINDS)], subject, "as the cloud said"))


@dataclass(frozen=True, slots=True)
class Side:
    """One head, and the home of a client that knows it."""

    environment: dict[str, str]
    service: Service

    def command(self, *words: str) -> float:
        """Wall seconds of the whole process."""
        return cost([sys.executable, "-m", "tpuctl.cli.main", *words], self.environment)[0]

    def answer(self, path: str) -> float:
        """Seconds of one call to the agent."""
        began = time.monotonic()
        answer = call("GET", self.service.root + path, token=TOKEN, timeout_s=10)
        assert answer.status == 200, answer.text()
        return time.monotonic() - began


def build(stack: ExitStack, folder: Path, address: str, past: int, events: int) -> Side:
    clock = SystemClock()
    places = Places(folder / "data")
    places.data.mkdir(parents=True)
    fill(places.store, clock, past, events)
    home, spec = folder / "home", folder / "tpuctl.yaml"
    spec.write_text(SPEC)
    known = ClusterFolder(home, CLUSTER)
    known.save_head(KnownHead("us-central2-b", f"tpuctl-{CLUSTER}-head", address))
    known.save_token(TOKEN)
    environment = dict(os.environ) | {"TPUCTL_HOME": str(home), "TPUCTL_SPEC": str(spec), "NO_COLOR": "1"}
    return Side(environment, stack.enter_context(serve(places, clock, address, AGENT_PORT)))


def bench(rounds: int) -> None:
    measured: dict[str, Callable[[Side], float]] = {
        "tpuctl status": lambda side: side.command("status"),
        "tpuctl why v4-0": lambda side: side.command("why", "v4-0"),
        "agent /v1/status": lambda side: side.answer("/v1/status"),
        "agent /v1/why": lambda side: side.answer("/v1/why/v4-0"),
    }
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        sides = {
            "empty": build(stack, Path(name) / "empty", "127.99.0.2", SLOTS, 0),
            "long": build(stack, Path(name) / "long", "127.99.0.3", PAST, EVENTS),
        }
        seen: dict[tuple[str, str], list[float]] = {}
        for turn in range(rounds + 1):
            for what, measure in measured.items():
                for which, side in sides.items():
                    seconds = measure(side)
                    if turn:  # the first round fills caches
                        seen.setdefault((what, which), []).append(seconds)
    print(f"  {'':<18} {'empty':>9} {f'{EVENTS:,} events, {PAST:,} gone':>32}   ratio (limit {LIMIT})")
    for what in measured:
        empty, long = median(seen[what, "empty"]), median(seen[what, "long"])
        print(f"  {what:<18} {empty:8.4f}s {long:31.4f}s   {long / empty:.2f}")
