"""A pass that meets what machines and people do to it: full disks, deadlines, suspends, clock steps, a second pass
without a lock, a `down` in between (A39, A50, A51, A53)."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tpuctl.base.ids import QrName, Zone
from tpuctl.cli.main import main
from tpuctl.cloud.model import Listing, QrRequest, QueuedResource, TpuApi
from tpuctl.emulator.scenario import Latencies, Settings
from tpuctl.store.database import Store
from tpuctl.store.errors import StoreError, StoreFullError
from tpuctl.store.lock import PassLock
from tpuctl.store.records import Intent, Phase
from tpuctl.testing.builders import EPOCH, a_cluster_spec, a_pool, a_run
from tpuctl.testing.fleet_world import FleetWorld

FIRST, SECOND, THIRD = (f"lab-v4-{slot}-{EPOCH}-1" for slot in range(3))


class Meddler:
    """Calls `meddle` once: at the n-th call of the named kind, after its effect."""

    def __init__(self, tpu: TpuApi, kind: str, meddle: Callable[[], object], *, nth: int = 1) -> None:
        self._tpu, self._kind, self._meddle, self._left = tpu, kind, meddle, nth

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tpu, name)

    @property
    def has_meddled(self) -> bool:
        return self._left <= 0

    def _after(self, kind: str) -> None:
        if kind == self._kind and self._left > 0:
            self._left -= 1
            if not self._left:
                self._meddle()

    def list_queued_resources(self, zone: Zone) -> Listing[QueuedResource]:
        answer = self._tpu.list_queued_resources(zone)
        self._after("list")
        return answer

    def create_queued_resource(self, request: QrRequest, request_id: str) -> None:
        self._tpu.create_queued_resource(request, request_id)
        self._after("create")

    def delete_queued_resource(self, zone: Zone, name: QrName, request_id: str) -> None:
        self._tpu.delete_queued_resource(zone, name, request_id)
        self._after("delete")


def meddled(world: FleetWorld, kind: str, meddle: Callable[[], object], *, nth: int = 1) -> Meddler:
    meddler = Meddler(world.tpu, kind, meddle, nth=nth)
    world.wrap_tpu = lambda _tpu: meddler
    return meddler


class FullDisk:
    """SQLite's own answer, at the n-th commit that changes something and for as long as `lasts` more."""

    def __init__(self, at: int | None = None) -> None:
        self._at, self.count, self.refused = at, 0, 0

    def __call__(self, where: str) -> None:
        if where != "before":
            return
        self.count += 1
        if self.count == self._at:
            self.refused += 1
            full = sqlite3.OperationalError("database or disk is full")
            full.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise full


def history(world: FleetWorld, disk: FullDisk) -> list[StoreFullError]:
    """Two slices asked for, one lost and replaced, six passes; a pass that ends in an error is followed by the next."""
    world.store.on_commit = disk
    errors = []
    for number in range(6):
        world.emulated.pass_time(60)
        if number == 3:
            world.preempt(FIRST)
        try:
            world.run()
        except StoreFullError as error:
            errors.append(error)
            intents = {row.name: row.intent for row in world.rows()}
            assert all(intents[QrName(name)] is not Intent.PLANNED for name in world.states())
            world.restart()
    world.store.on_commit = None
    return errors


def undisturbed(tmp_path: Path) -> int:
    world = FleetWorld(tmp_path, a_cluster_spec(a_pool(slices=2)))
    disk = FullDisk()
    history(world, disk)
    world.store.close()
    return disk.count


# Counted by the next test.
COMMITS = 14


def test_the_enumeration_meets_every_commit(tmp_path: Path) -> None:
    assert undisturbed(tmp_path) == COMMITS


