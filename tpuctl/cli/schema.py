"""`tpuctl schema`: JSON schemas of the specs, for editors."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

HELP = """Print the JSON schema of what a spec may contain, for editors that complete and check YAML.

Examples:

    tpuctl schema cluster > tpuctl.schema.json
    tpuctl schema run
"""


class Which(Enum):
    cluster = "cluster"
    run = "run"


def register(app: typer.Typer) -> None:
    app.command("schema", help=HELP, short_help="Print the JSON schema of a spec.")(schema)


def schema(which: Annotated[Which, typer.Argument(help="Which spec.")]) -> None:
    import json

    from tpuctl.spec.schema import cluster_schema, run_schema

    document = cluster_schema() if which is Which.cluster else run_schema()
    typer.echo(json.dumps(document, indent=2))
