"""gcloud and tpunicorn2's `pu` as child processes, pointed at an emulator."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_WRAPPER = Path(__file__).with_name("pu_wrapper.py")
Done = subprocess.CompletedProcess[str]


def environment(url: str, directory: Path, project: str) -> dict[str, str]:
    """Nothing of the user's own configuration."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("CLOUDSDK_", "TPUNICORN_"))}
    return kept | {
        "CLOUDSDK_CONFIG": str(directory / "gcloud"),
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_PROJECT": project,
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{url}/",
        "TPUNICORN_CACHE_DIR": str(directory / "pu"),
    }


def pu(url: str, directory: Path, *words: str, project: str = "lab") -> Done:
    argv = [sys.executable, "-W", "ignore", str(_WRAPPER), url, *words]
    return _run(argv, environment(url, directory, project))


def gcloud(url: str, directory: Path, *words: str, project: str = "lab") -> Done:
    program = shutil.which("gcloud")
    assert program is not None, "gcloud is not on PATH; leave these tests out with -m 'not gcloud'"
    return _run([program, *words], environment(url, directory, project))


def _run(argv: list[str], env: dict[str, str]) -> Done:
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=100, check=False)