@pytest.mark.parametrize("at", range(1, COMMITS + 1))
def test_a51_a_disk_that_is_full_at_any_commit_leaves_no_effect_without_its_intent_and_heals(
    tmp_path: Path, at: int
) -> None:
    world = FleetWorld(tmp_path, a_cluster_spec(a_pool(slices=2)))
    disk = FullDisk(at)
    (error,) = history(world, disk)
    assert (disk.refused, error.exit_code) == (1, 1)
    assert "Make room" in str(error)

    world.settle()

    assert sorted(world.states().values()) == ["ACTIVE", "ACTIVE"]
    assert len(world.effects("POST")) == 3
    world.check_safety()
    world.store.close()


def test_nothing_is_begun_after_the_deadline_and_the_next_pass_does_the_rest(tmp_path: Path) -> None:
    world = FleetWorld(tmp_path, a_cluster_spec(a_pool(slices=6)), Settings(latencies=Latencies(accepted=0)))
    meddler = meddled(world, "create", lambda: world.emulated.pass_time(10), nth=2)

    result = world.run(deadline_s=5.0)

    assert meddler.has_meddled
    assert result.exit_code == 3
    assert result.applied is not None
    assert len(result.applied.created) == 2
    assert [line.rpartition(": ")[2] for line in result.applied.left] == ["the pass's deadline"] * 4
    assert "4 left for the next pass" in result.summary
    world.run()
    assert len(world.effects("POST")) == 6
    world.check_safety()


@pytest.mark.parametrize("kind", ["list", "create"])
def test_a53_a_machine_that_slept_in_mid_pass_does_nothing_on_what_it_saw_before(world: FleetWorld, kind: str) -> None:
    meddler = meddled(world, kind, lambda: world.emulated.pass_time(90))

    result = world.run(deadline_s=600.0)

    assert meddler.has_meddled
    assert world.effects("POST") == ([] if kind == "list" else [FIRST])
    assert result.exit_code == 3
    world.settle()
    assert sorted(world.states()) == [FIRST, SECOND]


@pytest.mark.parametrize("step_s", [7200.0, -7200.0])
@pytest.mark.parametrize("kind", ["list", "create"])
def test_a53_a_step_of_the_wall_clock_in_mid_pass_costs_no_slice(tmp_path: Path, kind: str, step_s: float) -> None:
    slow = Settings(latencies=Latencies(accepted=0, provisioning=14400))
    world = FleetWorld(tmp_path, a_cluster_spec(a_pool(slices=2)), slow)
    meddler = meddled(world, kind, lambda: world.clock.step_wall(step_s))

    world.passes(12)

    assert meddler.has_meddled
    assert world.effects("DELETE") == []
    assert sorted(world.effects("POST")) == [FIRST, SECOND]


@pytest.mark.parametrize(("kind", "nth"), [("list", 1), ("create", 1), ("create", 2)])
@pytest.mark.parametrize("lock", ["deleted", "not looked at"])
def test_a39_two_passes_at_once_without_the_lock_ask_for_each_slot_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, nth: int, lock: str
) -> None:
    world = FleetWorld(tmp_path, a_cluster_spec(a_pool(slices=3)))
    if lock == "not looked at":  # then only the store's transactions stand between the two
        monkeypatch.setattr(PassLock, "is_held", property(lambda _self: True))

    def another_pass() -> None:
        (world.directory / "pass.lock").unlink()
        world.wrap_tpu = lambda tpu: tpu
        world.run()

    meddler = meddled(world, kind, another_pass, nth=nth)
    world.run()

    assert meddler.has_meddled
    assert sorted(world.effects("POST")) == [FIRST, SECOND, THIRD]
    world.settle()
    assert sorted(world.effects("POST")) == [FIRST, SECOND, THIRD]
    assert sorted(world.states()) == [FIRST, SECOND, THIRD]
    world.check_safety()


def test_a39_what_another_pass_took_back_meanwhile_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PassLock, "is_held", property(lambda _self: True))
    world = FleetWorld(tmp_path, a_cluster_spec(a_pool(slices=3)))

    def fewer() -> None:
        (world.directory / "pass.lock").unlink()
        world.wrap_tpu = lambda tpu: tpu
        world.want(a_cluster_spec(a_pool(slices=1)))
        world.run()

    meddled(world, "create", fewer)
    result = world.run()

    assert world.effects("POST") == [FIRST]
    assert result.applied is not None
    assert [line.rpartition(": ")[2] for line in result.applied.left] == ["its record changed meanwhile"] * 2
    world.settle()
    assert list(world.states()) == [FIRST]


