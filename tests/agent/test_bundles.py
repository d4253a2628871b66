"""Bundles are stored whole under their digest, or not at all."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tpuctl.agent.answers import BadRequestError
from tpuctl.agent.bundles import Bundles

DATA = b"an archive" * 1000
DIGEST = hashlib.sha256(DATA).hexdigest()


async def pieces(data: bytes, size: int = 999) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


def receive(bundles: Bundles, digest: str, data: bytes, announced: int | None = None) -> int:
    return asyncio.run(bundles.receive(digest, pieces(data), announced))


def test_bundle_is_there_after_it_arrived(tmp_path: Path) -> None:
    bundles = Bundles(tmp_path)
    assert not bundles.has(DIGEST)

    assert receive(bundles, DIGEST, DATA, len(DATA)) == len(DATA)

    assert bundles.has(DIGEST)
    assert bundles.path(DIGEST).read_bytes() == DATA


def test_bundle_with_another_digest_leaves_nothing(tmp_path: Path) -> None:
    bundles = Bundles(tmp_path)

    with pytest.raises(BadRequestError, match="have digest"):
        receive(bundles, DIGEST, DATA + b"!")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("announced", [None, len(DATA)])
def test_bundle_above_the_limit_is_refused_announced_or_not(tmp_path: Path, announced: int | None) -> None:
    bundles = Bundles(tmp_path, limit_bytes=len(DATA) - 1)

    with pytest.raises(BadRequestError, match="larger than") as refusal:
        receive(bundles, DIGEST, DATA, announced)

    assert refusal.value.kind == "too-large"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "../../etc/passwd", DIGEST.upper(), DIGEST[:-1], DIGEST + "0"])
def test_only_a_digest_names_a_bundle(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadRequestError, match="SHA-256"):
        Bundles(tmp_path).path(name)


def test_next_life_clears_what_the_last_one_did_not_finish(tmp_path: Path) -> None:
    receive(Bundles(tmp_path), DIGEST, DATA)
    (tmp_path / ".incoming-0123").write_bytes(b"half")

    Bundles(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == [DIGEST]
