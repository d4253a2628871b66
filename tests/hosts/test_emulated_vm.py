"""The startup script on a machine of the emulator: its image, its stand-ins of systemctl and mount."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tpuctl.emulator.events import VmReset
from tpuctl.hosts.digest import source_digest
from tpuctl.hosts.startup import startup_script
from tpuctl.testing.machines import MachineLab, machine_lab, until

pytestmark = pytest.mark.scenario


def attributes(role: str, **more: str) -> dict[str, str]:
    roots = dict.fromkeys(("tpu", "compute", "secretmanager", "storage"), "http://127.0.0.1:9")
    config: dict[str, Any] = {
        "version": 1, "role": role, "cluster": "lab", "project": "p", "endpoints": roots,
        "head": {"name": "tpuctl-lab-head", "zone": "us-central1-a"}, "secret": "tpuctl-lab-token",
        "agent_port": 7578, "ray_ports": [20000, 32000], "digest": source_digest(),
        "detection": {"hold_s": 25, "rejoin_s": 90},
    }  # fmt: skip
    if role == "host":
        config["host"] = {
            "pool": "v4", "slot": 0, "epoch": "t6m8gb", "incarnation": "lab-v4-0-t6m8gb-1", "slice": "v4-0",
            "zone": "us-central2-b", "accelerator": "v4-16", "hosts": 2, "chips_per_host": 4,
        }  # fmt: skip
    return {"tpuctl-config": json.dumps(config), "enable-guest-attributes": "TRUE"} | more


def stages(lab: MachineLab) -> list[str]:
    return [value for namespace, key, value in lab.guest_attributes() if (namespace, key) == ("tpuctl", "stage")]


def test_a_host_boots_into_its_daemon_also_after_a_reset() -> None:
    async def story() -> None:
        async with machine_lab() as lab:
            vm = await lab.vm(startup_script(), attributes=attributes("host", **{"agent-worker-number": "1"}), chips=4)
            log = vm.directory / "home" / "tpuctl" / "log" / "tpuctl-host.log"
            assert "waiting for the head: find-head" in await lab.text(log)
            await until(lambda: "units started" in stages(lab), "the last stage of the script")

            await lab.machines.carry_out([VmReset("vm")])

            assert (await lab.text(log, lines=2)).count("waiting for the head") == 2
            await until(lambda: stages(lab).count("units started") == 2, "the last stage after the reset")

    asyncio.run(story())


def test_a_host_without_an_index_says_so_and_goes_no_further() -> None:
    async def story() -> None:
        async with machine_lab() as lab:
            await lab.vm(startup_script(), attributes=attributes("host"), chips=4)
            await until(lambda: any("without an index" in stage for stage in stages(lab)), "the refusal")

    asyncio.run(story())


def test_a_head_mounts_its_data_disk_and_starts_both_units() -> None:
    async def story() -> None:
        async with machine_lab() as lab:
            vm = await lab.vm(startup_script(), attributes=attributes("head"), disks=("tpuctl-data",))
            prefix = vm.directory / "home" / "tpuctl"
            await until(lambda: "units started" in stages(lab), "the last stage of the script")
            assert (prefix / "data").resolve().parent == (lab.root / "disks").resolve()
            assert "waiting for the secret" in await lab.text(prefix / "log" / "tpuctl-ray.log")
            assert (prefix / "log" / "tpuctl-agent.log").exists()

    asyncio.run(story())