def test_a50_a_down_during_a_pass_ends_its_creates_and_the_next_pass_deletes(tmp_path: Path) -> None:
    world = FleetWorld(tmp_path, a_cluster_spec(a_pool(slices=3)))
    meddled(world, "create", world.want_nothing)

    result = world.run()

    assert world.effects("POST") == [FIRST]
    assert result.applied is not None
    assert all("is to go down" in line for line in result.applied.left)
    world.settle()
    assert world.states() == {}
    assert {row.phase for row in world.rows()} <= {Phase.GONE}


def test_a_store_in_no_usable_place_and_a_lock_that_cannot_be_are_typed_errors(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(StoreError, match="cannot be opened"), PassLock(tmp_path / "file" / "pass.lock"):
        raise AssertionError("it was locked")


def run_reconcile(monkeypatch: pytest.MonkeyPatch, folder: Path) -> int:
    monkeypatch.setenv("TPUCTL_EMULATOR", "http://127.0.0.1:9")  # nothing listens there: a call would be an error 3
    monkeypatch.setenv("TPUCTL_HOME", str(folder / "home"))
    monkeypatch.setattr(sys, "argv", ["tpuctl", "reconcile", "--store", str(folder), "--epoch", EPOCH])
    with pytest.raises(SystemExit) as caught:
        main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (None, 1, "there is no store"),
        (b"", 1, "is damaged: the file is empty"),
        (b"SQLite format 3\x00 and half a document", 1, "is damaged"),
        ("newer", 2, "was written by tpuctl 9.1.0"),
    ],
)
def test_a51_reconcile_on_a_store_it_cannot_use_says_so_in_one_line_and_calls_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: bytes | str | None,
    code: int,
    words: str,
) -> None:
    path = tmp_path / "store.sqlite3"
    if isinstance(content, bytes):
        path.write_bytes(content)
    if content == "newer":
        FleetWorld(tmp_path, a_cluster_spec()).store.close()
        raw = sqlite3.connect(path)
        raw.execute("UPDATE meta SET value = '9.1.0' WHERE key = 'schema_by'")
        raw.execute("PRAGMA user_version = 97")
        raw.commit()
        raw.close()
    assert run_reconcile(monkeypatch, tmp_path) == code

    said = capsys.readouterr().err.strip()
    assert words in said
    assert said.count("\n") == 0
    assert "Traceback" not in said


@pytest.mark.slow
def test_a51_reconcile_on_a_full_disk_says_so_and_calls_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = FleetWorld(tmp_path, a_cluster_spec())
    world.store.on_commit = FullDisk(1)
    monkeypatch.setattr(Store, "open", lambda *_args, **_options: world.store)

    assert run_reconcile(monkeypatch, tmp_path) == 1

    said = capsys.readouterr().err.strip()
    assert "Make room" in said
    assert said.count("\n") == 0
    assert len(world.emulated.cloud.calls) == 0


def test_a_slice_that_a_run_leases_while_a_pass_is_looking_is_not_deleted_by_it(tmp_path: Path) -> None:
    world = FleetWorld(tmp_path)
    world.settle()
    row, run = world.row(), a_run()
    world.want(a_cluster_spec(a_pool(slices=0)))

    def lease() -> None:
        with world.store.transaction() as tx:
            tx.put_run(run)
            tx.take_leases(run.id, 1, [(row.slice_name, row.name)], world.clock.now())

    meddled(world, "list", lease)
    world.passes(1)

    assert world.states() == {row.name: "ACTIVE"}
    assert world.effects("DELETE") == []
    assert not world.row().delete_request_id
    world.check_safety()
