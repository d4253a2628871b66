"""The client's half of `tpuctl submit`: make the run's spec, ship its working directory, queue it, wait for its end."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from tpuctl.base.clock import Clock
from tpuctl.base.errors import RetryLaterError, UserError
from tpuctl.base.ids import base36
from tpuctl.base.units import Instant
from tpuctl.spec.run import RunSpec

POLL_S = 1.0
LOST_ANSWERS = 5  # how often one submission is repeated under its request id
PATIENCE_S = 300.0  # how long --wait bears an agent that cannot be reached; the run goes on meanwhile

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """The command line's; None or empty: not given."""

    name: str = ""
    pools: tuple[str, ...] = ()
    slices: int | None = None
    env: tuple[str, ...] = ()  # K=V
    workdir: Path | None = None
    checkpoint_dir: str = ""
    max_failures: int | None = None
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    digest: str
    archive: bytes


@dataclass(frozen=True, slots=True)
class Parcel:
    spec: RunSpec
    workdir: Path | None  # None: nothing is shipped
    bundle: Bundle | None


def parcel(run_file: Path | None, command: tuple[str, ...] | None, options: Options, now: Instant) -> Parcel:
    """All that can be refused on this machine is refused here, before a call: options are held to the rules of a file.

    Options go over what the file says. Raises UserError, also unless there is exactly one of file and command.
    """
    if (run_file is None) == (command is None):
        raise UserError("give either RUN.yaml or a command after --, e.g. 'tpuctl submit -- python train.py'")
    if command is not None:
        if not command:
            raise UserError("there is no command after --")
        spec = checked({"name": options.name or name_after(command, now), "command": command})
        return _packed(with_options(spec, options), options.workdir)
    assert run_file is not None
    from tpuctl.spec.yaml import load_run

    spec = load_run(run_file)
    workdir = options.workdir or (run_file.parent / spec.workdir if spec.workdir else None)
    return _packed(with_options(spec, options), workdir)


def _packed(spec: RunSpec, workdir: Path | None) -> Parcel:
    if workdir is None:
        return Parcel(spec, None, None)
    from tpuctl.runs.bundle import pack

    return Parcel(spec, workdir, Bundle(*pack(workdir)))


def with_options(spec: RunSpec, options: Options) -> RunSpec:
    """Raises SpecError: options are held to the spec's rules here, before anything is shipped."""
    changes: dict[str, Any] = {}
    if options.name:
        changes["name"] = options.name
    if options.pools:
        changes["use"] = tuple({"pool": pool} for pool in options.pools)
    if options.slices is not None:
        changes |= {"min_slices": options.slices, "max_slices": options.slices}
    if options.env:
        given = dict(pair_of(text) for text in options.env)
        changes["env"] = tuple({**dict(spec.env), **given}.items())
    if options.checkpoint_dir:
        changes["checkpoint"] = {"dir": options.checkpoint_dir, "grace_s": spec.checkpoint.grace_s}
    if options.max_failures is not None:
        changes["max_failures"] = options.max_failures
    if options.priority is not None:
        changes["priority"] = options.priority
    return checked({**spec.model_dump(), **changes}) if changes else spec


def checked(document: dict[str, Any]) -> RunSpec:
    """Raises UserError that names the options."""
    try:
        return RunSpec.model_validate(document)
    except ValidationError as error:
        told = [f"{_option(each['loc'])}: {each['msg'].removeprefix('Value error, ')}" for each in error.errors()]
        raise UserError("; ".join(dict.fromkeys(told))) from error


def _option(place: tuple[int | str, ...]) -> str:
    key = str(place[0]) if place else ""
    if key == "command":
        return "the command after --"
    names = {"use": "--pool", "min_slices": "--slices", "max_slices": "--slices", "checkpoint": "--checkpoint-dir"}
    return names.get(key, f"--{key.replace('_', '-')}")


def pair_of(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
        raise UserError(f"--env {text!r}: write it NAME=VALUE")
    return key, value


def name_after(command: tuple[str, ...], now: Instant) -> str:
    """The program's name and the time: unique enough for one person, and plain."""
    stem = re.sub(r"[^a-z0-9]+", "-", Path(command[0]).stem.lower()).strip("-")[:20].strip("-")
    stem = stem if stem and stem[0].isalpha() else f"run-{stem}".strip("-")
    return f"{stem}-{base36(int(now.unix_s))}"


class RunsApi(Protocol):
    """What of AgentClient is needed here."""

    def has_bundle(self, digest: str) -> bool: ...

    def put_bundle(self, digest: str, archive: Path) -> None: ...

    def submit(self, spec: dict[str, Any], bundle: str, user: str, request_id: str) -> dict[str, Any]: ...

    def run(self, name: str) -> dict[str, Any]: ...


def send(client: RunsApi, parcel: Parcel, user: str, request_id: str, clock: Clock, say: Say) -> dict[str, Any]:
    """`{name, id}`. An answer that was lost is asked for again under the same request id: there is one run (A42)."""
    bundle = "" if parcel.bundle is None else ship(client, parcel.bundle, parcel.workdir, say)
    document = parcel.spec.model_dump(mode="json")
    for repeat in range(LOST_ANSWERS):
        try:
            return client.submit(document, bundle, user, request_id)
        except RetryLaterError as error:
            if repeat == LOST_ANSWERS - 1:
                raise
            say(f"{error}; asking again")
            clock.sleep(min(error.after_s, 5.0))
    raise AssertionError("unreachable: the last repeat raises or returns")


def ship(client: RunsApi, bundle: Bundle, workdir: Path | None, say: Say) -> str:
    """The digest of the archive, which the agent has afterwards."""
    if not client.has_bundle(bundle.digest):
        say(f"sending {workdir} ({len(bundle.archive) / 1e6:.1f} MB)")
        with tempfile.NamedTemporaryFile(prefix="tpuctl-bundle-") as file:
            file.write(bundle.archive)
            file.flush()
            client.put_bundle(bundle.digest, Path(file.name))
    return bundle.digest


def wait_for_end(client: RunsApi, name: str, clock: Clock, say: Say) -> int:
    """The program's status: 0 when it succeeded, its own when it failed, 125 when it was cancelled or has none.

    Bears a silent agent for PATIENCE_S; raises its error then.
    """
    told, heard_s = "", clock.monotonic()
    while True:
        try:
            run = client.run(name)
        except RetryLaterError:
            if clock.monotonic() - heard_s > PATIENCE_S:
                raise
            clock.sleep(POLL_S)
            continue
        heard_s = clock.monotonic()
        if (line := state_line(run)) != told:
            say(line)
            told = line
        if run["state"] == "SUCCEEDED":
            return 0
        if run["state"] in ("FAILED", "CANCELLED"):
            return int(run["exit_code"] or 125)
        clock.sleep(POLL_S)


def state_line(run: dict[str, Any]) -> str:
    where = f" on {', '.join(run['slices'])}" if run["slices"] else ""
    attempt = f", attempt {run['attempt']}" if run["attempt"] else ""
    reason = f": {run['reason']}" if run["reason"] else ""
    return f"{run['name']} {run['state']}{attempt}{where}{reason}"
