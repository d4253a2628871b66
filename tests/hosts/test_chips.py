"""Devices and their holders, on files of a directory. The holders are real processes."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tpuctl.base.clock import SystemClock
from tpuctl.hosts.chips import ChipPlaces, find_holders, is_program_of_ours
from tpuctl.hosts.cleanup import KEPT_SESSIONS, clean_up, end_ray, prune_sessions, ray_mark
from tpuctl.hosts.config import VmPlaces


@pytest.fixture
def vm(tmp_path: Path) -> VmPlaces:
    (tmp_path / "tpuctl").mkdir()
    return VmPlaces(tmp_path / "tpuctl", tmp_path)


@pytest.fixture
def chips(tmp_path: Path) -> ChipPlaces:
    places = ChipPlaces(tmp_path / "dev", tmp_path / "tmp")
    places.devices.mkdir()
    places.temporary.mkdir()
    for number in (0, 1, 2, 10):
        (places.devices / f"accel{number}").touch()
    return places


@contextmanager
def holding(path: Path, **environment: str) -> Iterator[int]:
    """A process with `path` open; yields its pid."""
    code = "import sys; held = open(sys.argv[1]); print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()


def test_chips_are_device_files_by_number_and_nothing_else(chips: ChipPlaces) -> None:
    (chips.devices / "accelerator").touch()
    (chips.devices / "accel7").mkdir()

    assert [path.name for path in chips.chips()] == ["accel0", "accel1", "accel2", "accel10"]


def test_newer_chips_are_numbered_vfio_files(tmp_path: Path) -> None:
    (tmp_path / "vfio").mkdir()
    for name in ("0", "1", "vfio", "devices"):
        (tmp_path / "vfio" / name).touch()

    assert [path.name for path in ChipPlaces(tmp_path, tmp_path).chips()] == ["0", "1"]


def test_a_machine_without_devices_has_no_chips(tmp_path: Path) -> None:
    assert ChipPlaces(tmp_path / "none", tmp_path).chips() == ()


def test_who_has_a_chip_open_holds_it_and_a_run_s_program_is_ours(vm: VmPlaces, chips: ChipPlaces) -> None:
    with (
        holding(chips.chips()[1], HOME=str(vm.home), TPUCTL_RUN_ID="r1") as ours,
        holding(chips.chips()[2], HOME=str(vm.home)) as stranger,
    ):
        found = {holder.process.pid: holder for holder in find_holders(chips.chips(), vm)}

    assert (found[ours].ours, found[ours].path.name) == (True, "accel1")
    assert (found[stranger].ours, found[stranger].path.name) == (False, "accel2")
    assert set(found) == {ours, stranger}


def test_a_program_of_another_vm_on_this_machine_is_not_ours(vm: VmPlaces, chips: ChipPlaces) -> None:
    with holding(chips.chips()[0], HOME="/elsewhere", TPUCTL_RUN_ID="r1", PWD=f"{vm.prefix}0/x") as pid:
        assert not is_program_of_ours(pid, vm)
    with holding(chips.chips()[0], HOME="/elsewhere", TPUCTL_RUN_ID="r1", PWD=f"{vm.prefix}/attempts/r1/1") as pid:
        assert is_program_of_ours(pid, vm)


def test_a_lock_is_seen_by_the_kernel_s_table_too(
    vm: VmPlaces, chips: ChipPlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpuctl.hosts.chips._by_descriptor", lambda _: {})  # as for another user's process
    code = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(chips.chips()[3])], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (holder,) = find_holders(chips.chips(), vm)
        assert (holder.process.pid, holder.path.name) == (process.pid, "accel10")
        process.kill()


def test_a_lock_file_without_a_holder_is_removed(vm: VmPlaces, chips: ChipPlaces) -> None:
    chips.lock_file.touch()

    assert clean_up(vm, chips, SystemClock()).blockers == ()
    assert not chips.lock_file.exists()


def test_a_holder_of_ours_is_ended_before_the_lock_file_goes(vm: VmPlaces, chips: ChipPlaces) -> None:
    chips.lock_file.touch()
    with holding(chips.lock_file, HOME=str(vm.home), TPUCTL_RUN_ID="r1") as pid:
        cleaned = clean_up(vm, chips, SystemClock())

        assert cleaned.blockers == ()
        assert cleaned.ended == 1
        assert not is_program_of_ours(pid, vm)
    assert not chips.lock_file.exists()


def test_a_stranger_is_named_and_neither_it_nor_its_lock_file_is_touched(vm: VmPlaces, chips: ChipPlaces) -> None:
    chips.lock_file.touch()
    with holding(chips.lock_file, HOME="/elsewhere") as pid:
        (blocker,) = clean_up(vm, chips, SystemClock()).blockers

        assert f"process {pid}" in blocker
        assert "left alone" in blocker
        os.kill(pid, 0)
    assert chips.lock_file.exists()


def test_a_lock_of_this_very_process_does_not_block_it(vm: VmPlaces, chips: ChipPlaces) -> None:
    with chips.chips()[0].open("r+") as device:
        fcntl.flock(device, fcntl.LOCK_EX)
        assert find_holders(chips.chips(), vm) == ()


def test_rays_leftovers_are_ended_by_their_mark_and_not_those_of_a_neighbour(vm: VmPlaces, chips: ChipPlaces) -> None:
    name, _, value = ray_mark(vm).partition("=")
    with holding(chips.chips()[0], **{name: value}) as ours, holding(chips.chips()[1], **{name: value + "0"}) as other:
        assert end_ray(vm, SystemClock()) == 1
        assert {holder.process.pid for holder in find_holders(chips.chips(), vm)} == {other}
        assert ours != other


def test_only_the_newest_sessions_of_ray_are_kept(vm: VmPlaces) -> None:
    for day in range(1, 7):
        (vm.ray / f"session_2026-12-0{day}_10-00-00_1_2" / "logs").mkdir(parents=True)
    (vm.ray / "session_latest").symlink_to("session_2026-12-06_10-00-00_1_2")

    prune_sessions(vm)

    kept = sorted(path.name for path in vm.ray.iterdir())
    assert kept == [*(f"session_2026-12-0{day}_10-00-00_1_2" for day in (4, 5, 6)), "session_latest"]
    assert len(kept) == KEPT_SESSIONS + 1
