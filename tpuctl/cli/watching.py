"""`tpuctl reconcile --watch`: the loop of fleet/keep_going.py around passes here or passes of the head."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tpuctl.cli.options import say, sigterm_interrupts

if TYPE_CHECKING:
    from tpuctl.app import Basis
    from tpuctl.fleet.keep_going import Seen

INTERRUPTED_EXIT = 130


def watch_passes(
    file: Path,
    store: Path | None,
    epoch: str,
    ray: str,
    *,
    deadline_s: float,
    as_json: bool,
    state_dir: Path | None,
) -> None:
    """Does not return: exit 130 at Ctrl-C or SIGTERM, 2 for what is wrong from the start."""
    from tpuctl import app
    from tpuctl.fleet.keep_going import KeepGoing

    here = app.basis(state_dir)
    one_pass = of_the_head(here, file, deadline_s) if store is None else on_store(here, store, epoch, ray, deadline_s)

    def tell(seen: Seen) -> None:
        at = here.clock.now().iso()
        if as_json:
            typer.echo(json.dumps({"version": 1, "at": at, "exit": seen.exit, "summary": seen.summary}))
        else:
            typer.echo(f"{at[:19]}Z  exit {seen.exit}  {seen.summary}")
        sys.stdout.flush()

    with sigterm_interrupts():
        try:
            KeepGoing(one_pass, here.clock, here.chance, tell, lambda text: say(f"tpuctl: {text}")).loop()
        except KeyboardInterrupt:
            say("tpuctl: interrupted; what was begun is finished by the next pass, whoever runs it")
    raise typer.Exit(INTERRUPTED_EXIT)


def of_the_head(here: Basis, file: Path, deadline_s: float) -> Callable[[], Seen]:
    """Everything is read and found anew for each pass: the spec may be edited, the head may move."""
    from tpuctl import app
    from tpuctl.fleet.keep_going import Seen

    return lambda: Seen(*app.build_bring_up(here, file, say).reconcile(deadline_s))


def on_store(here: Basis, store: Path, epoch: str, ray: str, deadline_s: float) -> Callable[[], Seen]:
    from tpuctl import app
    from tpuctl.fleet.apply import InterruptedPassError
    from tpuctl.fleet.keep_going import Seen

    def one_pass() -> Seen:
        try:
            with app.build_pass(here, store, epoch, ray) as this_pass:
                result = this_pass.run(deadline_s=deadline_s, dry_run=False)
        except InterruptedPassError as error:
            say(f"tpuctl: {error}")
            raise KeyboardInterrupt from error
        return Seen(result.exit_code, result.summary)

    return one_pass
