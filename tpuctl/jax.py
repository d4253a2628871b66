"""`initialize()` for training programs: the same line on a TPU VM and on a host without TPU. Imports nothing of tpuctl.

    import tpuctl.jax
    tpuctl.jax.initialize()      # before anything makes JAX look at its devices

On a TPU VM this is `jax.distributed.initialize()`, which finds everything by itself. On a host without TPU (tpuctl's
emulator) JAX finds no cluster, so the numbers come from tpuctl's environment: as many virtual CPU devices as the host
has chips, gloo for the collectives, the coordinator on rank 0's own address. There it also does what libtpu does on a
TPU: it locks one file a chip (`$TPU_DEV_ROOT/accel0`, …) for the life of the process, so that double use is seen.

JAX's preemption service catches SIGTERM from then on. Ask `multihost_utils.reached_preemption_sync_point(step)`, or set
a handler of your own after this call; one that was set before is lost.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import sys
from pathlib import Path
from typing import IO

_locks: list[IO[str]] = []  # held until the process ends


def initialize() -> None:
    """Join the processes of this attempt; afterwards `jax.devices()` are those of all of them.

    Outside tpuctl, without its environment, this does nothing on a host without TPU: one process with its own devices.
    Raises RuntimeError if JAX has devices already, and exits with status 1 and libtpu's words if a chip is in use.
    """
    if _has_tpu():
        import jax

        jax.distributed.initialize()
        return
    if "TPUCTL_COORDINATOR" not in os.environ:
        print("tpuctl.jax: no TPU and no TPUCTL_COORDINATOR: a single process outside tpuctl", file=sys.stderr)
        return
    _initialize_on_cpu()


def _device_root() -> Path:
    return Path(os.environ.get("TPU_DEV_ROOT") or "/dev")


def _has_tpu() -> bool:
    """libtpu is installed and there are devices. An emulated chip is a plain file."""
    if importlib.util.find_spec("libtpu") is None:
        return False
    found = [*_device_root().glob("accel[0-9]*"), *_device_root().glob("vfio/[0-9]*")]
    return any(path.is_char_device() for path in found)


def _initialize_on_cpu() -> None:
    import jax
    from jax._src import xla_bridge

    if xla_bridge.backends_are_initialized():
        raise RuntimeError(
            "tpuctl.jax.initialize() came too late: JAX has its devices already. "
            "Call it before anything that looks at devices or computes (also at import time of your modules)."
        )
    rank, world = int(os.environ["TPUCTL_RANK"]), int(os.environ["TPUCTL_WORLD_SIZE"])
    chips, coordinator = int(os.environ["TPUCTL_CHIPS"]), os.environ["TPUCTL_COORDINATOR"]
    _lock_chips(chips)
    os.environ["JAX_PLATFORMS"] = "cpu"
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", chips)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator_address=coordinator,
        num_processes=world,
        process_id=rank,
        # Its own address only: by default JAX's coordinator listens on all interfaces.
        coordinator_bind_address=coordinator,
    )


def _lock_chips(chips: int) -> None:
    """As libtpu: exclusive for the life of the process, and its words when another one has it."""
    for number in range(chips):
        path = _device_root() / f"accel{number}"
        if not path.is_file():
            continue  # a host without even emulated chips: nothing to share
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            print(f"The TPU is already in use by process with pid {holder}.", file=sys.stderr, flush=True)
            sys.exit(1)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        _locks.append(file)
