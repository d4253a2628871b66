"""The run spec as a frozen model. spec/yaml.py reads it from text with line numbers; nothing here reads files."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tpuctl.spec.checkpoint import dir_problem
from tpuctl.spec.model import Model, plain

MAX_RUN_NAME = 40  # `<run>-<epoch>-<k>` is the name of a Ray job and has room in every label
MOST_SLICES = 1000
MOST_PRIORITY = 1_000_000
MOST_FAILURES = 10**9 - 1
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Set by the launcher in every attempt, or taken out by it: a value written here would never reach the program.
_OURS = re.compile(
    r"(?:TPUCTL|RAY)_.*|JAX_COORDINATOR_ADDRESS|MEGASCALE_(?:COORDINATOR_ADDRESS|NUM_SLICES|SLICE_ID|PORT)"
)


def variable_problem(name: str) -> str | None:
    """What is wrong with the name of a variable in `env`; None when it is fine."""
    if not _VARIABLE.fullmatch(name):
        return f"{name!r} is no name of a variable; use letters, digits and _"
    if _OURS.fullmatch(name):
        return f"{name} is set or removed by tpuctl in every attempt; remove it"
    return None


# The model itself holds what the YAML reader refuses: a run comes from a command line and from other clients too.


def _checked_dir(template: str) -> str:
    if problem := dir_problem(template):
        raise ValueError(f"{template!r}: {problem}")
    return template


def _checked_env(env: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    for name, value in env:
        if problem := variable_problem(name):
            raise ValueError(problem)
        _checked_word(value)
    return env


def _checked_command(command: str | tuple[str, ...]) -> str | tuple[str, ...]:
    words = (command,) if isinstance(command, str) else command
    if not words or not words[0].strip():
        raise ValueError("there is no program in it")
    for word in words:
        _checked_word(word)
    return command


def _checked_word(word: str) -> None:
    if "\0" in word:
        raise ValueError(f"{word!r} has a NUL, which no program can be given")
    if any("\ud800" <= character <= "\udfff" for character in word):  # bytes of a command line that were no UTF-8
        raise ValueError(f"{word!r} is not UTF-8 text")


class UseEntry(Model):
    """Where a run may go: a pool by name, or any pool of an accelerator type (as the API calls it)."""

    pool: str = ""
    accelerator: str = ""


class CheckpointSpec(Model):
    dir: Annotated[str, AfterValidator(_checked_dir)] = (
        "{storage}/runs/{run}"  # {storage}: the spec's storage root; {run}: the run's name
    )
    grace_s: float = Field(default=30.0, ge=0, allow_inf_nan=False)


class RunSpec(Model):
    version: Literal[1] = 1
    name: Annotated[str, plain(MAX_RUN_NAME)]
    command: Annotated[
        str | tuple[str, ...], AfterValidator(_checked_command)
    ]  # a shell line for bash -eo pipefail, or argv
    workdir: str = ""  # directory to ship, relative to the spec file; "" = ship nothing
    use: tuple[UseEntry, ...] = ()  # empty: any pool
    min_slices: int = Field(default=1, ge=1, le=MOST_SLICES)
    max_slices: int = Field(default=1, ge=1, le=MOST_SLICES)
    env: Annotated[tuple[tuple[str, str], ...], AfterValidator(_checked_env)] = ()  # values exactly as written
    checkpoint: CheckpointSpec = CheckpointSpec()
    max_failures: int = Field(default=3, ge=0, le=MOST_FAILURES)
    priority: int = Field(default=0, ge=-MOST_PRIORITY, le=MOST_PRIORITY)
