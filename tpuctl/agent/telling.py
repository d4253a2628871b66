"""The loop that tells people: every few seconds look at what holds, tell what is due, remember what was told.

It has the records' thread for moments only, and sending has its own time limit, so that neither dispatch nor passes
wait for a webhook. Told at least once: an agent that dies between a telling and its record tells again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tpuctl.agent.home import Home
from tpuctl.agent.notices import (
    Memory,
    Notice,
    Situation,
    conditions,
    due,
    is_given_up,
    memory_document,
    parse_memory,
    told,
)
from tpuctl.agent.senders import NotToldError, channels_of
from tpuctl.base.units import Instant
from tpuctl.fleet.pass_ import REASONS
from tpuctl.spec.cluster import NotifySpec
from tpuctl.spec.document import read_cluster
from tpuctl.store.database import Store, Transaction
from tpuctl.store.records import Event

PERIOD_S = 5.0
NOTICES = "notices"  # key of the store's meta table
RECENT_RUNS = 200

Send = Callable[[str, NotifySpec, Mapping[str, Any]], Awaitable[None]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Due:
    spec: NotifySpec
    pairs: tuple[tuple[str, Notice], ...]


class Teller:
    def __init__(self, home: Home, send: Send) -> None:
        self._home = home
        self._send = send
        self._began = home.clock.now()

    async def loop(self) -> None:
        """For the service's life."""
        while True:
            await self.once()
            await asyncio.sleep(PERIOD_S)

    async def once(self) -> None:
        home = self._home
        found = await home.records.do(lambda store: self._look(store, home.clock.now()))
        if found is None or not found.pairs:
            return
        ends = await asyncio.gather(*(self._tell(found.spec, *pair) for pair in found.pairs))
        await home.records.do(lambda store: _note(store, tuple(zip(found.pairs, ends, strict=True)), home.clock.now()))

    async def _tell(self, spec: NotifySpec, channel: str, notice: Notice) -> str:
        """What went wrong, "" for nothing."""
        try:
            await self._send(channel, spec, document_of(notice, self._home.identity.cluster, self._home.clock.now()))
        except NotToldError as error:
            log.warning("%s could not be told: %s", notice.kind, error)
            return str(error)
        return ""

    def _look(self, store: Store, now: Instant) -> _Due | None:
        """What is due, after forgetting what has cleared. Also keeps the scene's word on the last pass."""
        with store.snapshot() as tx:
            stored, last = tx.spec(), tx.last_pass()
            spec = None if stored is None else read_cluster(stored.document)
            self._home.scene.last_pass = None if spec is None else (self._began if last is None else last.ended_at)
            if spec is None or not channels_of(spec.notify):
                return None
            before = _memory(tx, now)
            situation = Situation(
                spec,
                tx.existing_incarnations(),
                tx.zone_holds(),
                json.loads(tx.meta(REASONS) or "{}"),
                tx.recent_runs(RECENT_RUNS),
                self._began if last is None else max(last.ended_at, self._began),
            )
            fresh = tx.meta(NOTICES) is None
        holding = conditions(situation, before.since, now)
        pairs, after = due(before, holding, channels_of(spec.notify), now)
        if fresh or after != before:
            with store.transaction() as tx:
                tx.put_meta(NOTICES, json.dumps(memory_document(after)))
        return _Due(spec.notify, pairs)


def document_of(notice: Notice, cluster: str, now: Instant) -> dict[str, Any]:
    """What command and webhook get. `text` is the whole message: chat services show it as it is."""
    return {
        "version": 1,
        "at": now.iso(),
        "cluster": cluster,
        "kind": notice.kind,
        "subject": notice.subject,
        "text": " ".join(f"tpuctl {cluster}: {notice.text}".split()),
    }


def _note(store: Store, ends: tuple[tuple[tuple[str, Notice], str], ...], now: Instant) -> None:
    with store.transaction() as tx:
        memory = _memory(tx, now)
        for (channel, notice), failure in ends:
            memory = told(memory, channel, notice, now, arrived=not failure)
            if failure and is_given_up(memory, channel, notice):
                text = f"nobody could be told of {notice.kind} by {channel}: {failure}"
                tx.add_event(Event(now, "notify-failed", notice.subject, text))
        tx.put_meta(NOTICES, json.dumps(memory_document(memory)))


def _memory(tx: Transaction, now: Instant) -> Memory:
    text = tx.meta(NOTICES)
    try:
        return Memory(now) if text is None else parse_memory(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        log.warning("what was told does not read and counts as nothing: %s", error)
        return Memory(now)
