"""The run spec as a frozen model. spec/yaml.py reads it from text with line numbers; nothing here reads files."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tpuctl.spec.cluster import Model, plain

MAX_RUN_NAME = 40  # `<run>-<epoch>-<k>` is the name of a Ray job and has room in every label


class UseEntry(Model):
    """Where a run may go: a pool by name, or any pool of an accelerator type (as the API calls it)."""

    pool: str = ""
    accelerator: str = ""


class CheckpointSpec(Model):
    dir: str = "{storage}/runs/{run}"  # {storage}: the spec's storage root; {run}: the run's name
    grace_s: float = 30.0


class RunSpec(Model):
    version: Literal[1] = 1
    name: Annotated[str, plain(MAX_RUN_NAME)]
    command: str | tuple[str, ...]  # a shell line for bash -eo pipefail, or argv
    workdir: str = ""  # directory to ship, relative to the spec file; "" = ship nothing
    use: tuple[UseEntry, ...] = ()  # empty: any pool
    min_slices: int = Field(default=1, ge=1)
    max_slices: int = Field(default=1, ge=1)
    env: tuple[tuple[str, str], ...] = ()  # values exactly as written
    checkpoint: CheckpointSpec = CheckpointSpec()
    max_failures: int = Field(default=3, ge=0)
    priority: int = 0
