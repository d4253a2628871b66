"""init, validate and schema, as commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tpuctl.cli import init, schema, validate


@pytest.fixture
def verbs() -> typer.Typer:
    app = typer.Typer()
    for verb in (init, validate, schema):
        verb.register(app)
    return app


def test_init_then_validate_is_good(verbs: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TPUCTL_SPEC", raising=False)

    made = CliRunner().invoke(verbs, ["init", "--emulator"])
    checked = CliRunner().invoke(verbs, ["validate"])

    assert (made.exit_code, made.stdout) == (0, "")
    assert (checked.exit_code, checked.stdout) == (0, "tpuctl.yaml: cluster lab: v4 2 x v4-16 (16 chips)\n")


def test_init_never_overwrites(verbs: typer.Typer, tmp_path: Path) -> None:
    file = tmp_path / "tpuctl.yaml"
    file.write_text("mine")

    refused = CliRunner().invoke(verbs, ["init", "-f", str(file)])

    assert refused.exception is not None
    assert getattr(refused.exception, "exit_code", None) == 2
    assert "is there already" in str(refused.exception)
    assert file.read_text() == "mine"


def test_validate_tells_all_problems_on_stderr_and_exits_2(verbs: typer.Typer, tmp_path: Path) -> None:
    cluster, run = tmp_path / "c.yaml", tmp_path / "r.yaml"
    cluster.write_text("cluster: no\n")
    run.write_text("name: a\ncommand: |\n  python x.py\n  --steps 1\nmax_failure: 0\n")

    done = CliRunner().invoke(verbs, ["validate", "-f", str(cluster), str(run)])

    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{cluster}:1:10: cluster: YAML takes no" in done.stderr
    assert f"{run}:5:1: unknown key 'max_failure' (nearest: 'max_failures')" in done.stderr


def test_run_spec_alone_needs_no_cluster_spec(
    verbs: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TPUCTL_SPEC", raising=False)
    Path("r.yaml").write_text("name: a\ncommand: |\n  python x.py\n  --steps 1\n")

    done = CliRunner().invoke(verbs, ["validate", "r.yaml"])

    assert (done.exit_code, done.stdout) == (0, "r.yaml: run a\n")
    assert "r.yaml: warning: line 2 of the command" in done.stderr


@pytest.mark.parametrize("which", ["cluster", "run"])
def test_schema_is_json_with_a_description_for_each_key(verbs: typer.Typer, which: str) -> None:
    done = CliRunner().invoke(verbs, ["schema", which])

    document = json.loads(done.stdout)
    assert done.exit_code == 0
    assert len(document["properties"]) >= 10
    assert all(key["description"] for key in document["properties"].values())


@pytest.mark.parametrize("verb", ["init", "validate", "schema"])
def test_help_has_examples(verbs: typer.Typer, verb: str) -> None:
    done = CliRunner().invoke(verbs, [verb, "--help"])

    assert "Examples:" in done.stdout
    assert f"tpuctl {verb}" in done.stdout
