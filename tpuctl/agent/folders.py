"""The runs' folders as the agent keeps them: what follows from the store is written here if it is missing.

Every method may be repeated at any time, and a killed agent's next life does repeat them. A file that does not read
(another version wrote it, or somebody's editor) is told in the log and counts as not there: it may stop its own run,
never the others'.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from tpuctl.agent.places import Identity, Places
from tpuctl.base.ids import QrName, RunId
from tpuctl.base.units import Instant
from tpuctl.hosts.detection import Detection
from tpuctl.runs.model import Outcome
from tpuctl.runs.orders import Order, OrderedSlice, RunDocument, RunFolder, StopOrder
from tpuctl.runs.submit import document_of, resolve
from tpuctl.spec.accelerators import accelerator
from tpuctl.spec.cluster import ClusterSpec
from tpuctl.spec.document import read_run
from tpuctl.spec.run import RunSpec
from tpuctl.store.records import Attempt, Incarnation, Run

T = TypeVar("T")

log = logging.getLogger(__name__)


class Folders:
    def __init__(self, places: Places, me: Identity, detection: Detection) -> None:
        self._places = places
        self._me = me
        self._detection = detection

    def of(self, run_id: RunId) -> RunFolder:
        return RunFolder(self._places.runs / run_id)

    # What supervisors wrote.

    def started_at(self, attempt: Attempt) -> Instant | None:
        """When all ranks ran; None while they do not."""
        events, _ = self.of(attempt.run_id).journal(attempt.n)
        return next((event.at for event in events if event.event == "started"), None)

    def outcome(self, attempt: Attempt) -> Outcome | None:
        what = f"run {attempt.run_id}, attempt {attempt.n}: its outcome"
        return self._readable(what, lambda: self.of(attempt.run_id).outcome(attempt.n))

    def began(self, attempt: Attempt) -> bool:
        """The supervisor of this attempt's activation came up once."""
        return (self.of(attempt.run_id).path / "activations" / f"{attempt.activation}.json").exists()

    def _readable(self, what: str, read: Callable[[], T | None]) -> T | None:
        try:
            return read()
        except (ValueError, KeyError, TypeError) as error:
            log.warning("%s does not read: %s: %s", what, type(error).__name__, error)
            return None

    # What the agent writes.

    def document(self, run: Run, run_spec: RunSpec, spec: ClusterSpec) -> RunDocument:
        """Raises UserError for a run that this cluster can never run."""
        return document_of(run_spec, spec, resolve(run_spec, spec), run.id, self._me.epoch, run.bundle)

    def prepare(self, run: Run, document: RunDocument) -> None:
        """Write run.json unless it is there as it should be. What it says of the run stays as submitted, above all
        where the checkpoints are (A54); hold and lease are this head's: they were checked against each other."""
        wanted = replace(document, hold_s=self._detection.hold_s, lease_s=self._detection.lease_s)
        if self._written(run.id) != wanted:
            self.of(run.id).create(wanted)

    def _written(self, run_id: RunId) -> RunDocument | None:
        return self._readable(f"run {run_id}: run.json", self.of(run_id).document)

    def write_order(
        self, run: Run, attempt: Attempt, rows: Mapping[QrName, Incarnation], spec: ClusterSpec, now: Instant
    ) -> None:
        folder = self.of(run.id)
        if (folder.path / "orders" / f"{attempt.n}.json").exists():
            return
        missing = [name for _, name in attempt.slices if name not in rows]
        if missing:
            log.error("run %s, attempt %d: no record of %s: no order is written", run.id, attempt.n, ", ".join(missing))
            return
        self.prepare(run, self._written(run.id) or self.document(run, read_run(run.spec_json), spec))
        self.end_activation(run.id, attempt.activation - 1, now)  # whoever served it before is not to take this order
        slices = tuple(ordered_slice(rows[name]) for _, name in attempt.slices)
        folder.write_order(Order(attempt.n, attempt.epoch, attempt.activation, slices, attempt.ordered_at))

    def write_stop(self, attempt: Attempt, grace_s: float) -> None:
        """The first stop order stands; one whose grace was lost with a killed agent gets the run's own."""
        folder = self.of(attempt.run_id)
        if attempt.stopping_at is None or (folder.path / "orders" / f"{attempt.n}.stop.json").exists():
            return
        folder.write_stop(attempt.n, StopOrder(attempt.stop_reason, grace_s, attempt.stopping_at))

    def end_activation(self, run_id: RunId, activation: int, at: Instant) -> None:
        folder = self.of(run_id)
        if activation > 0 and folder.path.is_dir() and not folder.is_ended(activation):
            folder.end_activation(activation, at)


def ordered_slice(row: Incarnation) -> OrderedSlice:
    chips = accelerator(row.accelerator).chips_per_host
    return OrderedSlice(row.slice_name, row.name, row.zone, row.pool, row.accelerator, row.hosts, chips)
