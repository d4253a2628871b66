"""A run's folder: orders of the agent and outcomes of its supervisors, as files (docs/architecture.md lists them).

One writer a file. Every file is renamed into place whole, except the journal, which is appended and synced a line at a
time: its reader leaves a torn last line alone until it is whole. Instants are RFC 3339 in UTC with milliseconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuctl.base.files import read_json, write_json_atomic
from tpuctl.base.ids import Epoch, PoolName, QrName, RunId, RunName, SliceName, Zone
from tpuctl.base.units import Instant
from tpuctl.runs.model import HostLoss, Outcome, RankExit, SliceView


@dataclass(frozen=True, slots=True)
class RunDocument:
    """run.json: what is the same for all attempts of a run."""

    run: RunName
    id: RunId
    epoch: Epoch  # at submission; an order names its own
    command: str | tuple[str, ...]  # a shell line, or argv
    env: tuple[tuple[str, str], ...]
    checkpoint_dir: str
    grace_s: float
    bundle: str  # sha256; "" = none
    hold_s: float
    lease_s: float
    pool: PoolName  # the preferred one


@dataclass(frozen=True, slots=True)
class OrderedSlice:
    slice: SliceName
    incarnation: QrName
    zone: Zone
    pool: PoolName
    accelerator: str
    hosts: int
    chips_per_host: int

    @classmethod
    def of(cls, view: SliceView) -> OrderedSlice:
        return cls(
            view.slice, view.incarnation, view.zone, view.pool, view.accelerator, view.hosts, view.chips_per_host
        )


@dataclass(frozen=True, slots=True)
class Order:
    """orders/<n>.json: run attempt n on these slices, in rank order."""

    attempt: int
    epoch: Epoch
    activation: int
    slices: tuple[OrderedSlice, ...]
    at: Instant


@dataclass(frozen=True, slots=True)
class StopOrder:
    reason: str
    grace_s: float
    at: Instant


@dataclass(frozen=True, slots=True)
class Activation:
    """activations/<k>.json: the supervisor that serves it."""

    pid: int
    started_at: Instant


@dataclass(frozen=True, slots=True)
class JournalEvent:
    at: Instant
    event: str
    fields: Mapping[str, Any]  # JSON values, by event: docs/architecture.md


class RunFolder:
    """Typed access to `$PREFIX/data/runs/<run id>/`. Reads give None for what is not there.

    Raises ValueError for a file that is there and does not read: it was not written by this version of tpuctl.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    # The agent's side.

    def create(self, document: RunDocument) -> None:
        """Make the folder, readable by its owner only (the environment may be private), and write run.json."""
        for part in ("orders", "activations", "attempts"):
            (self.path / part).mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)
        command = document.command if isinstance(document.command, str) else list(document.command)
        fields = {**_plain(document), "command": command, "env": [list(pair) for pair in document.env]}
        write_json_atomic(self.path / "run.json", fields, mode=0o600)

    def write_order(self, order: Order) -> None:
        fields = {**_plain(order), "slices": [_plain(each) for each in order.slices]}
        write_json_atomic(self.path / "orders" / f"{order.attempt}.json", fields)

    def write_stop(self, attempt: int, stop: StopOrder) -> None:
        write_json_atomic(self.path / "orders" / f"{attempt}.stop.json", _plain(stop))

    def end_activation(self, activation: int, at: Instant) -> None:
        write_json_atomic(self.path / "activations" / f"{activation}.end.json", {"at": at.iso()})

    def outcome(self, attempt: int) -> Outcome | None:
        document = read_json(self.attempt_path(attempt) / "outcome.json")
        return None if document is None else _read_outcome(document)

    def journal(self, attempt: int, offset: int = 0) -> tuple[tuple[JournalEvent, ...], int]:
        """Whole events from a byte offset on, and the offset to go on from."""
        try:
            with (self.attempt_path(attempt) / "journal.jsonl").open("rb") as file:
                file.seek(offset)
                data = file.read()
        except FileNotFoundError:
            return (), offset
        whole = data[: data.rfind(b"\n") + 1]
        return tuple(_read_event(line) for line in whole.splitlines() if line.strip()), offset + len(whole)

    def activation(self, activation: int) -> Activation | None:
        document = read_json(self.path / "activations" / f"{activation}.json")
        return None if document is None else Activation(document["pid"], Instant.parse(document["started_at"]))

    # The supervisor's side.

    def document(self) -> RunDocument | None:
        found = read_json(self.path / "run.json")
        if found is None:
            return None
        command = found["command"]
        return RunDocument(
            RunName(found["run"]),
            RunId(found["id"]),
            Epoch(found["epoch"]),
            command if isinstance(command, str) else tuple(command),
            tuple((name, value) for name, value in found["env"]),
            found["checkpoint_dir"],
            found["grace_s"],
            found["bundle"],
            found["hold_s"],
            found["lease_s"],
            PoolName(found["pool"]),
        )

    def orders(self) -> tuple[int, ...]:
        """Numbers of the attempts that were ordered, ascending."""
        names = (entry.name.removesuffix(".json") for entry in (self.path / "orders").glob("*.json"))
        return tuple(sorted(int(name) for name in names if name.isdigit()))

    def order(self, attempt: int) -> Order | None:
        found = read_json(self.path / "orders" / f"{attempt}.json")
        if found is None:
            return None
        slices = tuple(_read_slice(each) for each in found["slices"])
        at = Instant.parse(found["at"])
        return Order(found["attempt"], Epoch(found["epoch"]), found["activation"], slices, at)

    def stop(self, attempt: int) -> StopOrder | None:
        found = read_json(self.path / "orders" / f"{attempt}.stop.json")
        return None if found is None else StopOrder(found["reason"], found["grace_s"], Instant.parse(found["at"]))

    def is_ended(self, activation: int) -> bool:
        return (self.path / "activations" / f"{activation}.end.json").exists()

    def write_activation(self, activation: int, started: Activation) -> None:
        write_json_atomic(self.path / "activations" / f"{activation}.json", _plain(started))

    def append(self, attempt: int, at: Instant, event: str, **fields: object) -> None:
        """One line, synced before this returns. A torn line of a former writer is first closed by a newline."""
        path = self.attempt_path(attempt) / "journal.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"at": at.iso(), "event": event, **fields}, sort_keys=True).encode() + b"\n"
        with path.open("ab+") as file:
            if file.tell() and not _ends_whole(file.fileno(), file.tell()):
                line = b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def write_outcome(self, outcome: Outcome) -> None:
        fields = {
            "attempt": outcome.attempt,
            "kind": outcome.kind,
            "exits": [_plain(each) for each in outcome.exits],
            "hosts": [_plain(each) for each in outcome.losses],
            "fence_until": None if outcome.fence_until is None else outcome.fence_until.iso(),
            "at": outcome.at.iso(),
            "detail": outcome.detail,
        }
        path = self.attempt_path(outcome.attempt)
        path.mkdir(parents=True, exist_ok=True)
        write_json_atomic(path / "outcome.json", fields)

    # Both sides.

    def attempt_path(self, attempt: int) -> Path:
        return self.path / "attempts" / str(attempt)

    def log_path(self, attempt: int, rank: int) -> Path:
        return self.attempt_path(attempt) / "logs" / f"{rank}.log"


