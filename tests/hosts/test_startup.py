"""The startup script, run by a real bash against a metadata server and stand-ins of systemctl and mount."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import tpuctl
from tpuctl.hosts.digest import source_digest
from tpuctl.hosts.startup import startup_script
from tpuctl.testing.web import Asked, Reply, ScriptedServer

SOURCE = Path(str(tpuctl.__file__)).parent / "hosts" / "startup.sh"


@dataclass
class Vm:
    """A directory that plays the VM. The stand-ins write every call into `calls`."""

    root: Path
    config: Any
    guest: dict[str, list[str]] = field(default_factory=dict)
    fail_first: int = 0  # so many reads of tpuctl-config answer 503

    def __post_init__(self) -> None:
        self.bin = self.root / "bin"
        self.bin.mkdir()
        self.script = self.root / "startup.sh"
        self.script.write_text(startup_script())
        self.stand_in("systemctl")
        self.stand_in("mountpoint", "exit 1")
        self.stand_in("mount")
        self.stand_in("sleep")
        self.stand_in("blkid")
        self.stand_in("mkfs.ext4")
        # The script only asks which code it is: a stand-in answers that without starting another interpreter.
        self.stand_in("python", f'[ "$*" = "-m tpuctl.hosts digest" ] && echo {source_digest()}')
        (self.bin / "python3").symlink_to(sys.executable)
        self.server = ScriptedServer(self._metadata)

    def stand_in(self, name: str, body: str = "") -> None:
        path = self.bin / name
        path.write_text(f'#!/bin/bash\necho "{name} $*" >>"{self.root}/calls"\n{body}\n')
        path.chmod(0o755)

    def _metadata(self, asked: Asked) -> Reply:
        assert asked.headers["metadata-flavor"] == "Google"
        key = asked.path.removeprefix("/computeMetadata/v1/instance/")
        if asked.method == "PUT":
            self.guest.setdefault(key.removeprefix("guest-attributes/"), []).append(asked.body.decode())
            return Reply()
        if key == "id":
            return Reply("123")
        if key != "attributes/tpuctl-config" or self.config is None:
            return Reply(status=404)
        if self.fail_first:
            self.fail_first -= 1
            return Reply(status=503)
        return Reply(self.config)

    def boot(self) -> subprocess.CompletedProcess[str]:
        environment = {
            "HOME": str(self.root),
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "GCE_METADATA_HOST": self.server.host,
        }
        return subprocess.run(
            ["bash", str(self.script)], env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    def calls(self, name: str) -> list[str]:
        path = self.root / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.split()[0] == name]

    def forget_calls(self) -> None:
        (self.root / "calls").unlink()

    @property
    def prefix(self) -> Path:
        return self.root / "tpuctl"

    @property
    def stages(self) -> list[str]:
        return self.guest.get("tpuctl/stage", [])


@pytest.fixture
def vm(tmp_path: Path) -> Iterator[Vm]:
    vm = Vm(tmp_path, {"version": 1, "role": "host", "digest": source_digest(), "cluster": "lab"})
    yield vm
    vm.server.close()


def test_shellcheck_has_nothing_to_say() -> None:
    found = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or shutil.which("shellcheck")
    assert found, "shellcheck is not installed: make env"

    checked = subprocess.run([found, str(SOURCE)], capture_output=True, text=True, timeout=60, check=False)

    assert (checked.stdout, checked.returncode) == ("", 0)


def test_the_text_fits_into_a_metadata_attribute() -> None:
    assert startup_script() == SOURCE.read_text()
    assert startup_script().startswith("#!/bin/bash\n")
    assert len(startup_script().encode()) < 16_384


def test_a_host_stores_its_config_and_hands_over_to_its_unit(vm: Vm) -> None:
    booted = vm.boot()

    assert booted.returncode == 0, booted
    assert json.loads((vm.prefix / "config.json").read_text()) == vm.config
    unit = (vm.prefix / "units" / "tpuctl-host.service").read_text()
    assert f"\nExecStart={vm.bin}/python -m tpuctl.hosts\n" in unit
    assert "\nRestart=always\nRestartSec=2\nKillMode=mixed\n" in unit
    assert f'\nEnvironment="TPUCTL_VM_DIR={vm.prefix}"\n' in unit
    assert f'\nEnvironment="GCE_METADATA_HOST={vm.server.host}"\n' in unit
    assert "TPU_DEV_ROOT" not in unit
    assert vm.calls("systemctl") == [
        f"systemctl link {vm.prefix}/units/tpuctl-host.service",
        "systemctl daemon-reload",
        "systemctl start tpuctl-host.service",
    ]
    assert vm.calls("mount") == []
    assert vm.stages == ["booting", "units started"]


def test_a_second_run_leaves_a_unit_that_is_unchanged_alone(vm: Vm) -> None:
    vm.boot()
    vm.forget_calls()

    assert vm.boot().returncode == 0
    assert not [line for line in vm.calls("systemctl") if "restart" in line]


def test_a_changed_unit_is_restarted(vm: Vm) -> None:
    vm.boot()
    unit = vm.prefix / "units" / "tpuctl-host.service"
    unit.write_text(unit.read_text().replace(source_digest(), "0123456789abcdef"))

    assert vm.boot().returncode == 0
    assert vm.calls("systemctl")[-1] == "systemctl restart tpuctl-host.service"


def test_the_head_mounts_its_disk_first_and_runs_ray_and_the_agent(vm: Vm) -> None:
    vm.config["role"] = "head"

    assert vm.boot().returncode == 0
    assert vm.calls("mount") == [f"mount /dev/disk/by-id/google-tpuctl-data {vm.prefix}/data"]
    assert vm.calls("mkfs.ext4") == []
    assert "KillMode=mixed" in (vm.prefix / "units" / "tpuctl-ray.service").read_text()
    agent = (vm.prefix / "units" / "tpuctl-agent.service").read_text()
    assert "KillMode=process" in agent
    assert "-m tpuctl.agent\n" in agent
    assert "enable" not in (vm.root / "calls").read_text()  # at a boot nothing runs before the disk is mounted
    order = (vm.root / "calls").read_text()
    assert order.index("mount /dev") < order.index("link") < order.index("start tpuctl-agent.service")


def test_a_disk_that_does_not_mount_and_is_not_proven_blank_is_never_formatted(vm: Vm) -> None:
    vm.config["role"] = "head"
    vm.stand_in("mount", "exit 32")

    booted = vm.boot()

    assert booted.returncode == 1
    assert vm.calls("mkfs.ext4") == []
    assert vm.calls("systemctl") == []
    assert "cannot be mounted" in vm.stages[-1]


def test_other_code_than_the_wanted_one_is_refused_and_said(vm: Vm) -> None:
    vm.config["digest"] = "0123456789abcdef"

    booted = vm.boot()

    assert booted.returncode == 1
    assert vm.calls("systemctl") == []
    assert vm.stages[-1].startswith("refused: python on PATH")
    assert f"has tpuctl {source_digest()}, wanted is 0123456789abcdef" in vm.stages[-1]


def test_a_metadata_server_that_fails_at_first_is_asked_again(vm: Vm) -> None:
    vm.fail_first = 3

    assert vm.boot().returncode == 0
    assert len(vm.calls("sleep")) == 3


def test_a_systemctl_that_is_not_ready_yet_is_tried_again(vm: Vm) -> None:
    vm.stand_in("systemctl", f'[ "$(grep -c link "{vm.root}/calls")" -ge 3 ]')

    assert vm.boot().returncode == 0
    assert vm.stages[-1] == "units started"


def test_a_vm_without_the_attribute_says_so_at_once(vm: Vm) -> None:
    vm.config = None

    assert vm.boot().returncode == 1
    assert vm.calls("sleep") == []
    assert vm.stages == ["refused: this VM has no readable attribute tpuctl-config"]


def test_an_unknown_role_is_refused(vm: Vm) -> None:
    vm.config["role"] = "cook"

    assert vm.boot().returncode == 1
    assert "'cook'" in vm.stages[-1]
