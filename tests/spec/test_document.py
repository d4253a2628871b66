"""Specs as JSON."""

from __future__ import annotations

import json

import pytest

from tpuctl.spec.document import digest, dump, read_cluster, read_run
from tpuctl.spec.errors import SpecError
from tpuctl.spec.run import RunSpec
from tpuctl.spec.starter import cloud_starter
from tpuctl.spec.yaml import parse_cluster

CLUSTER = parse_cluster(cloud_starter(), "tpuctl.yaml")


def test_cluster_spec_survives_its_json() -> None:
    assert read_cluster(dump(CLUSTER)) == CLUSTER
    assert json.loads(dump(CLUSTER))["grant"]["until"] == "2027-04-01T00:00:00.000Z"


def test_digest_follows_the_meaning_and_not_the_text() -> None:
    reordered = "\n".join(line for line in cloud_starter().splitlines() if not line.strip().startswith("#"))
    changed = cloud_starter().replace("slices: 2", "slices: 1")

    assert digest(parse_cluster(reordered, "x")) == digest(CLUSTER) == digest(read_cluster(dump(CLUSTER)))
    assert digest(parse_cluster(changed, "x")) != digest(CLUSTER)
    assert len(digest(CLUSTER)) == 16


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "document: Invalid JSON"),
        ("[]", "document: Input should be an object"),
        ('{"name": "a"}', "command: Field required"),
        ('{"name": "a", "command": "x", "nmae": 1}', "nmae: Extra inputs are not permitted"),
        ('{"name": "../../x", "command": "x"}', "name: Value error, '../../x' is no plain name"),
        ('{"name": "a", "command": "x", "version": 2}', "version: Input should be 1"),
        (
            '{"name": "a", "command": "x", "env": [["RAY_x", "1"]]}',
            "env: Value error, RAY_x is set or removed by tpuctl",
        ),
        ('{"name": "a", "command": "x", "env": [["X", "\\u0000"]]}', "env: Value error, '\\x00' has a NUL"),
        ('{"name": "a", "command": "x", "checkpoint": {"dir": "here"}}', "checkpoint.dir: Value error, 'here': must"),
        ('{"name": "a", "command": []}', "command: Value error, there is no program in it"),
        ('{"name": "a", "command": "x", "priority": 9999999999999999999}', "priority: Input should be less than"),
        ('{"name": "a", "command": "x", "min_slices": 0}', "min_slices: Input should be greater than or equal to 1"),
    ],
)
def test_document_that_is_no_run_spec_is_refused(text: str, told: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_run(text)
    assert any(told in line for line in caught.value.lines)


def test_specs_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        RunSpec(name="a", command="x").name = "b"