def _plain(record: Any) -> dict[str, Any]:
    """The fields of a dataclass, with instants as text."""
    values = {name: getattr(record, name) for name in record.__dataclass_fields__}
    return {name: value.iso() if isinstance(value, Instant) else value for name, value in values.items()}


def _ends_whole(descriptor: int, size: int) -> bool:
    return os.pread(descriptor, 1, size - 1) == b"\n"


def _read_event(line: bytes) -> JournalEvent:
    """A line that a crash tore and a later writer closed reads as the event `torn`."""
    try:
        found = json.loads(line)
        return JournalEvent(Instant.parse(found.pop("at")), found.pop("event"), found)
    except (ValueError, KeyError, AttributeError):
        return JournalEvent(Instant(0.0), "torn", {})


def _read_slice(found: Mapping[str, Any]) -> OrderedSlice:
    return OrderedSlice(
        SliceName(found["slice"]),
        QrName(found["incarnation"]),
        Zone(found["zone"]),
        PoolName(found["pool"]),
        found["accelerator"],
        found["hosts"],
        found["chips_per_host"],
    )


def _read_outcome(found: Mapping[str, Any]) -> Outcome:
    fence = found["fence_until"]
    return Outcome(
        found["attempt"],
        found["kind"],
        tuple(RankExit(**{**each, "at": Instant.parse(each["at"])}) for each in found["exits"]),
        tuple(HostLoss(**{**each, "at": Instant.parse(each["at"])}) for each in found["hosts"]),
        Instant.parse(found["at"]),
        None if fence is None else Instant.parse(fence),
        found.get("detail", ""),
    )
