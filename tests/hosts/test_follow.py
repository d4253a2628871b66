"""Finding the head: when the cloud is asked, and what is not taken for an answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tpuctl.base.ids import Epoch
from tpuctl.hosts.config import VmPlaces, parse_config
from tpuctl.hosts.follow import LOOKUP_EVERY_S, HeadAwayError, HeadFinder, OlderHeadError
from tpuctl.hosts.lookup import CloudLookup, CloudLookupError, FoundHead
from tpuctl.testing.clock import FakeClock
from tpuctl.testing.web import Asked, Reply, ScriptedServer

RAY = {"address": "127.0.0.1:20000", "version": "2.60.0", "python": "3.11.7", "started_at": "then"}


class Scene:
    """An agent and a cloud that count their questions."""

    def __init__(self, root: Path) -> None:
        self.answer: Any = {"cluster": "lab", "epoch": "t6m8gb", "ray": RAY}
        self.status = 200
        self.token = "right"
        self.lookups = self.token_reads = 0
        self.epoch = "t6m8gb"
        self.server = ScriptedServer(self._serve)
        self.places = VmPlaces(root, root)
        self.clock = FakeClock()
        address, port = self.server.host.split(":")
        self.address = address
        config = parse_config(
            {
                "version": 1, "role": "head", "cluster": "lab", "project": "p", "endpoints": {},
                "head": {"name": "tpuctl-lab-head", "zone": "z"}, "secret": "s", "agent_port": int(port),
                "ray_ports": [20000, 32000], "detection": {"hold_s": 25, "rejoin_s": 90},
            }
        )  # fmt: skip
        self.finder = HeadFinder(config, self.places, self.clock, CloudLookup(self._look_up, self._read_token))

    def _serve(self, asked: Asked) -> Reply:
        if asked.headers["authorization"] != f"Bearer {self.token}":
            return Reply(status=401)
        return Reply(self.answer, status=self.status)

    def _look_up(self) -> FoundHead:
        self.lookups += 1
        return FoundHead(self.address, Epoch(self.epoch))

    def _read_token(self) -> None:
        self.token_reads += 1
        self.places.token.write_text("right")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.server.close()


def test_the_cloud_is_asked_once_and_the_agent_from_then_on(scene: Scene) -> None:
    head = scene.finder.find()
    assert scene.finder.find() == head

    assert (head.epoch, head.ray_address, head.ray_started) == ("t6m8gb", "127.0.0.1:20000", "then")
    assert (scene.lookups, scene.token_reads) == (1, 1)
    assert scene.places.epoch.read_text() == "t6m8gb\n"


def test_a_head_that_does_not_answer_is_looked_up_again_but_not_at_every_try(scene: Scene) -> None:
    scene.finder.find()
    scene.server.close()

    for _ in range(5):
        with pytest.raises(HeadAwayError):
            scene.finder.find()
    assert scene.lookups == 1

    scene.clock.advance(LOOKUP_EVERY_S)
    for _ in range(5):
        with pytest.raises(HeadAwayError):
            scene.finder.find()
    assert scene.lookups == 2


def test_the_secret_is_read_again_once_after_a_refusal(scene: Scene) -> None:
    scene.places.token.write_text("old")
    scene.finder.find()
    assert scene.token_reads == 1

    scene.token = "rotated, and the secret not yet"
    with pytest.raises(HeadAwayError, match="401"):
        scene.finder.find()
    assert scene.token_reads == 2


def test_an_older_head_is_refused_whoever_names_it(scene: Scene) -> None:
    scene.places.epoch.write_text("t6m8gc\n")
    with pytest.raises(OlderHeadError):
        scene.finder.find()

    scene.epoch = "t6m8gc"
    scene.clock.advance(LOOKUP_EVERY_S)
    with pytest.raises(OlderHeadError, match="t6m8gc was heard of"):
        scene.finder.find()
    assert scene.places.epoch.read_text() == "t6m8gc\n"


def test_a_newer_head_becomes_the_one_to_obey(scene: Scene) -> None:
    scene.finder.find()
    scene.answer = scene.answer | {"epoch": "t6m8gz"}

    assert scene.finder.find().epoch == "t6m8gz"
    assert scene.places.epoch.read_text() == "t6m8gz\n"


@pytest.mark.parametrize("damaged", [b"", b"\n", b"t6m8g?\n", b"\xff\x00\xfe"])
def test_a_damaged_record_of_the_epoch_ends_no_daemon_and_is_mended(scene: Scene, damaged: bytes) -> None:
    scene.places.epoch.write_bytes(damaged)

    assert scene.finder.find().epoch == "t6m8gb"
    assert scene.places.epoch.read_text() == "t6m8gb\n"


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        ({"cluster": "lab", "epoch": "t6m8gb", "ray": None}, 200, "Ray is not up yet"),
        ({"cluster": "other", "epoch": "t6m8gb", "ray": RAY}, 200, "cluster 'other'"),
        ({"cluster": "lab", "epoch": "t6m8gb"}, 200, "unreadable"),
        ({"cluster": "lab", "epoch": "?!", "ray": RAY}, 200, "unreadable"),
        ("<html>", 200, "not JSON"),
        ([], 200, "no object"),
        ({}, 503, "503"),
    ],
)
def test_what_is_no_usable_head_is_away(scene: Scene, answer: Any, status: int, words: str) -> None:
    scene.answer, scene.status = answer, status

    with pytest.raises(HeadAwayError, match=words):
        scene.finder.find()


def test_a_cloud_that_cannot_be_asked_is_passed_on(tmp_path: Path, scene: Scene) -> None:
    def no() -> FoundHead:
        raise CloudLookupError("403")

    scene.finder._cloud = CloudLookup(no, scene._read_token)

    with pytest.raises(CloudLookupError, match="403"):
        scene.finder.find()
