"""The run spec: what reaches the program, and what is refused by name."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.base.errors import UserError
from tpuctl.spec.checkpoint import expand_dir
from tpuctl.spec.document import dump, read_run
from tpuctl.spec.errors import SpecError
from tpuctl.spec.run import RunSpec, UseEntry
from tpuctl.spec.yaml import lint_run, parse_run


def read(text: str) -> RunSpec:
    return parse_run(text, "run.yaml")


def told(extra: str, base: str = "name: digits\ncommand: python train.py\n") -> str:
    with pytest.raises(SpecError) as caught:
        read(base + extra)
    return "\n".join(problem.text for problem in caught.value.problems)


def test_short_run_gets_the_defaults() -> None:
    spec = read("name: digits\ncommand: python train.py\n")

    assert spec == RunSpec(name="digits", command="python train.py")
    assert (spec.checkpoint.dir, spec.min_slices, spec.max_failures) == ("{storage}/runs/{run}", 1, 3)


def test_env_reaches_the_program_as_it_stands_in_the_file() -> None:  # A21, A22
    spec = read(
        "name: a\ncommand: x\nenv: {USE_TRACKER: no, MODE: on, COUNTRY: NO, DEBUG: yes, TAG: true, SEED: 0123, "
        "CODE: 08989, MASK: 0x1F, BIG: 1_000, DAY: 2026-12-01, T: 12:30:45, NOTHING: ~, F: 1e3, EMPTY: ''}\n"
    )

    assert dict(spec.env) == {
        "USE_TRACKER": "no",
        "MODE": "on",
        "COUNTRY": "NO",
        "DEBUG": "yes",
        "TAG": "true",
        "SEED": "0123",
        "CODE": "08989",
        "MASK": "0x1F",
        "BIG": "1_000",
        "DAY": "2026-12-01",
        "T": "12:30:45",
        "NOTHING": "~",
        "F": "1e3",
        "EMPTY": "",
    }


def test_name_of_a_variable_may_be_a_word_that_yaml_takes_for_a_truth_value() -> None:
    assert read("name: a\ncommand: x\nenv: {NO: 1, y: 2}\n").env == (("NO", "1"), ("y", "2"))


@pytest.mark.parametrize(
    ("env", "hint"),
    [
        ("{A: [1]}", "env.A must be a text, not a list"),
        ("{A: }", 'env.A has no value; write ""'),
        ("{1A: x}", "'1A' is no name of a variable"),
        ("{A B: x}", "'A B' is no name of a variable"),
        ("[A=1]", "env must be a mapping (NAME: value), not a list"),
        ("{TPUCTL_RUN: x}", "TPUCTL_RUN is set or removed by tpuctl"),
        ("{RAY_ADDRESS: x}", "RAY_ADDRESS is set or removed by tpuctl"),
        ("{MEGASCALE_PORT: 1}", "MEGASCALE_PORT is set or removed by tpuctl"),
        ('{A: "\\0"}', "a zero character"),
    ],
)
def test_env_that_cannot_be_is_refused(env: str, hint: str) -> None:
    assert hint in told(f"env: {env}\n")


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@given(texts)
def test_any_quoted_env_text_survives_file_and_store(value: str) -> None:
    document = yaml.safe_dump({"name": "a", "command": "x", "env": {"V": value}}, allow_unicode=False)

    spec = read(document)

    assert spec.env == (("V", value),)
    assert read_run(dump(spec)) == spec


@given(texts)
def test_any_text_as_json_writes_it_survives(value: str) -> None:
    # JSON is YAML's flow style; astral letters come as two escapes there.
    assert read('{"name": "a", "command": "x", "env": {"V": ' + json.dumps(value) + "}}").env == (("V", value),)


@given(
    st.text("0123456789abcdefxoyn_.+-:ETZ~", min_size=1, max_size=12).filter(
        lambda t: re.fullmatch(r"\w[\w.+:-]*\w", t)
    )
)
def test_any_plain_word_reaches_the_program_letter_by_letter(word: str) -> None:
    assert read(f"name: a\ncommand: x\nenv:\n  V: {word}\n").env == (("V", word),)


COMMANDS = [
    "python train.py " + " ".join(f"--option-{number} value" for number in range(14)) + " | tee log >/dev/null;",
    "set -x\npython train.py \\\n  --steps 10\n",
    "  echo 'leading # blanks'\n    echo \"no # comment\"\n",
    "echo 'grün 日本 🙂' && printf '%s\\n' \"it's 5% \\\"ok\\\" \\\\ done\"",
    "true\n\n\nfalse\n",
    "tab\there",
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("style", ["block", "quoted", "folded by a dumper"])
def test_command_reaches_store_and_back_byte_for_byte(command: str, style: str) -> None:  # A24
    if style == "block":
        keep = "+" if command.endswith("\n") else "-"
        text = f"command: |2{keep}\n" + "".join(f"  {line}\n" for line in command.removesuffix("\n").split("\n"))
    elif style == "quoted":
        text = f"command: {json.dumps(command)}\n"
    else:
        text = yaml.safe_dump({"command": command}, width=40)

    spec = read("name: a\n" + text)

    assert spec.command == command
    assert len(command) > 1
    for _ in range(2):  # two passes apart
        spec = read_run(dump(spec))
    assert spec.command == command


def test_list_is_argv_with_every_word_as_written() -> None:
    spec = read('name: a\ncommand: [python, show.py, "a b", "c>d", "", 0123, no, 1e3]\n')

    assert spec.command == ("python", "show.py", "a b", "c>d", "", "0123", "no", "1e3")
    assert read_run(dump(spec)) == spec


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("''", "command is empty"),
        ("[]", "a list without a program"),
        ("['', x]", "a list without a program"),
        ("{a: b}", "command must be a text, not a mapping"),
        ("", "command has no value"),
        ("[a, [b]]", "an entry of command must be a text, not a list"),
    ],
)
def test_command_that_runs_nothing_is_refused(command: str, hint: str) -> None:
    assert hint in told(f"command: {command}\n", base="name: a\n")


@pytest.mark.parametrize(
    "line",
    [
        "size: {hosts: 1}",
        "secrets: [WANDB_API_KEY]",
        "setup: pip install x",
        "git: https://example.org/x",
        "image: x",
        "after: [other]",
        "sweep: {lr: [1, 2]}",
        "tasks: {}",
        "spread: region",
        "elastic: exact",
        "time_limit: 2h",
        "stall: 20m",
        "progress: 'step (\\d+)'",
    ],
)
def test_key_of_later_work_is_refused_by_name(line: str) -> None:
    key = line.partition(":")[0]
    assert told(f"{line}\n").startswith(f"'{key}' is not there yet")


@pytest.mark.parametrize("key", ["slices: 2", "env: {A: b}", "args: [x]"])
def test_setting_by_place_is_refused_by_name(key: str) -> None:
    assert f"'use.{key.partition(':')[0]}' is not there yet" in told(f"use: [{{pool: v4, {key}}}]\n")


def test_words_that_change_nothing_may_be_written() -> None:
    assert read("name: a\ncommand: x\nelastic: none\ntime_limit: none\n") == RunSpec(name="a", command="x")


def test_places_are_read_in_their_order() -> None:
    spec = read("name: a\ncommand: x\nuse: [{pool: v4}, {accelerator: v5e-16}]\nslices: {min: 1, max: 4}\n")

    assert spec.use == (UseEntry(pool="v4"), UseEntry(accelerator="v5litepod-16"))
    assert (spec.min_slices, spec.max_slices) == (1, 4)


@pytest.mark.parametrize(
    ("extra", "hint"),
    [
        ("max_failure: 0", "unknown key 'max_failure' (nearest: 'max_failures')"),
        ("max_failures: -1", "it must be at least 0"),
        ("max_failures: '1'", "write 1 without quotes"),
        ("slices: 0", "between 1 and 1000"),
        ("slices: {min: 3, max: 2}", "min (3) is larger than max (2)"),
        ("slices: {min: 3}", "missing key 'slices.max'"),
        ("use: [{}]", "names either a pool or an accelerator, not none"),
        ("use: [{pool: a, accelerator: v4-8}]", "not both"),
        ("use: [{pool: a}, {pool: a}]", "use names a twice"),
        ("use: [{accelerator: v4-9}]", "unknown accelerator type 'v4-9'"),
        ("use: v4", "use must be a list"),
        ("priority: 1.5", "must be a whole number"),
        ("priority: 010", "without leading zero"),
        ("checkpoint: {dir: '{storage}/{user}'}", "{user} is not known; {storage}, {run} and {run_id} are"),
        ("checkpoint: {dir: '{storage}/x}'}", "a brace without its other half"),
        ("checkpoint: {dir: ckpt}", "must begin with {storage}, gs:// or /"),
        ("checkpoint: {dir: '{storage}/../x'}", "may not contain '..'"),
        ("checkpoint: {dir: ''}", "write a directory"),
        ("checkpoint: {grace: 30}", "needs a unit: 30s"),
        ("workdir: [a]", "workdir must be a text"),
        ("version: 3", "reads version 1"),
    ],
)
def test_value_that_cannot_be_is_refused(extra: str, hint: str) -> None:
    assert hint in told(extra + "\n")


@pytest.mark.parametrize("name", ["a" * 41, "A", "a_b", "-a", "a-", "1a", "a/b", '"../x"'])
def test_name_that_is_not_plain_is_refused(name: str) -> None:
    assert "name " in told("", base=f"name: {name}\ncommand: x\n")


def test_option_on_a_line_of_its_own_is_warned_of() -> None:  # A29
    slip = read("name: a\ncommand: |\n  python show.py \\\n    --save-interval 10m\n    --steps 10000\n")
    right = read("name: a\ncommand: |\n  python show.py \\\n    --save-interval 10m \\\n    --steps 10000\n")

    assert lint_run(right) == ()
    (warning,) = lint_run(slip)
    assert "line 3" in warning
    assert "--steps" in warning


def test_blank_after_a_backslash_and_a_line_in_brackets_are_warned_of() -> None:
    assert "blanks after its backslash" in lint_run(RunSpec(name="a", command="python x.py \\ \n  --steps 1"))[-1]
    assert "name of a program" in lint_run(RunSpec(name="a", command=("python train.py",)))[0]
    assert lint_run(RunSpec(name="a", command=("python", "train.py"))) == ()


def test_checkpoint_dir_is_filled_in() -> None:
    assert expand_dir("{storage}/runs/{run}", "gs://b/x", "digits", "id") == "gs://b/x/runs/digits"
    assert expand_dir("{storage}/{run_id}", "file:///srv/data", "digits", "digits-1") == "/srv/data/digits-1"
    assert expand_dir("/mnt/x", "", "digits", "id") == "/mnt/x"
    # A name that looks like a placeholder is not filled in twice.
    assert expand_dir("{storage}/{run}", "gs://{run_id}", "r", "id") == "gs://{run_id}/r"
    with pytest.raises(UserError, match="has no storage"):
        expand_dir("{storage}/runs/{run}", "", "digits", "id")
