"""What the programs' ledger proves."""

from __future__ import annotations

import json
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _spans(lines: list[dict[str, Any]], key: str, owner: str) -> dict[str, dict[str, tuple[float, float]]]:
    """For each value of `key`: first and last sign of life of each owner."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for value, group in groupby(sorted(lines, key=lambda line: line[key]), key=lambda line: line[key]):
        for line in group:
            who = "/".join(str(line[name]) for name in owner.split("+"))
            first, last = found.setdefault(value, {}).get(who, (line["at"], line["at"]))
            found[value][who] = (min(first, line["at"]), max(last, line["at"]))
    return found


def overlaps(lines: list[dict[str, Any]], key: str, owner: str) -> list[str]:
    """Pairs of owners that were alive at one moment on the same `key` (e.g. chips)."""
    wrong = []
    for value, owners in _spans(lines, key, owner).items():
        ordered = sorted(owners.items(), key=lambda item: item[1])
        for (one, (_, end)), (two, (start, _)) in pairwise(ordered):
            if start <= end:
                wrong.append(f"{value}: {two} began {end - start:.2f} s before the last sign of {one}")
    return wrong


def chips_used_twice(lines: list[dict[str, Any]]) -> list[str]:
    return overlaps(lines, "chips", "TPUCTL_RUN_ID+TPUCTL_ATTEMPT")


def attempts_that_overlap(lines: list[dict[str, Any]]) -> list[str]:
    return overlaps(lines, "TPUCTL_RUN_ID", "TPUCTL_ATTEMPT")
