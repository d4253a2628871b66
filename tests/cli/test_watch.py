"""`tpuctl reconcile --watch`, as a user meets it: a line a change, 130 at the end, on the head and away from it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tpuctl import app as composition
from tpuctl.base.chance import SeededChance
from tpuctl.base.errors import TpuctlError, UserError
from tpuctl.base.ids import QrName
from tpuctl.cli.main import app, register_all
from tpuctl.fleet.apply import InterruptedPassError
from tpuctl.testing.clock import FakeClock


def run(*arguments: str) -> Result:
    if not app.registered_commands:
        register_all()
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def basis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> composition.Basis:
    here = composition.Basis(composition.Settings(tmp_path, ""), FakeClock(), SeededChance(1))
    monkeypatch.setattr(composition, "basis", lambda *_: here)
    return here


End = tuple[int, str] | Exception | signal.Signals


def passes(*ends: End) -> Callable[..., tuple[int, str]]:
    script: Iterator[End] = iter(ends)

    def one(*_: Any, **__: Any) -> tuple[int, str]:
        match next(script):
            case signal.Signals() as number:
                signal.raise_signal(number)
                raise AssertionError("the signal was lost")
            case Exception() as error:
                raise error
            case (code, summary):
                return code, summary

    return one


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_away_from_the_head_each_change_is_a_line_and_the_end_is_130(
    basis: composition.Basis, monkeypatch: pytest.MonkeyPatch, by: signal.Signals
) -> None:
    reconcile = passes((0, "1 slice"), (0, "1 slice"), TpuctlError("no answer"), (3, "2 slices"), by)
    monkeypatch.setattr(composition, "build_bring_up", lambda *_: SimpleNamespace(reconcile=reconcile))

    result = run("reconcile", "--watch")

    assert result.exit_code == 130
    assert [line.split("  ", 1)[1] for line in result.stdout.splitlines()] == ["exit 0  1 slice", "exit 3  2 slices"]
    assert "pass failed (exit 1): no answer; the next in " in result.stderr
    assert "interrupted" in result.stderr


def test_on_the_head_it_runs_passes_on_the_store_and_names_what_may_exist(
    basis: composition.Basis, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one = passes((0, "1 slice"), (0, "1 slice"), InterruptedPassError((QrName("lab-v4-0-t6m8gb-1"),)))
    built: list[Any] = []

    def result(**_: Any) -> Any:
        code, summary = one()
        return SimpleNamespace(exit_code=code, summary=summary)

    @contextmanager
    def build_pass(*given: Any, **_: Any) -> Iterator[Any]:
        built.append(given)
        yield SimpleNamespace(run=result)

    monkeypatch.setattr(composition, "build_pass", build_pass)

    result_of = run("reconcile", "--watch", "--json", "--store", str(tmp_path), "--epoch", "t6m8gb")

    assert result_of.exit_code == 130
    (line,) = result_of.stdout.splitlines()
    assert json.loads(line) == {"version": 1, "at": json.loads(line)["at"], "exit": 0, "summary": "1 slice"}
    assert "lab-v4-0-t6m8gb-1" in result_of.stderr
    assert built == [(basis, tmp_path, "t6m8gb", "")] * 3  # opened anew for each


def test_spec_that_cannot_be_read_ends_it_at_once(basis: composition.Basis, tmp_path: Path) -> None:
    result = run("reconcile", "--watch", "-f", str(tmp_path / "none.yaml"))

    assert isinstance(result.exception, UserError)
    assert "none.yaml" in str(result.exception)


def test_watching_a_dry_run_is_refused() -> None:
    result = run("reconcile", "--watch", "--dry-run")

    assert isinstance(result.exception, UserError)
    assert "--watch" in str(result.exception)
