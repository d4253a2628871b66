from __future__ import annotations

import re
import shutil
from pathlib import Path

import tpuctl
from tpuctl.hosts.digest import source_digest

PACKAGE = Path(str(tpuctl.__file__)).parent


def test_the_digest_is_that_of_the_sources_wherever_they_lie(tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))

    assert source_digest(copy) == source_digest()
    assert re.fullmatch("[0-9a-f]{16}", source_digest())


def test_a_changed_a_renamed_and_a_new_source_change_it_and_a_compiled_file_does_not(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1\n")
    (tmp_path / "b.sh").write_text("2\n")
    first = source_digest(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_bytes(b"x")
    assert source_digest(tmp_path) == first

    (tmp_path / "b.sh").write_text("3\n")
    changed = source_digest(tmp_path)
    (tmp_path / "b.sh").rename(tmp_path / "c.sh")
    renamed = source_digest(tmp_path)
    (tmp_path / "d.sql").write_text("")

    assert len({first, changed, renamed, source_digest(tmp_path)}) == 4
