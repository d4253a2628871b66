"""Names of things, each its own type, and the one rule by which queued resources are named."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NewType

from tpuctl.base.units import Instant

ClusterName = NewType("ClusterName", str)  # ≤ 16 of [a-z0-9-]
PoolName = NewType("PoolName", str)  # ≤ 16 of [a-z0-9-]
SliceName = NewType("SliceName", str)  # <pool>-<slot>: one place of a pool, whatever fills it
QrName = NewType("QrName", str)  # <cluster>-<pool>-<slot>-<epoch>-<n>: id of a queued resource, and of its node
Epoch = NewType("Epoch", str)  # base-36 of the head VM's creation time in seconds
Zone = NewType("Zone", str)
RunName = NewType("RunName", str)  # what the user calls it
RunId = NewType("RunId", str)  # unique; the same in all attempts

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
MAX_NAME = 63  # Cloud TPU and Compute names, label values


def base36(number: int) -> str:
    """Lower-case base 36. Raises ValueError if negative."""
    if number < 0:
        raise ValueError(f"negative: {number}")
    text = ""
    while True:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
        if not number:
            return text


def epoch_of(created: Instant) -> Epoch:
    """The epoch of a head VM created then. Until the year 2038 it has six digits, so text order is time order."""
    return Epoch(base36(int(created.unix_s)))


def epoch_order(epoch: Epoch) -> int:
    """Epochs compare by this number; a larger one is newer."""
    return int(epoch, 36)


@dataclass(frozen=True, slots=True)
class IncarnationId:
    """Which incarnation: the n-th queued resource of a slot in one epoch. Its text is the queued resource's id."""

    cluster: ClusterName
    pool: PoolName
    slot: int
    epoch: Epoch
    n: int

    @property
    def slice_name(self) -> SliceName:
        return slice_name(self.pool, self.slot)

    @property
    def qr_name(self) -> QrName:
        return QrName(f"{self.cluster}-{self.pool}-{self.slot}-{self.epoch}-{self.n}")

    @property
    def labels(self) -> dict[str, str]:
        """What marks the node as ours. Ownership is judged by these alone, never by the name."""
        return {
            "tpuctl-cluster": self.cluster,
            "tpuctl-pool": self.pool,
            "tpuctl-slot": str(self.slot),
            "tpuctl-epoch": self.epoch,
            "tpuctl-n": str(self.n),
        }

    @classmethod
    def from_labels(cls, labels: dict[str, str]) -> IncarnationId | None:
        """None when the labels are not a complete set of ours."""
        try:
            slot, n = int(labels["tpuctl-slot"]), int(labels["tpuctl-n"])
            int(labels["tpuctl-epoch"], 36)
            return cls(
                ClusterName(labels["tpuctl-cluster"]),
                PoolName(labels["tpuctl-pool"]),
                slot,
                Epoch(labels["tpuctl-epoch"]),
                n,
            )
        except (KeyError, ValueError):
            return None


def slice_name(pool: PoolName, slot: int) -> SliceName:
    return SliceName(f"{pool}-{slot}")


def is_plain_name(text: str, limit: int) -> bool:
    """A letter, then letters, digits and single dashes inside; at most `limit` characters."""
    return len(text) <= limit and re.fullmatch(r"[a-z](?:[a-z0-9-]*[a-z0-9])?", text) is not None
