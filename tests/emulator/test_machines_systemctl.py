"""Units on a machine: kept alive by init through the image's systemctl, ended by the notice as systemd would."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tpuctl.base import process
from tpuctl.emulator.events import VmNotice, VmReset
from tpuctl.testing.machines import MachineLab, machine_lab, until

INSTALL = """
mkdir -p $HOME/units
cat > $HOME/units/x.service <<UNIT
[Service]
ExecStart=/bin/sh $HOME/x.sh
Environment=GREETING=hello
Restart=always
RestartSec=0
StandardOutput=append:$HOME/x.log
{keys}
[Install]
WantedBy=multi-user.target
UNIT
cat > $HOME/x.sh <<'PROGRAM'
{program}
PROGRAM
"""
ENABLE = "systemctl link $HOME/units/x.service && systemctl enable --now x.service; echo $? > $HOME/enabled\n"


def tell(story: Callable[[MachineLab], Coroutine[Any, Any, None]]) -> None:
    async def inside() -> None:
        async with machine_lab() as lab:
            await story(lab)

    asyncio.run(inside())


def script(program: str, keys: str = "", then: str = ENABLE) -> str:
    return INSTALL.format(program=program, keys=keys) + then


def test_a_unit_is_started_again_when_its_program_dies() -> None:
    async def story(lab: MachineLab) -> None:
        vm = await lab.vm(script("echo $GREETING $$; exec sleep 1000"))
        log = vm.directory / "home" / "x.log"
        greeting, first = (await lab.text(log)).split()
        assert greeting == "hello"
        assert (await lab.text(vm.directory / "home" / "enabled")) == "0\n"

        running = process.identify(int(first))
        assert running is not None
        process.send_signal(running, signal.SIGKILL)

        second = (await lab.text(log, lines=2)).split()[3]
        assert second != first
        row = process.read_process(int(second))
        assert row is not None
        assert row.parent == lab.status().processes[0].pid  # as on a real machine, where it is process 1
        assert row.session == int(second)

    tell(story)


def test_enabled_unit_comes_back_after_a_reset() -> None:
    async def story(lab: MachineLab) -> None:
        vm = await lab.vm(script("echo up; exec sleep 1000", then=f"[ -e $HOME/enabled ] || {{ {ENABLE} }}"))
        await lab.text(vm.directory / "home" / "x.log")
        await lab.text(vm.directory / "home" / "enabled")
        await lab.machines.carry_out([VmReset("vm")])
        await lab.text(vm.directory / "home" / "x.log", lines=2)

    tell(story)


@pytest.mark.scenario
def test_systemctl_answers_as_scripts_expect() -> None:
    checks = """
systemctl status x; say status $?
systemctl is-active x; say is-active $?
systemctl stop x.service; say stop $?
systemctl is-active --quiet x.service; say stopped $?
systemctl restart x; say restart $?
systemctl show x.service | grep -q ActiveState=active; say show $?
systemctl daemon-reload; say reload $?
systemctl is-enabled x; say is-enabled $?
systemctl disable --now x; say disable $?
systemctl is-enabled x; say disabled $?
systemctl stop x; systemctl start none x; say unknown $?
systemctl is-active x; say other $?
systemctl link /none.service; say link $?
systemctl frobnicate; say verb $?
echo end >> $HOME/said
"""

    async def story(lab: MachineLab) -> None:
        say = "say() { echo $1=$2 >> $HOME/said; }\n"
        vm = await lab.vm(script("exec sleep 1000", then=ENABLE + say + checks))
        said = dict(line.split("=") for line in (await lab.text(vm.directory / "home" / "said", lines=15)).split()[:-1])
        assert said == {
            "status": "0",
            "is-active": "0",
            "stop": "0",
            "stopped": "3",
            "restart": "0",
            "show": "0",
            "reload": "0",
            "is-enabled": "0",
            "disable": "0",
            "disabled": "1",
            "unknown": "5",
            "other": "0",
            "link": "1",
            "verb": "1",
        }

    tell(story)


FAMILY = """
setsid -f /bin/sh -c 'trap "echo child-term" TERM; echo child $$; while :; do sleep 0.02; done'
trap 'echo main-term; exit 0' TERM
echo main $$
while :; do sleep 0.02; done
"""


@pytest.mark.parametrize(
    ("mode", "told", "child_lives"),
    [
        ("control-group", {"main-term", "child-term"}, True),  # it ignores SIGTERM; SIGKILL comes after TimeoutStopSec
        ("mixed", {"main-term"}, False),
        ("process", {"main-term"}, True),
    ],
)
def test_notice_stops_units_by_their_kill_mode_and_restarts_none(mode: str, told: set[str], child_lives: bool) -> None:
    async def story(lab: MachineLab) -> None:
        vm = await lab.vm(script(FAMILY, keys=f"KillMode={mode}\nTimeoutStopSec=30"))
        log = vm.directory / "home" / "x.log"
        pids = dict(line.split() for line in (await lab.text(log, lines=2)).splitlines())
        main, child = (process.identify(int(pids[name])) for name in ("main", "child"))
        assert main is not None
        assert child is not None

        await lab.machines.carry_out([VmNotice("vm")])

        # A shell may say "Terminated" of its sleep too, so it is these lines that are waited for, not their number.
        await until(lambda: told <= set(log.read_text().splitlines()), "those who are told to say so")
        await until(lambda: not process.is_alive(main), "the main process to end")
        if not child_lives:
            await until(lambda: not process.is_alive(child), "the rest of the unit to be killed")
        assert {line for line in log.read_text().splitlines() if line.endswith("-term")} == told
        assert process.is_alive(child) == child_lives
        assert log.read_text().count("main ") == 1

    tell(story)


def test_nothing_is_started_after_the_notice() -> None:
    async def story(lab: MachineLab) -> None:
        late = "trap '' TERM; echo up > $HOME/up; until systemctl restart x 2> $HOME/refusal; [ $? = 1 ]; do :; done"
        body = f"setsid -f bash -c '{late.replace(chr(39), chr(34))}; echo refused > $HOME/refused'\n"
        vm = await lab.vm(script("exec sleep 1000", then=ENABLE + body))
        await lab.text(vm.directory / "home" / "up")
        await lab.machines.carry_out([VmNotice("vm")])
        await lab.text(vm.directory / "home" / "refused")
        assert "shutting down" in (vm.directory / "home" / "refusal").read_text()

    tell(story)


def test_program_that_cannot_be_started_says_so_in_its_log() -> None:
    async def story(lab: MachineLab) -> None:
        vm = await lab.vm(script("", keys="Restart=no\nExecStart=/no/such/program"))
        assert "/no/such/program: " in await lab.text(Path(vm.directory / "home" / "x.log"))

    tell(story)
