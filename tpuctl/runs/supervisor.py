"""A run's supervisor: a Ray job on the head. `python -m tpuctl.runs.supervisor FOLDER ACTIVATION`.

It serves one activation of a run: takes orders from the run's folder, one attempt after another, and writes outcomes
there. It leaves when `activations/<k>.end.json` appears, after ten minutes without an order, or on SIGTERM (then with
the attempt stopped and its outcome written, if Ray gives it the time). Nothing here depends on the agent being alive.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tpuctl.base.clock import Clock, SystemClock
from tpuctl.base.ids import Epoch, epoch_order
from tpuctl.runs.conduct import Conduct, Gang, Limits
from tpuctl.runs.model import Outcome
from tpuctl.runs.orders import Activation, Order, RunDocument, RunFolder, StopOrder

GangMaker = Callable[[RunDocument, Order, Limits], Gang]


class Supervisor:
    def __init__(
        self, folder: RunFolder, activation: int, make_gang: GangMaker, clock: Clock, limits: Limits | None = None
    ) -> None:
        self._folder, self._activation, self._make_gang = folder, activation, make_gang
        self._clock, self._limits = clock, limits or Limits()
        self._told_to_leave = False
        self._newest: Epoch | None = None
        self._done: set[int] = set()  # attempts that have an outcome or are not ours: their files need no second look

    def leave(self) -> None:
        """From a signal handler: stop what runs, then go."""
        self._told_to_leave = True

    def serve(self) -> None:
        self._folder.write_activation(self._activation, Activation(os.getpid(), self._clock.now()))
        idle_since_s = self._clock.monotonic()
        while not (self._told_to_leave or self._folder.is_ended(self._activation)):
            order = self._next_order()
            if order is not None:
                self._carry_out(order)
                idle_since_s = self._clock.monotonic()
            elif self._clock.monotonic() - idle_since_s > self._limits.idle_s:
                return
            else:
                self._clock.sleep(self._limits.poll_s)

    def _next_order(self) -> Order | None:
        """The oldest order of this activation that has no outcome."""
        for attempt in self._folder.orders():
            if attempt in self._done:
                continue
            order = self._folder.order(attempt)
            if order is not None and order.activation == self._activation and self._folder.outcome(attempt) is None:
                return order
            self._done.add(attempt)
        return None

    def _carry_out(self, order: Order) -> None:
        document = self._folder.document()
        if document is None or self._is_stale(order):
            why = "run.json is missing" if document is None else f"epoch {order.epoch} is over: {self._newest} came"
            at = self._clock.now()
            self._folder.write_outcome(Outcome(order.attempt, "not-started", (), (), at, None, why))
            return
        limits = self._limits.within(document.lease_s)
        gang = self._make_gang(document, order, limits)
        Conduct(self._folder, document, order, gang, self._clock, limits, self._leaving).run()

    def _is_stale(self, order: Order) -> bool:
        """Orders of an epoch older than one heard of come from an agent that no longer counts."""
        if self._newest is not None and epoch_order(order.epoch) < epoch_order(self._newest):
            return True
        self._newest = order.epoch
        return False

    def _leaving(self) -> StopOrder | None:
        if self._told_to_leave:
            return StopOrder("the supervisor was told to leave", self._limits.loss_grace_s, self._clock.now())
        if self._folder.is_ended(self._activation):
            return StopOrder("the activation was ended", self._limits.loss_grace_s, self._clock.now())
        return None


def main() -> None:
    if len(sys.argv) != 3:
        print("usage: python -m tpuctl.runs.supervisor FOLDER ACTIVATION", file=sys.stderr)
        sys.exit(2)
    import ray

    from tpuctl.runs.gang import RayGang

    # The address comes from RAY_ADDRESS, which Ray sets for its jobs, the token from RAY_AUTH_TOKEN_PATH.
    ray.init(logging_level="ERROR", log_to_driver=False, namespace="tpuctl")
    clock = SystemClock()
    supervisor = Supervisor(
        RunFolder(Path(sys.argv[1])),
        int(sys.argv[2]),
        lambda document, order, limits: RayGang(document, order, clock, limits),
        clock,
    )
    signal.signal(signal.SIGTERM, lambda *_: supervisor.leave())
    supervisor.serve()


if __name__ == "__main__":
    main()
