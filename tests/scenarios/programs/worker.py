"""A program as light as a program can be that behaves on chips as libtpu does: it locks one file a chip for life.

Every step appends a line to a ledger that outlives everything: who, on which chips, when. The stories read it to prove
that no chip was used twice and that no two attempts of a run overlapped.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import IO


def lock_chips() -> list[IO[bytes]]:
    held: list[IO[bytes]] = []
    for device in sorted(Path(os.environ["TPU_DEV_ROOT"]).glob("accel*")):
        file = device.open("rb+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"The TPU is already in use by another process ({device}).", file=sys.stderr)
            sys.exit(1)
        held.append(file)
    return held


def write_line(ledger: Path, event: str, step: int) -> None:
    names = ("TPUCTL_RUN", "TPUCTL_RUN_ID", "TPUCTL_ATTEMPT", "TPUCTL_RANK", "TPUCTL_WORLD_SIZE", "TPUCTL_SLICE_ID")
    line: dict[str, str | int | float] = {name: os.environ.get(name, "") for name in names}
    line |= {
        "chips": os.environ["TPU_DEV_ROOT"],
        "event": event,
        "step": step,
        "at": time.clock_gettime(time.CLOCK_BOOTTIME),
    }
    descriptor = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, (json.dumps(line) + "\n").encode())
    finally:
        os.close(descriptor)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--pause", type=float, default=0.1)
    parser.add_argument("--exit-code", type=int, default=0, help="what rank 1 (or 0, alone) ends with")
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM")
    arguments = parser.parse_args()
    stop = []
    if arguments.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    chips = lock_chips()
    folder = Path(os.environ["TPUCTL_CHECKPOINT_DIR"])
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "step"
    step = int(kept.read_text()) if kept.exists() else 0
    rank = int(os.environ["TPUCTL_RANK"])
    write_line(arguments.ledger, "start", step)
    print(f"start step={step} chips={len(chips)}", flush=True)
    while step < arguments.steps and not stop:
        time.sleep(arguments.pause)
        step += 1
        write_line(arguments.ledger, "step", step)
        print(f"step {step}", flush=True)
        if rank == 0:
            beside = folder / ".step.tmp"
            beside.write_text(str(step))
            beside.replace(kept)
    write_line(arguments.ledger, "end", step)
    if stop:
        return 143
    culprit = min(1, int(os.environ["TPUCTL_WORLD_SIZE"]) - 1)
    return arguments.exit_code if rank == culprit else 0


if __name__ == "__main__":
    sys.exit(main())
