"""The host daemon as a process, with a stand-in for Ray: what it does when, and what it refuses."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tpuctl.base.process import identify, is_alive
from tpuctl.hosts.probe import own_versions

pytestmark = pytest.mark.scenario  # each starts processes and waits for their real pauses

FAKE_RAY = Path(__file__).with_name("fake_ray.py")


@pytest.fixture
def world(lab: Any) -> Any:
    """A lab whose agent publishes a Ray of the right versions."""
    publish(lab)
    return lab


def publish(lab: Any, **changes: str) -> None:
    own = own_versions()
    ray = {
        "address": f"{lab.head_address}:20000",
        "version": own.ray,
        "python": own.python,
        "started_at": "1",
    } | changes
    lab.agent.ray = lambda: ray


def a_host(lab: Any, **changes: Any) -> Any:
    return lab.vm(extra={"FAKE_RAY": str(FAKE_RAY)}, **changes)


def starts(vm: Any) -> list[dict[str, Any]]:
    path = vm.root / "ray-starts"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def joined(lab: Any, vm: Any) -> subprocess.Popen[bytes]:
    process: subprocess.Popen[bytes] = vm.start()
    lab.eventually(lambda: "joined" in lab.agent.stages(), 15, "the report that it joined")
    return process


def test_a_host_joins_with_its_labels_its_chips_and_the_token_out_of_sight(world: Any) -> None:
    vm = a_host(world, worker=1)
    vm.start()
    world.eventually(lambda: "joined" in world.agent.stages(1), 15, "the report that it joined")

    (start,) = starts(vm)
    labels = next(a for a in start["argv"] if a.startswith("--labels="))
    for label in ("cluster=lab", "slice=v4-0", "incarnation=lab-v4-0-t6m8gb-1", "worker=1", "chips=4", "boot="):
        assert f"tpuctl/{label}" in labels
    assert '--resources={"TPU": 4}' in start["argv"]
    assert f"--node-ip-address={vm.address}" in start["argv"]
    assert start["environment"]["RAY_AUTH_TOKEN_PATH"] == str(vm.prefix / "token")
    assert world.agent.token not in json.dumps(start)
    assert (vm.prefix / "token").stat().st_mode & 0o777 == 0o600
    host = json.loads((vm.prefix / "host.json").read_text())
    assert (host["worker"], host["epoch"], host["agent"]) == (1, "t6m8gb", f"http://{world.head_address}:{world.port}")
    assert world.agent.stages(1) == ["joining", "joined"]
    assert vm.metadata.stages == ["booting", "joining", "joined"]


def test_without_an_index_it_never_joins_and_says_so_outside(world: Any) -> None:
    vm = a_host(world, worker=None)
    vm.start()

    world.eventually(lambda: vm.metadata.stages, 15, "a guest attribute")

    assert "without an index" in vm.metadata.stages[0]
    assert starts(vm) == []
    assert world.agent.reports == []


def test_an_index_beyond_the_slice_is_refused(world: Any) -> None:
    vm = a_host(world, worker=2)
    vm.start()

    world.eventually(lambda: vm.metadata.stages, 15, "a guest attribute")

    assert "has 2 hosts" in vm.metadata.stages[0]
    assert starts(vm) == []


def test_a_host_without_its_devices_is_unusable_and_does_not_join(world: Any) -> None:
    vm = a_host(world, chips=0)
    vm.start()

    world.eventually(lambda: any("refused" in stage for stage in vm.metadata.stages), 15, "the refusal")

    assert "unusable: 0 of 4 devices" in vm.metadata.stages[-1]
    assert starts(vm) == []


def test_other_versions_than_the_heads_are_told_and_not_tried(world: Any) -> None:
    publish(world, version="2.10.0")
    vm = a_host(world)
    vm.start()

    world.eventually(lambda: "refused" in world.agent.stages(), 15, "the refusal")

    assert "Ray 2.10.0" in world.agent.reports[-1]["detail"]
    assert starts(vm) == []


def test_on_notice_the_agent_knows_within_a_second_ray_drains_and_nobody_rejoins(world: Any) -> None:
    vm = a_host(world)
    process = joined(world, vm)
    noticed_s = time.monotonic()

    vm.metadata.change("preempted", "TRUE")
    report = world.eventually(
        lambda: next((r for r in world.agent.reports if r["stage"] == "notice"), None), 10, "the notice"
    )

    assert report["at"] - noticed_s < 1.0
    world.eventually(lambda: not alive(starts(vm)[0]["pid"]), 10, "the end of Ray")
    assert process.poll() is None
    assert len(starts(vm)) == 1
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 0
    assert "left" not in world.agent.stages()


def test_a_host_that_starts_after_the_notice_does_not_join(world: Any) -> None:
    vm = a_host(world)
    vm.metadata.change("preempted", "TRUE")
    world.agent.ray = lambda: None
    vm.start()

    world.eventually(lambda: "notice: " in " ".join(vm.metadata.stages), 15, "the notice")

    assert starts(vm) == []


def test_sigterm_drains_ray_and_ends_the_daemon(world: Any) -> None:
    vm = a_host(world)
    process = joined(world, vm)

    process.send_signal(signal.SIGTERM)

    assert process.wait(timeout=10) == 0
    assert not alive(starts(vm)[0]["pid"])
    assert world.agent.stages()[-1] == "left"


def test_ray_that_dies_is_started_again_and_with_a_clean_slate(world: Any) -> None:
    vm = a_host(world)
    joined(world, vm)
    program = a_program(vm)

    os.kill(starts(vm)[0]["pid"], signal.SIGKILL)

    world.eventually(lambda: len(starts(vm)) == 2, 15, "a second start")
    assert program.poll() is not None
    world.eventually(lambda: world.agent.stages()[-2:] == ["joining", "joined"], 10, "joined again")


def test_a_start_that_fails_is_told_with_rays_last_words_and_paused(world: Any) -> None:
    vm = a_host(world)
    (vm.root / "ray-fails").write_text("Version mismatch: the cluster was started with …")
    vm.start()

    world.eventually(lambda: "refused" in world.agent.stages(), 15, "the refusal")

    assert "Version mismatch" in next(r for r in world.agent.reports if r["stage"] == "refused")["detail"]
    (vm.root / "ray-fails").unlink()
    world.eventually(lambda: "joined" in world.agent.stages(), 15, "the report that it joined")


def test_a_head_that_moved_is_followed(world: Any) -> None:
    vm = a_host(world)
    joined(world, vm)

    publish(world, address=f"{world.head_address}:20100", started_at="2")

    world.eventually(lambda: len(starts(vm)) == 2, 15, "a second start")
    assert f"--address={world.head_address}:20100" in starts(vm)[1]["argv"]
    assert not alive(starts(vm)[0]["pid"])


def test_an_agent_that_restarts_without_ray_yet_disturbs_nobody(world: Any) -> None:
    vm = a_host(world)
    joined(world, vm)
    asked = len(world.agent.server.asked)

    world.agent.ray = lambda: None

    world.eventually(lambda: len(world.agent.server.asked) >= asked + 2, 15, "two more looks at the head")
    assert alive(starts(vm)[0]["pid"])
    assert len(starts(vm)) == 1


def test_a_head_of_an_older_epoch_is_not_obeyed(world: Any) -> None:
    vm = a_host(world)
    (vm.prefix / "epoch").write_text("t6m8gc\n")
    vm.start()

    world.eventually(lambda: "an older head is not obeyed" in vm.log, 15, "the refusal")

    assert starts(vm) == []
    assert (vm.prefix / "epoch").read_text() == "t6m8gc\n"


def test_a_rotated_secret_is_read_again_after_the_refusal(world: Any) -> None:
    vm = a_host(world)
    (vm.prefix / "token").write_text("the old one")
    joined(world, vm)

    assert (vm.prefix / "token").read_text() == world.agent.token


def test_a_program_of_a_former_life_is_ended_and_a_strangers_lock_is_respected(world: Any) -> None:
    vm = a_host(world)
    ours = a_program(vm, deaf=True)
    lock = vm.root / "tmp" / "libtpu_lockfile"
    lock.touch()
    with (vm.root / "dev" / "accel2").open("r+") as device:  # this test is a process that tpuctl did not start
        fcntl.flock(device, fcntl.LOCK_EX)
        vm.start()
        world.eventually(lambda: any("refused" in stage for stage in vm.metadata.stages), 15, "the refusal")

        assert f"accel2 is held by process {os.getpid()}" in vm.metadata.stages[-1]
        assert "not started by tpuctl, left alone" in vm.metadata.stages[-1]
        assert ours.poll() is not None
        assert lock.exists()
        assert starts(vm) == []

    world.eventually(lambda: "joined" in world.agent.stages(), 15, "the report that it joined")
    assert not lock.exists()


def a_program(vm: Any, *, deaf: bool = False) -> subprocess.Popen[bytes]:
    """What a launcher leaves behind: a program in its own session, with a chip open; deaf to SIGTERM if asked."""
    code = (
        "import signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, signal.{'SIG_IGN' if deaf else 'SIG_DFL'})\n"
        "chip = open(sys.argv[1])\n"
        "print('up', flush=True)\n"
        "time.sleep(600)"
    )
    program = subprocess.Popen(
        [sys.executable, "-c", code, str(vm.root / "dev" / "accel0")],
        env={"HOME": str(vm.root), "TPUCTL_RUN_ID": "r1"},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert program.stdout is not None
    with program.stdout:
        assert program.stdout.readline() == b"up\n"
    return program


def alive(pid: int) -> bool:
    process = identify(pid)
    return process is not None and is_alive(process)
