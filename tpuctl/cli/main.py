"""The console script. Verbs register themselves; errors of our family become one message and an exit code here."""

from __future__ import annotations

import sys

import typer

from tpuctl.base.errors import TpuctlError

app = typer.Typer(
    name="tpuctl",
    help="Keep spot TPU slices alive and their training runs going.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def register_all() -> None:
    """Each verb's module has `register(app)`. The order is that of `--help`."""
    from tpuctl.cli import (
        cancel,
        cron,
        down,
        emulator,
        events,
        init,
        keep,
        logs,
        plan,
        reconcile,
        runs,
        schema,
        status,
        submit,
        up,
        validate,
        why,
    )

    cluster = (init, validate, plan, up, down, keep, reconcile, cron, status, why, events)
    for verb in (*cluster, submit, runs, logs, cancel, schema, emulator):
        verb.register(app)


def main() -> None:
    register_all()
    try:
        app()
    except TpuctlError as error:
        print(f"tpuctl: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
