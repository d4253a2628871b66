"""The keys of the run spec."""

from __future__ import annotations

from tpuctl.spec.keys import DURATION, NAME, TEXT, Block, Key, one_of, whole

_LATER = {"type": ["string", "number", "object", "array"]}

USE = Block(
    "use",
    (
        Key("pool", "A pool of the cluster.", NAME),
        Key("accelerator", "Or any pool of this type.", TEXT),
        Key("slices", "Slices for this place.", _LATER, later="slices by place"),
        Key("env", "Environment for this place.", _LATER, later="environment by place"),
        Key("args", "Arguments for this place.", _LATER, later="arguments by place"),
    ),
    {"type": "accelerator", "name": "pool"},
)

SLICES = Block(
    "slices",
    (
        Key("min", "It starts with this many.", whole(1), required=True),
        Key("max", "It takes up to this many when it starts.", whole(1), required=True),
    ),
)

CHECKPOINT = Block(
    "checkpoint",
    (
        Key(
            "dir",
            "What the program finds in TPUCTL_CHECKPOINT_DIR: {storage} is the cluster's storage, {run} the run's "
            "name, {run_id} its unique id.",
            TEXT,
            '"{storage}/runs/{run}"',
        ),
        Key("grace", "From the request to stop (SIGTERM) to the end (SIGKILL).", DURATION, "30s"),
    ),
    {"path": "dir", "directory": "dir"},
)

RUN = Block(
    "run",
    (
        Key("version", "Version of this format.", {"const": 1}, "1"),
        Key("name", "A plain name of at most 40 characters.", {**NAME, "maxLength": 40}, required=True),
        Key(
            "command",
            "A shell line or block for `bash -eo pipefail`, or a list of arguments that no shell reads.",
            {"anyOf": [TEXT, {"type": "array", "minItems": 1, "items": {"type": ["string", "number", "boolean"]}}]},
            required=True,
        ),
        Key(
            "workdir",
            "Directory to ship, relative to this file; empty: none. What .gitignore names stays out.",
            TEXT,
            '""',
        ),
        Key("use", "Where it may run, in order of preference; empty: any pool.", each=USE, default="[]"),
        Key("slices", "How many slices it takes, or {min, max}.", whole(1), "1", block=SLICES),
        Key("size", "Less than a slice.", _LATER, later="runs on a part of a slice"),
        Key(
            "env",
            "Environment of the program. Each value reaches it as it stands in the file: no stays no, 0123 stays 0123.",
            {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
            "{}",
        ),
        Key("secrets", "Secrets by name.", _LATER, later="secrets by name"),
        Key("checkpoint", "Where and how long.", block=CHECKPOINT),
        Key("max_failures", "Failures of its own that it survives. Preemptions are not limited.", whole(0), "3"),
        Key("priority", "Higher goes first; then the older one.", {"type": "integer"}, "0"),
        Key("setup", "A command before the first attempt on a host.", _LATER, later="set-up commands"),
        Key("git", "Code from a repository.", _LATER, later="code from a repository"),
        Key("image", "A container image.", _LATER, later="container images"),
        Key("after", "Runs that must have succeeded.", _LATER, later="runs that wait for others"),
        Key("sweep", "Many runs from one file.", _LATER, later="sweeps"),
        Key("tasks", "Many tasks from one file.", _LATER, later="task lists"),
        Key("spread", "A gang over zones of one region.", _LATER, later="gangs over several zones"),
        Key(
            "elastic",
            "Exact elastic training.",
            one_of("none"),
            "none",
            later="exact elastic training",
            already=("none",),
        ),
        Key("time_limit", "When it must end.", one_of("none"), "none", later="time limits", already=("none",)),
        Key("stall", "When a silent run is restarted.", _LATER, later="watching for stalls"),
        Key("progress", "How progress reads in its log.", _LATER, later="reading progress from logs"),
    ),
    {
        "cmd": "command",
        "run": "command",
        "pools": "use",
        "pool": "use",
        "environment": "env",
        "envs": "env",
        "retries": "max_failures",
        "num_slices": "slices",
        "dir": "workdir",
        "checkpoint_dir": "checkpoint",
    },
)
