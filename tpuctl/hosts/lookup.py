"""Asking Google's services with the VM's own identity: where the head is, and the cluster's secret.

Google's client costs 0.5 s and 60 MB, which a daemon beside a training program must not hold for its life: the daemons
run `python -m tpuctl.hosts find-head` and `… read-token` as short-lived children. The secret goes into the token file
and nowhere else; no output and no argument ever holds it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tpuctl.base.clock import SystemClock
from tpuctl.base.errors import RetryLaterError
from tpuctl.base.files import write_atomic
from tpuctl.base.ids import Epoch, epoch_of
from tpuctl.base.process import run
from tpuctl.hosts.config import VmConfig, VmPlaces

_LIMIT_S = 60.0


class CloudLookupError(RetryLaterError):
    """The cloud could not be asked, or has no such thing (yet)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 5.0)


@dataclass(frozen=True, slots=True)
class FoundHead:
    address: str
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class CloudLookup:
    """The two questions, each asked by a child process. Both raise CloudLookupError."""

    find_head: Callable[[], FoundHead]
    read_token: Callable[[], None]  # writes the token file


def cloud_lookup() -> CloudLookup:
    python = (sys.executable, "-m", "tpuctl.hosts")
    return CloudLookup(lambda: _found(_ask((*python, "find-head"))), lambda: _ignore(_ask((*python, "read-token"))))


def print_head(config: VmConfig) -> int:
    """The verb `find-head`. Raises CloudError."""
    from tpuctl.cloud.compute import RestCompute

    compute = RestCompute(config.endpoints.compute, config.project, SystemClock())
    instance = compute.get_instance(config.head_zone, config.head_name)
    print(json.dumps({"address": instance.address, "epoch": epoch_of(instance.created)}))
    return 0


def write_token(config: VmConfig, places: VmPlaces) -> int:
    """The verb `read-token`. Raises CloudError."""
    from tpuctl.cloud.secrets import RestSecrets

    secret = RestSecrets(config.endpoints.secretmanager, config.project).read_secret(config.secret)
    write_atomic(places.token, secret.strip().encode(), mode=0o600)
    return 0


def _ask(argv: Sequence[str]) -> str:
    try:
        done = run(argv, timeout_s=_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise CloudLookupError(f"{argv[-1]}: no answer within {_LIMIT_S:g}s") from error
    if done.returncode != 0:
        raise CloudLookupError(f"{argv[-1]}: {done.stderr.strip()[-500:] or f'exit {done.returncode}'}")
    return done.stdout


def _found(text: str) -> FoundHead:
    try:
        document = json.loads(text)
        return FoundHead(str(document["address"]), Epoch(document["epoch"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CloudLookupError(f"find-head: unreadable answer {text[:200]!r}") from error


def _ignore(_: str) -> None:
    """read-token has no output."""
