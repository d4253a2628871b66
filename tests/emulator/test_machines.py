"""Machines as process trees: boot, environment, daemons, notice, kill, freeze, reset, disks."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tpuctl.base import process
from tpuctl.base.errors import BugError, TpuctlError
from tpuctl.emulator.events import VmDescription, VmFreeze, VmKill, VmNotice, VmReset, VmStart, VmStop, VmThaw
from tpuctl.emulator.machines import VmState, leftovers
from tpuctl.testing.machines import MachineLab, machine_lab, until

Story = Callable[[MachineLab], Coroutine[Any, Any, None]]


def tell(story: Story) -> None:
    async def inside() -> None:
        async with machine_lab() as lab:
            await story(lab)

    asyncio.run(inside())


def test_startup_script_sees_what_an_image_sets_and_nothing_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_USER", "x")

    async def story(lab: MachineLab) -> None:
        vm = await lab.vm("env -0 | tr '\\0' '\\n' | sort > $HOME/env; echo done >> $HOME/end", chips=4)
        await lab.text(vm.directory / "home" / "end")
        lines = (vm.directory / "home" / "env").read_text().splitlines()
        environment = dict(line.split("=", 1) for line in lines)
        for name in ("_", "SHLVL", "PWD", "OLDPWD", "INVOCATION_ID"):  # bash's own, and systemd's
            environment.pop(name, None)
        assert environment.pop("PATH").split(":")[0] == str(vm.directory / "bin")
        assert environment == {
            "HOME": str(vm.directory / "home"),
            "TMPDIR": str(vm.directory / "tmp"),
            "LANG": "C.UTF-8",
            "GCE_METADATA_HOST": vm.metadata_host,
            "GCE_METADATA_IP": vm.metadata_host,
            "STORAGE_EMULATOR_HOST": "http://127.0.0.1:9",
            "TPU_DEV_ROOT": str(vm.directory / "dev"),
        }
        assert sorted(path.name for path in (vm.directory / "dev").iterdir()) == [f"accel{n}" for n in range(4)]
        assert lab.booted() == ["vm"]

    tell(story)


def test_reset_runs_the_script_again_on_the_same_boot_disk() -> None:
    async def story(lab: MachineLab) -> None:
        vm = await lab.vm("echo boot >> $HOME/boots; touch $TMPDIR/x; exec sleep 1000")
        await lab.text(vm.directory / "home" / "boots")
        await until(lambda: (vm.directory / "tmp" / "x").exists(), "the script's file in TMPDIR")
        old = lab.status().processes

        await lab.machines.carry_out([VmReset("vm")])

        assert not any(process.is_alive(one) for one in old)
        assert await lab.text(vm.directory / "home" / "boots", lines=2) == "boot\nboot\n"
        assert lab.status().metadata_host == vm.metadata_host
        await until(lambda: lab.booted() == ["vm", "vm"], "a second boot report")

    tell(story)


def test_a_daemon_in_its_own_session_stays_in_the_tree_and_dies_with_the_machine() -> None:
    async def story(lab: MachineLab) -> None:
        vm = await lab.vm("setsid -f env -i /bin/sh -c 'echo $$ > $0/home/pid; exec sleep 1000' ${HOME%/home}")
        pid = int(await lab.text(vm.directory / "home" / "pid"))
        daemon = process.identify(pid)
        assert daemon in lab.status().processes  # although its environment says nothing of the machine

        await lab.machines.carry_out([VmStop("vm")])

        assert daemon is not None
        assert not process.is_alive(daemon)
        await until(lambda: not vm.directory.exists(), "the directory to go")

    tell(story)


def test_kill_is_silent_and_keeps_the_machine_listed() -> None:
    async def story(lab: MachineLab) -> None:
        vm = await lab.vm("trap 'echo told >> $HOME/told' TERM; echo up > $HOME/up; while :; do sleep 0.05; done")
        await lab.text(vm.directory / "home" / "up")

        await lab.machines.carry_out([VmKill("vm")])

        assert lab.status().state is VmState.DEAD
        assert lab.status().processes == ()
        assert leftovers(lab.root) == []
        assert not (vm.directory / "home" / "told").exists()
        address, port = vm.metadata_host.split(":")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(address, int(port))

    tell(story)


def test_what_init_left_behind_when_it_was_killed_is_killed_too() -> None:
    async def story(lab: MachineLab) -> None:
        vm = await lab.vm("setsid -f sleep 1000; echo up > $HOME/up; exec sleep 1000")
        await lab.text(vm.directory / "home" / "up")

        process.send_signal(lab.status().processes[0], signal.SIGKILL)

        await until(lambda: lab.status().state is VmState.DEAD, "the machine to be seen dead")
        await until(lambda: leftovers(lab.root) == [], "its processes to be gone")

    tell(story)


def test_frozen_machine_stands_still_until_it_is_thawed() -> None:
    async def story(lab: MachineLab) -> None:
        vm = await lab.vm(
            "setsid -f sh -c 'while :; do echo x >> $HOME/ticks; sleep 0.02; done'\nkill -STOP $$; sleep 1000"
        )
        ticks = vm.directory / "home" / "ticks"
        await lab.text(ticks, lines=2)

        await lab.machines.carry_out([VmFreeze("vm")])

        states = {row.id: row.state for row in process.all_processes()}
        assert {states[one] for one in lab.status().processes[1:]} <= {"T", "Z"}
        frozen_at = ticks.read_text().count("\n")
        await asyncio.sleep(0.15)
        assert ticks.read_text().count("\n") == frozen_at

        await lab.machines.carry_out([VmThaw("vm")])

        await lab.text(ticks, lines=frozen_at + 2)
        states = {row.id: row.state for row in process.all_processes()}
        assert "T" in {states.get(one) for one in lab.status().processes}  # what had stopped itself is left so

    tell(story)


def test_frozen_machine_can_be_stopped() -> None:
    async def story(lab: MachineLab) -> None:
        vm = await lab.vm("echo up > $HOME/up; exec sleep 1000")
        await lab.text(vm.directory / "home" / "up")
        await lab.machines.carry_out([VmFreeze("vm"), VmStop("vm")])
        assert leftovers(lab.root) == []
        assert lab.machines.processes() == ()

    tell(story)


@pytest.mark.scenario
def test_data_disk_outlives_its_machine_and_mounts_end_with_the_boot() -> None:
    async def story(lab: MachineLab) -> None:
        script = (
            "set -e; mkdir -p $HOME/data; blkid /dev/disk/by-id/google-keep || mkfs.ext4 /dev/disk/by-id/google-keep\n"
            "mountpoint -q $HOME/data || sudo mount -o discard,defaults /dev/disk/by-id/google-keep $HOME/data\n"
            "mount /dev/disk/by-id/google-keep $HOME/data\n"
            "echo $1 >> $HOME/data/boots; ! mount /dev/disk/by-id/google-other $HOME/data; echo ok >> $HOME/ok"
        )
        first = await lab.vm(script, disks=("keep",))
        await lab.text(first.directory / "home" / "ok")
        await lab.machines.carry_out([VmReset("vm")])
        await lab.text(first.directory / "home" / "ok", lines=2)
        await lab.machines.carry_out([VmStop("vm")])
        second = await lab.vm(script, disks=("keep",))
        await lab.text(second.directory / "home" / "ok")

        assert second.directory != first.directory
        assert (second.directory / "home" / "data" / "boots").read_text().count("\n") == 3

        await lab.machines.carry_out([VmStop("vm")])
        await lab.machines.delete_disk("keep")
        assert list((lab.root / "disks").iterdir()) == []

    tell(story)


def test_shutdown_from_inside_ends_the_machine() -> None:
    async def story(lab: MachineLab) -> None:
        await lab.vm("sudo shutdown -h now; sleep 1000")
        await until(lambda: lab.status().state is VmState.DEAD, "the machine to be off")
        await until(lambda: leftovers(lab.root) == [], "its processes to be gone")
        await lab.machines.carry_out([VmReset("vm")])  # and it can be started again
        await until(lambda: len(lab.booted()) == 2, "the second boot")

    tell(story)


def test_notice_turns_preempted_then_ends_the_startup_script() -> None:
    async def story(lab: MachineLab) -> None:
        script = r"""
