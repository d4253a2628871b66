"""Where a run keeps its checkpoints: a template in the run spec, a directory for the program."""

from __future__ import annotations

import re

from tpuctl.base.errors import UserError

PLACEHOLDERS = ("storage", "run", "run_id")


def dir_problem(template: str) -> str | None:
    """What is wrong with it, and what to do; None when it is fine."""
    if not template:
        return "write a directory, best {storage}/runs/{run}"
    for name in re.findall(r"\{([^{}]*)\}", template):
        if name not in PLACEHOLDERS:
            return f"{{{name}}} is not known; {{storage}}, {{run}} and {{run_id}} are"
    if re.search(r"[{}]", re.sub(r"\{(?:storage|run|run_id)\}", "", template)):
        return "a brace without its other half; only {storage}, {run} and {run_id} may stand in braces"
    if not template.startswith(("{storage}", "gs://", "/")):
        return "must begin with {storage}, gs:// or /: what lies in the working directory is gone with the slice"
    if ".." in template.split("/"):
        return "may not contain '..'"
    return None


def expand_dir(template: str, storage: str, run: str, run_id: str) -> str:
    """What the program finds in TPUCTL_CHECKPOINT_DIR. `storage` is the cluster's root, "" if it has none.

    A `file:///DIRECTORY` root becomes the plain path: programs open it as a directory.
    Raises UserError when the template needs a storage that the cluster spec does not have.
    """
    if "{storage}" in template and not storage:
        raise UserError(
            f"run {run!r}: checkpoint.dir is {template!r}, but the cluster spec has no storage; "
            "add 'storage: {us: gs://…}' to it, or write a full path"
        )
    values = {"storage": storage.removeprefix("file://"), "run": run, "run_id": run_id}
    return re.sub(r"\{(storage|run|run_id)\}", lambda match: values[match[1]], template)
