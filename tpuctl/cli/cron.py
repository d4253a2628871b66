"""`tpuctl cron install|show|remove`: passes from a crontab or a systemd timer, on the head or on this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from tpuctl.cli.options import SPEC, AsJson, SpecFile, StateDir, say

GROUP_HELP = """Run a pass each so many minutes from cron or a systemd timer, on the head or on this machine.

The head's agent runs passes by itself; cron on the head is the second rope: it also starts an agent that is dead.
--here is for a machine that is always on: its passes also build a lost head anew.

Examples:

    tpuctl cron install
    tpuctl cron show
"""

INSTALL_HELP = """Write the line into the head's crontab, or with --here into yours. Repeating it changes nothing.

Only a marked block is written; everything else in the crontab stays as it is. --systemd writes a service and a timer of
your systemd instead. A pass while another runs ends at once with exit 4. The log stays below a megabyte.

Examples:

    tpuctl cron install
    tpuctl cron install --here --every 5
    tpuctl cron install --here --systemd
"""

SHOW_HELP = """Say what is installed where, and when it last ran. Exit 3 when the head cannot be asked.

Examples:

    tpuctl cron show
    tpuctl cron show --here
    tpuctl cron show --json | jq .head.last
"""

REMOVE_HELP = """Take out exactly what install wrote. Repeating it is harmless.

Examples:

    tpuctl cron remove
    tpuctl cron remove --here
"""

RUN_HELP = """What the crontab's line runs: one pass, its output in a log that stays small.

Examples:

    tpuctl cron run --log cron.log -- tpuctl reconcile
"""

UNREACHABLE_EXIT = 3

Here = Annotated[bool, typer.Option("--here", help="On this machine and not on the head.")]
Systemd = Annotated[bool, typer.Option("--systemd", help="With --here: a service and a timer of your systemd.")]
Every = Annotated[int, typer.Option("--every", metavar="MINUTES", help="1 to 30 where it divides 60, or 60.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help=GROUP_HELP, short_help="Passes from cron.", no_args_is_help=True)
    group.command("install", help=INSTALL_HELP, short_help="Write the line.")(install)
    group.command("show", help=SHOW_HELP, short_help="What is installed where, and when it last ran.")(show)
    group.command("remove", help=REMOVE_HELP, short_help="Take the line out.")(remove)
    group.command("run", hidden=True, help=RUN_HELP)(run)
    app.add_typer(group, name="cron")


def install(
    file: SpecFile = SPEC,
    every: Every = 1,
    here: Here = False,
    systemd: Systemd = False,
    state_dir: StateDir = None,
) -> None:
    from tpuctl import app
    from tpuctl.cron.table import check_every

    check_every(every)
    _check(here, systemd)
    basis = app.basis(state_dir)
    if not here:
        document = app.connect(basis, file).install_cron(every)
        say(_changed(document["changed"], "the head's crontab"))
        typer.echo(_line("head", document, basis.clock.now()))
        return
    local = app.local_cron(basis, file)
    changed = local.install(every, systemd=systemd)
    say(_changed(changed, "your systemd" if systemd else "your crontab"))
    if systemd:
        say("user timers run while you are logged in; 'loginctl enable-linger' keeps them going without")
    _show_local(local.document(), basis.clock.now(), everything=False)


def show(file: SpecFile = SPEC, here: Here = False, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    from tpuctl import app
    from tpuctl.base.errors import TpuctlError

    basis = app.basis(state_dir)
    local = app.local_cron(basis, file)
    head: dict[str, Any] | None = None
    failure = ""
    if not here:
        try:
            head = app.connect(basis, file).cron()
        except TpuctlError as error:
            failure = str(error)
            say(f"tpuctl: the head cannot be asked: {failure}")
    now = basis.clock.now()
    if as_json:
        typer.echo(json.dumps({"version": 1, "at": now.iso(), "head": head, **local.document()}, indent=1))
    else:
        if not here:
            typer.echo("head: unknown" if head is None else _line("head", head, now))
        _show_local(local.document(), now, everything=True)
    raise typer.Exit(UNREACHABLE_EXIT if failure else 0)


def remove(file: SpecFile = SPEC, here: Here = False, systemd: Systemd = False, state_dir: StateDir = None) -> None:
    from tpuctl import app

    _check(here, systemd)
    basis = app.basis(state_dir)
    if here:
        removed = app.local_cron(basis, file).remove(systemd_only=systemd)
        say(f"removed: {', '.join(removed)}" if removed else "nothing of this cluster is installed here")
        return
    document = app.connect(basis, file).remove_cron()
    say("removed from the head's crontab" if document["changed"] else "nothing is installed on the head")


def run(
    command: Annotated[list[str] | None, typer.Argument()] = None,
    log: Annotated[Path, typer.Option("--log")] = Path("cron.log"),
    data: Annotated[Path | None, typer.Option("--data", help="On the head: its data directory.")] = None,
    epoch: Annotated[str, typer.Option("--epoch")] = "",
) -> None:
    from tpuctl.base.clock import SystemClock
    from tpuctl.base.errors import UserError
    from tpuctl.cron.tick import TickFiles, tick

    os.umask(0o077)  # its output is nobody else's business
    files, clock = TickFiles(log.absolute()), SystemClock()
    if data is not None:
        from tpuctl.agent.cron import head_pass, revive_agent

        raise typer.Exit(tick(files, head_pass(data, epoch), clock, lambda: revive_agent(data)))
    if not command:
        raise UserError("cron run: a command after --")
    raise typer.Exit(tick(files, command, clock))


def _check(here: bool, systemd: bool) -> None:
    from tpuctl.base.errors import UserError

    if systemd and not here:
        raise UserError("--systemd goes with --here: on the head it is cron")


def _changed(changed: bool, what: str) -> str:
    return f"{what} has the line now" if changed else f"{what} had it already: nothing was changed"


def _show_local(document: dict[str, Any], now: Any, *, everything: bool) -> None:
    ran = {"last": document["last"], "log": document["log"]}
    for name in ("crontab", "systemd"):
        if everything or document[name]["installed"]:
            typer.echo(_line(f"here, {name}", {**document[name], **ran}, now))


def _line(where: str, document: dict[str, Any], now: Any) -> str:
    from tpuctl.report.values import age

    if document.get("problem"):
        return f"{where}: unknown: {document['problem']}"
    if not document["installed"]:
        return f"{where}: not installed"
    last = document.get("last")
    ran = "has not run yet" if last is None else f"last ran {age(last['at'], now)} ago, exit {last['exit']}"
    return f"{where}: every {document['every_min']} min; {ran}\n  log {document['log']}"
