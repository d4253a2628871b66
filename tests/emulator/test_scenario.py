"""Scenario files: strict, and every mistake with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuctl.base.errors import UserError
from tpuctl.emulator.scenario import Latencies, Settings, Span
from tpuctl.emulator.scenario_yaml import parse_text, read_scenario
from tpuctl.testing.core_driver import Driver


def no_files(name: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", name)


def mistakes(text: str) -> list[str]:
    with pytest.raises(UserError) as caught:
        parse_text(text, "s.yaml", no_files)
    first, *lines = str(caught.value).splitlines()
    assert first == f"scenario s.yaml: {len(lines)} mistake(s)"
    return lines


def test_empty_file_is_the_usual_cloud() -> None:
    assert parse_text("# nothing\n", "s.yaml", no_files) == Settings()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("notise: 3\n", "s.yaml:1:1: notise: unknown key 'notise'; did you mean 'notice'?"),
        (
            "latencies:\n  boot: 1s\n  provisionning: 2s\n",
            "s.yaml:3:3: latencies.provisionning: unknown key 'provisionning'; did you mean 'provisioning'?",
        ),
        (
            "latencies: {boot: 5s..1s}\n",
            "s.yaml:1:13: latencies.boot: '5s..1s' ends before it begins; write the shorter duration first",
        ),
        (
            "preemptions:\n- {node: a, at: 1s}\n- {node: b}\n",
            "s.yaml:3:3: preemptions.1: it needs one of `at` and `after_ready`",
        ),
        (
            "preemptions:\n- {node: '(', at: 1s}\n",
            "s.yaml:2:4: preemptions.0.node: '(' is no pattern: missing ), unterminated subpattern at position 0",
        ),
        (
            "preemptions: [{after_ready: 1s, share: 0.5}]\n",
            "s.yaml:1:15: preemptions.0: `share` needs `at` and goes without `times`",
        ),
        (
            "capacity:\n- zone: us-central2-b\n  type: v9\n",
            "s.yaml:3:3: capacity.0.type: type 'v9' is no accelerator type, no generation and not '*'",
        ),
        (
            "capacity: {trace: t.csv, type: v4-8, zones: {us-central2-b: a}}\n",
            "s.yaml:1:1: capacity.0: trace 't.csv' cannot be read: No such file or directory",
        ),
        (
            "capacity: {zone: us-central2-b, type: v9}\n",
            "s.yaml:1:33: capacity.0.type: type 'v9' is no accelerator type, no generation and not '*'",
        ),
        ("stockouts: [{after: 5s, until: 5s}]\n", "s.yaml:1:13: stockouts.0: `until` must be later than `after`"),
        (
            "stalls:\n- {stage: DELETING, error: quota}\n",
            "s.yaml:2:3: stalls.0: a request cannot fail in stage DELETING; leave `error` out",
        ),
        (
            "node_states: [{at: 1s, state: PREEMPTED, lasts: 2s}]\n",
            "s.yaml:1:15: node_states.0: a node that is PREEMPTED has no machines and does not come back; leave `lasts`"
            " out",
        ),
        (
            "seed: 1\nunreachable: [{zone: us-central2-b}, {zone: us-central2-d}]\n",
            "s.yaml:2:1: unreachable: rule 1: there is no zone 'us-central2-d'; did you mean 'us-central2-b'?",
        ),
        ("seed: 1\nseed: 2\n", "s.yaml:2:1: key 'seed' stands here twice; remove one"),
        ("a: &x [1]\nb: *x\n", "s.yaml:2:4: aliases are not read; write it out"),
        ("a: [1\n", "s.yaml:2:1: not YAML: expected ',' or ']', but got '<stream end>'"),
        ("[1]\n", "s.yaml:1:1: document: Input should be a valid dictionary or instance of Settings"),
    ],
)
def test_mistake_is_told_with_its_place(text: str, line: str) -> None:
    assert mistakes(text) == [line]


def test_all_mistakes_are_told_in_the_order_of_the_file() -> None:
    text = """
notise: 3
latencies: {boot: soon}
faults:
- {kind: slow}
- {kind: slow, error: boom, evry: 2}
seed: 0
seed: 1
"""
    places = [line.split(": ")[0] for line in mistakes(text)]
    assert places == ["s.yaml:2:1", "s.yaml:3:13", "s.yaml:6:16", "s.yaml:6:29", "s.yaml:8:1"]


def test_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_scenario(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"notice: 1s # \xe9\n")
    with pytest.raises(UserError, match="not UTF-8 text"):
        read_scenario(tmp_path / "latin.yaml")


def test_latency_is_fixed_or_drawn_from_its_range_by_the_seed() -> None:
    settings = Settings(latencies=Latencies(accepted=Span(10, 20), waiting=0, provisioning=0))

    def seconds_in_creating(seed: int) -> list[float]:
        driver = Driver(settings, seed)
        for name in "abcdef":
            driver.create(name)
        driver.pass_time(30)
        start = driver.cloud.world.started
        assert start is not None
        return [t.at.since(start) for t in driver.cloud.history if t.state == "ACCEPTED"]

    first = seconds_in_creating(1)
    assert len(set(first)) == 6
    assert all(10 <= seconds <= 20 for seconds in first)
    assert seconds_in_creating(1) == first
    assert seconds_in_creating(2) != first


def test_every_answer_takes_the_latency_of_a_call() -> None:
    driver = Driver(Settings(latencies=Latencies(call=0.2)))
    assert driver.send("GET", "/v2/projects/lab/locations").delay_s == 0.2