ask() {
  exec 3<>/dev/tcp/${GCE_METADATA_HOST/:/\/}
  printf 'GET /computeMetadata/v1/instance/%s HTTP/1.0\r\nMetadata-Flavor: Google\r\n\r\n' $1 >&3
  tail -n 1 <&3
}
trap 'ask preempted > $HOME/seen; echo >> $HOME/seen; exit' TERM
echo up > $HOME/up; while :; do sleep 0.02; done
"""
        vm = await lab.vm(script, attributes={"shutdown-script": "echo $0 > $HOME/shutdown"})
        await lab.text(vm.directory / "home" / "up")

        await lab.machines.carry_out([VmNotice("vm")])

        assert await lab.text(vm.directory / "home" / "seen") == "TRUE\n"
        await lab.text(vm.directory / "home" / "shutdown")
        assert lab.status().state is VmState.RUNNING  # the machine goes when the cloud says so

    tell(story)


@pytest.mark.scenario
def test_image_keeps_the_users_machine_untouched() -> None:
    async def story(lab: MachineLab) -> None:
        vm = await lab.vm(
            "set -e; sudo -u root A=1 env | grep ^A=1; apt-get update; snap wait system seed.loaded\n"
            "python -c 'import aiohttp, sys; print(sys.prefix)' > $HOME/prefix; python3 -c 'import aiohttp'\n"
            "journalctl -u google-startup-scripts.service -n 3 > $HOME/journal; ! reboot; echo ok > $HOME/ok"
        )
        await lab.text(vm.directory / "home" / "ok")
        assert (vm.directory / "home" / "prefix").read_text().strip() == sys.prefix
        assert "nothing was done" in (vm.directory / "home" / "journal").read_text()

    tell(story)


def test_init_costs_less_than_twelve_megabytes() -> None:
    async def story(lab: MachineLab) -> None:
        vm = await lab.vm("echo up > $HOME/up; exec sleep 1000")
        await lab.text(vm.directory / "home" / "up")
        status = Path(f"/proc/{lab.status().processes[0].pid}/status").read_text()
        resident_kb = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))
        assert 4_000 < resident_kb < 12_000

    tell(story)


def test_events_for_a_machine_that_never_started() -> None:
    async def story(lab: MachineLab) -> None:
        await lab.machines.carry_out([VmStop("none"), VmKill("none")])  # a node deleted before its machines were made
        with pytest.raises(BugError, match="'none', which was never started"):
            await lab.machines.carry_out([VmFreeze("none")])

    tell(story)


def test_a_machine_that_cannot_be_made_does_not_keep_the_others_from_their_events() -> None:
    async def story(lab: MachineLab) -> None:
        not_here = VmDescription("bad", "203.0.113.1", "p", "z", 1, {})
        await lab.vm("exec sleep 1000", name="old")

        with pytest.raises(TpuctlError, match=r"metadata server of 'bad': cannot serve on 203\.0\.113\.1"):
            await lab.machines.carry_out([VmStart(not_here), VmStop("old")])

        assert [(status.name, status.state) for status in lab.machines.processes()] == [("bad", VmState.DEAD)]
        await lab.machines.carry_out([VmStop("bad")])
        assert lab.machines.processes() == ()

    tell(story)


def test_what_an_earlier_emulator_left_in_the_root_is_cleared_and_its_data_disks_are_kept() -> None:
    async def story(lab: MachineLab) -> None:
        old = lab.root / "v7" / "home"
        old.mkdir(parents=True)
        kept = lab.root / "disks" / "keep"
        kept.mkdir()
        orphan = process.spawn(["sleep", "1000"], environment={"HOME": str(old), "PATH": "/usr/bin:/bin"})
        assert [one.pid for one in leftovers(lab.root)] == [orphan.pid]

        await lab.machines.start()

        assert orphan.wait(timeout=5) == -signal.SIGKILL
        assert not old.exists()
        assert kept.is_dir()

    tell(story)
