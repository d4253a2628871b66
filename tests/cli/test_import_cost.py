"""The command line answers at once: help and status import neither Ray, Google's clients nor JAX."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = (
    "ray",
    "google.cloud",
    "google.auth",
    "googleapiclient",
    "jax",
    "aiohttp",
    "grpc",
    "numpy",
    "tpuctl.spec.cluster",
)
PROBE = """
import atexit, json, sys
def tell():
    print("MODULES " + json.dumps(sorted(sys.modules)), file=sys.stderr)
atexit.register(tell)
from tpuctl.cli.main import main
sys.argv = ["tpuctl", *json.loads(sys.argv[1])]
main()
"""


def imported_by(words: list[str], home: Path) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(words)],
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "TPUCTL_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("MODULES ")]
    return set(json.loads(line.removeprefix("MODULES ")))


@pytest.mark.parametrize(
    "words", [["--help"], ["status", "--help"], ["submit", "--help"], ["up", "--help"], ["emulator", "--help"]]
)
def test_help_imports_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    modules = imported_by(words, tmp_path)
    assert "typer" in modules
    assert [name for name in HEAVY if name in modules] == []
