"""Schema, reference page and shipped specs say what the reader does."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # a requirement of ray, without stubs
import pytest
import yaml

from tpuctl.base.units import Instant
from tpuctl.spec.cluster_keys import CLUSTER
from tpuctl.spec.errors import SpecError
from tpuctl.spec.inspect import inspect
from tpuctl.spec.keys import Block, Key
from tpuctl.spec.reference import renewed
from tpuctl.spec.run_keys import RUN
from tpuctl.spec.schema import cluster_schema, run_schema
from tpuctl.spec.starter import cloud_starter, emulator_starter
from tpuctl.spec.yaml import load_cluster, parse_cluster, parse_run

ROOT = Path(__file__).resolve().parents[2]
NOW = Instant.parse("2026-12-01T12:00:00Z")
CLUSTER_FILES = (ROOT / "configs" / "tpuctl.yaml", ROOT / "configs" / "demo" / "tpuctl.yaml")
RUN_FILES = (
    ROOT / "configs" / "train.yaml",
    ROOT / "configs" / "demo" / "train.yaml",
    ROOT / "configs" / "demo" / "undisturbed.yaml",
)


def all_keys(block: Block) -> Iterator[Key]:
    for key in block.keys:
        yield key
        for inner in (key.block, key.each):
            if inner is not None:
                yield from all_keys(inner)


def as_json(text: str) -> Any:
    document = yaml.safe_load(text)
    if isinstance(document.get("grant"), dict) and isinstance(document["grant"].get("until"), dt.date):
        document["grant"]["until"] = document["grant"]["until"].isoformat()
    return document


def test_reference_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "spec.md").read_text()

    assert page == renewed(page), "run: python -m tpuctl.spec.reference docs/spec.md"
    keys = [*all_keys(CLUSTER), *all_keys(RUN)]
    assert len(keys) > 60
    assert [key.name for key in keys if f"{key.name}`" not in page] == []


def test_page_without_marks_is_told() -> None:
    with pytest.raises(ValueError, match="cluster keys"):
        renewed("# nothing")


def written_defaults(block: Block, indent: str = "") -> str:
    """Every key that has a default, with it."""
    text = ""
    for key in block.keys:
        if key.default:
            text += f"{indent}{key.name}: {key.default}\n"
        elif key.block is not None and not key.required and (inner := written_defaults(key.block, indent + "  ")):
            text += f"{indent}{key.name}:\n{inner}" if key.name != "grant" else ""
    return text


def test_defaults_of_the_tables_are_those_of_the_models() -> None:
    pool_block = next(key.each for key in CLUSTER.keys if key.name == "pools")
    head_block = next(key.block for key in CLUSTER.keys if key.name == "head")
    assert pool_block is not None
    assert head_block is not None
    names = "cluster: lab\nproject: p\ngrant: none\n"
    pool = "  - name: v4\n    accelerator: v4-8\n    zones: [us-central2-b]\n    slices: 1\n"
    short = f"{names}head:\n  zone: us-central1-a\npools:\n{pool}"
    full = (
        f"{names}{written_defaults(CLUSTER)}head:\n  zone: us-central1-a\n{written_defaults(head_block, '  ')}"
        f"pools:\n{pool}{written_defaults(pool_block, '    ')}"
    )

    assert full.count("\n") > short.count("\n") + 20
    assert parse_cluster(full, "full.yaml") == parse_cluster(short, "short.yaml")

    run = "name: a\ncommand: x\n"
    full_run = run + written_defaults(RUN)
    assert full_run.count("\n") > 10
    assert parse_run(full_run, "full.yaml") == parse_run(run, "short.yaml")


@pytest.mark.parametrize("path", CLUSTER_FILES, ids=str)
def test_shipped_cluster_specs_are_good_in_reader_and_schema(path: Path) -> None:
    text = path.read_text().replace("@STORAGE@", "/srv/bucket")

    assert parse_cluster(text, str(path)).pools
    jsonschema.validate(as_json(text), cluster_schema())


@pytest.mark.parametrize("path", RUN_FILES, ids=str)
def test_shipped_run_specs_are_good_in_reader_and_schema(path: Path) -> None:
    assert parse_run(path.read_text(), str(path)).command
    jsonschema.validate(as_json(path.read_text()), run_schema())


def test_shipped_run_fits_the_shipped_cluster() -> None:
    found = inspect(ROOT / "configs" / "tpuctl.yaml", (ROOT / "configs" / "train.yaml",), NOW)

    assert (len(found.good), found.warnings, found.wrong) == (2, (), ())


def test_starting_specs_are_good(tmp_path: Path) -> None:
    assert cloud_starter() == (ROOT / "configs" / "tpuctl.yaml").read_text()
    for folder in (Path("/srv/a"), Path('/srv/with "quotes" # and: blanks')):
        spec = parse_cluster(emulator_starter(folder), "tpuctl.yaml")
        assert spec.storage == (("us", f"file://{folder}"),)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"clusterr": "x"},
        {"pools": [{"name": "v4"}]},
        {"pools": [{"name": "v4", "accelerator": "v4-8", "zones": ["us-central2-b"], "slices": -1}]},
        {"secrets": ["X"]},
        {"detection": {"hold": 25}},
        {"grant": "all"},
        {"version": 2},
    ],
)
def test_what_the_schema_refuses_the_reader_refuses(spoilt: dict[str, Any]) -> None:
    document = as_json(cloud_starter()) | spoilt

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, cluster_schema())
    with pytest.raises(SpecError):
        parse_cluster(yaml.safe_dump(document), "x.yaml")


def test_run_that_can_never_start_on_the_cluster_is_told_why(tmp_path: Path) -> None:
    cluster = tmp_path / "tpuctl.yaml"
    cluster.write_text(cloud_starter().replace("storage:\n  us: gs://my-bucket/tpuctl\n", ""))
    run = tmp_path / "run.yaml"
    run.write_text("name: a\ncommand: x\nuse: [{pool: v4}, {pool: v6}]\nslices: 3\nworkdir: gone\n")

    wrong = "\n".join(inspect(cluster, (run,), NOW).wrong)

    assert load_cluster(cluster).storage == ()
    assert "has no pool 'v6' (pools: v4 (v4-32), v5e (v5litepod-16))" in wrong
    assert "no type in one zone has more than 2" in wrong
    assert "has no storage" in wrong
    assert "there is no directory" in wrong


def test_gang_of_a_type_without_multislice_is_told(tmp_path: Path) -> None:  # A19
    cluster = tmp_path / "tpuctl.yaml"
    cluster.write_text(cloud_starter().replace("v4-32 ", "v2-8 ").replace("/v4/", "/v2/"))
    run = tmp_path / "run.yaml"
    run.write_text("name: a\ncommand: x\nuse: [{pool: v4}]\nslices: 2\n")

    (wrong,) = inspect(cluster, (run,), NOW).wrong

    assert "v2-8 cannot be joined: multislice needs v4 or later; write 1, or use another pool" in wrong


def test_type_that_another_cluster_has_is_no_fault_while_one_place_fits(tmp_path: Path) -> None:
    run = tmp_path / "run.yaml"
    cluster = ROOT / "configs" / "tpuctl.yaml"
    run.write_text("name: a\ncommand: x\nuse: [{accelerator: v6e-8}, {pool: v4}]\n")
    assert inspect(cluster, (run,), NOW).wrong == ()

    run.write_text("name: a\ncommand: x\nuse: [{accelerator: v6e-8}]\n")
    assert "nothing that it names is a pool" in inspect(cluster, (run,), NOW).wrong[0]


def test_problem_in_one_file_does_not_hide_those_of_another(tmp_path: Path) -> None:
    bad, worse = tmp_path / "bad.yaml", tmp_path / "worse.yaml"
    bad.write_text("name: a\ncomand: x\n")
    worse.write_text("")

    found = inspect(tmp_path / "none.yaml", (bad, worse), NOW)

    assert [line.removeprefix(f"{tmp_path}/").split(":")[0] for line in found.wrong] == [
        "none.yaml", "bad.yaml", "bad.yaml", "worse.yaml",
    ]  # fmt: skip


def test_grant_that_is_over_is_told(tmp_path: Path) -> None:
    late = Instant.parse("2027-04-01T00:00:00Z")

    assert "ended with 2027-03-31" in inspect(ROOT / "configs" / "tpuctl.yaml", (), late).wrong[0]
