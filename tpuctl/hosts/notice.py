"""The notice of preemption, seen as soon as the metadata server knows it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tpuctl.base.clock import Clock
from tpuctl.hosts.metadata import Metadata, MetadataError

WAIT_S = 60
_PAUSE_S = 2.0
_STEP_S = 0.25


class NoticeWatch:
    """Calls `on_notice` once, on its own thread, when `instance/preempted` says TRUE.

    A metadata server that does not answer is asked again; it never counts as a notice.
    """

    def __init__(self, metadata: Metadata, clock: Clock, on_notice: Callable[[], None]) -> None:
        self._metadata = metadata
        self._clock = clock
        self._on_notice = on_notice
        self._thread = threading.Thread(target=self._run, name="notice", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        etag = "0"
        while True:
            asked_s = self._clock.monotonic()
            try:
                value = self._metadata.wait("preempted", etag, WAIT_S)
            except MetadataError:
                self._clock.sleep(_PAUSE_S)
                continue
            if value is not None and value.text.strip() == "TRUE":
                self._on_notice()
                return
            # A server that knows no waiting answers at once, and must not be asked without a pause.
            etag = value.etag if value is not None and value.etag else "0"
            if self._clock.monotonic() - asked_s < _STEP_S:
                self._clock.sleep(_STEP_S)
