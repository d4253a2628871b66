"""From the tree of a run spec to the model."""

from __future__ import annotations

import itertools
import re

from tpuctl.spec.accelerators import UnknownAcceleratorError, accelerator
from tpuctl.spec.checkpoint import dir_problem
from tpuctl.spec.fields import Fields, Problems, shown
from tpuctl.spec.run import (
    MAX_RUN_NAME,
    MOST_FAILURES,
    MOST_PRIORITY,
    MOST_SLICES,
    CheckpointSpec,
    RunSpec,
    UseEntry,
    variable_problem,
)
from tpuctl.spec.run_keys import RUN, USE
from tpuctl.spec.tree import Mapping, Node
from tpuctl.spec.tree import Sequence as ListNode


def run_of(root: Mapping, problems: Problems) -> RunSpec | None:
    """None when anything was complained of."""
    top = Fields(root, RUN, problems)
    top.version()
    name = top.name("name", MAX_RUN_NAME)
    command = _command(top)
    workdir = top.text("workdir")
    least, most = _slices(top)
    use, env, checkpoint = _use(top), _env(top), _checkpoint(top)
    max_failures = top.whole("max_failures", 3, 0, MOST_FAILURES)
    priority = top.whole("priority", 0, -MOST_PRIORITY, MOST_PRIORITY)
    if problems.found:
        return None
    return RunSpec(
        name=name,
        command=command,
        workdir=workdir,
        use=use,
        min_slices=least,
        max_slices=most,
        env=env,
        checkpoint=checkpoint,
        max_failures=max_failures,
        priority=priority,
    )


def _command(top: Fields) -> str | tuple[str, ...]:
    node, problems = top.get("command"), top.problems
    if node is None:
        return ""
    if not isinstance(node, ListNode):
        text = problems.as_written(node, "command")
        if text is not None and not text.strip():
            problems.add(node, "command is empty; write what to run")
        return text or ""
    words = tuple(problems.as_written(item, "an entry of command") or "" for item in node.items)
    if not words or not words[0]:
        problems.add(node, "command is a list without a program; write the program first, then its arguments")
    return words


def _slices(top: Fields) -> tuple[int, int]:
    node = top.get("slices")
    if node is None:
        return 1, 1
    if not isinstance(node, Mapping):
        count = top.problems.whole(node, "slices", 1, MOST_SLICES) or 1
        return count, count
    fields = top.block("slices")
    assert fields is not None
    least, most = fields.whole("min", 1, 1, MOST_SLICES), fields.whole("max", MOST_SLICES, 1, MOST_SLICES)
    if least > most:
        top.problems.add(node, f"slices: min ({least}) is larger than max ({most})")
    return least, most


def _use(top: Fields) -> tuple[UseEntry, ...]:
    problems, entries = top.problems, list[UseEntry]()
    for node in top.items("use"):
        mapping = problems.mapping(node, "an entry of use")
        if mapping is None:
            continue
        fields = Fields(mapping, USE, problems, "use")
        pool, kind = fields.name("pool", MAX_RUN_NAME), _accelerator(fields)
        given = [key for key in ("pool", "accelerator") if mapping.get(key) is not None]
        if len(given) != 1:
            problems.add(
                mapping, f"an entry of use names either a pool or an accelerator, not {'both' if given else 'none'}"
            )
        elif UseEntry(pool=pool, accelerator=kind) in entries:
            problems.add(mapping, f"use names {pool or kind} twice; remove one of the two")
        entries.append(UseEntry(pool=pool, accelerator=kind))
    return tuple(entries)


def _accelerator(fields: Fields) -> str:
    def check(node: Node, what: str) -> str | None:
        text = fields.problems.text(node, what)
        if text is None:
            return None
        try:
            return accelerator(text).name
        except UnknownAcceleratorError as error:
            fields.problems.add(node, str(error))
            return None

    return fields.read("accelerator", check, "")


def _env(top: Fields) -> tuple[tuple[str, str], ...]:
    problems = top.problems
    node = top.get("env")
    if isinstance(node, ListNode):
        problems.add(node, "env must be a mapping (NAME: value), not a list of NAME=value")
        return ()
    mapping = None if node is None else problems.mapping(node, "env")
    found: list[tuple[str, str]] = []
    for key, value in mapping.items if mapping is not None else ():
        if problem := variable_problem(key.text):
            problems.add(key, f"env: {problem}")
        text = problems.as_written(value, f"env.{key.text}")
        found.append((key.text, text or ""))
    return tuple(found)


def _checkpoint(top: Fields) -> CheckpointSpec:
    fields = top.block("checkpoint")
    default = CheckpointSpec()
    if fields is None:
        return default

    def check(node: Node, what: str) -> str | None:
        text = fields.problems.text(node, what)
        wrong = None if text is None else dir_problem(text)
        if wrong is not None:
            fields.problems.add(node, f"{what} {shown(text or '')}: {wrong}")
            return None
        return text

    return CheckpointSpec(dir=fields.read("dir", check, default.dir), grace_s=fields.duration("grace", default.grace_s))


def lint_run(spec: RunSpec) -> tuple[str, ...]:
    """Warnings: what is allowed and probably not meant."""
    warnings: list[str] = []
    if isinstance(spec.command, str):
        lines = spec.command.split("\n")
        for number, (before, line) in enumerate(itertools.pairwise(lines), start=2):
            # A29: the line before lacks its backslash, so the shell runs the option as a command of its own.
            if re.match(r"\s*--?[A-Za-z]", line) and before.strip() and not before.endswith("\\"):
                warnings.append(
                    f"line {number} of the command of {spec.name!r} begins with an option ({line.split()[0]}), and the "
                    "line before it does not end in a backslash: the shell will run it as a command of its own"
                )
            if before.rstrip() != before and before.rstrip().endswith("\\"):
                warnings.append(
                    f"line {number - 1} of the command of {spec.name!r} has blanks after its backslash: it does not "
                    "continue the line"
                )
    elif len(spec.command) == 1 and " " in spec.command[0]:
        warnings.append(
            f"the command of {spec.name!r} is a list of one text with blanks: it is taken for the name of a program; "
            "write it without the brackets to have a shell read it"
        )
    return tuple(warnings)
