"""`tpuctl emulator quota` and `refuse`: what a project may have, and which calls are refused for good."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tpuctl.base.errors import UserError
from tpuctl.cli.emulator_control import Name, ask, is_number, show, show_table
from tpuctl.cli.options import AsJson, StateDir, say


def register(emulator: typer.Typer) -> None:
    emulator.command("quota")(quota)
    emulator.command("refuse")(refuse)


def quota(
    generation: Annotated[str, typer.Argument(help="E.g. v4, v5e, v5e-serving; without it the table is shown.")] = "",
    limit: Annotated[str, typer.Argument(help="TensorCores (v5e, v6e: chips), or `unlimited`.")] = "",
    zone: Annotated[str, typer.Option(help="Zone; without it and --region: every zone.")] = "",
    region: Annotated[str, typer.Option(help="Region instead of a zone.")] = "",
    tier: Annotated[str, typer.Option(help="spot, on-demand or reserved.")] = "spot",
    as_json: AsJson = False,
    name: Name = "default",
    state_dir: StateDir = None,
) -> None:
    """Show or set quotas, in the units of the service.

    Examples:

      tpuctl emulator quota

      tpuctl emulator quota v4 64 --zone us-central2-b

      tpuctl emulator quota v6e 0 --region us-east5

      tpuctl emulator quota v5e-serving unlimited
    """
    if not generation:
        document = ask(state_dir, name, "quotas")
    elif is_number(limit) or limit == "unlimited":
        number = None if limit == "unlimited" else int(limit)
        asked: dict[str, Any] = {"generation": generation, "tier": tier, "region": region, "limit": number}
        document = ask(state_dir, name, "set-quota", asked | ({"zone": zone} if zone else {}))
    else:
        raise UserError("give GENERATION and LIMIT (a number or `unlimited`), or neither")
    if as_json:
        show(document)
        return
    rows = [
        (r["place"], r["generation"], r["tier"], "none" if r["limit"] is None else str(r["limit"]), str(r["used"]))
        for r in document["quotas"]
    ]
    show_table(("PLACE", "GENERATION", "TIER", "LIMIT", "USED"), rows, empty="no quota is set: there is no limit")


def refuse(
    api: Annotated[list[str] | None, typer.Option(help="tpu, compute or secretmanager: not switched on.")] = None,
    permission: Annotated[list[str] | None, typer.Option(help="The caller lacks it, e.g. tpu.nodes.list.")] = None,
    zone: Annotated[list[str] | None, typer.Option(help="The project may not use it (location policy).")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Allow everything again, first.")] = False,
    as_json: AsJson = False,
    name: Name = "default",
    state_dir: StateDir = None,
) -> None:
    """Refuse calls until `--clear`, with the service's own 403; without options show what is refused.

    Examples:

      tpuctl emulator refuse --api tpu

      tpuctl emulator refuse --permission tpu.queuedresources.create

      tpuctl emulator refuse --zone us-central2-b

      tpuctl emulator refuse --clear
    """
    document = ask(state_dir, name, "clear-refusals" if clear else "refusals")
    asked = {key: list(given) for key, given in (("apis", api), ("permissions", permission), ("zones", zone)) if given}
    if asked:
        document = ask(state_dir, name, "refuse", asked)
    if as_json:
        show(document)
        return
    found = [f"{key[:-1]:10} {each}" for key in ("apis", "permissions", "zones") for each in document[key]]
    for line in found:
        print(line)
    if not found:
        say("nothing is refused")
