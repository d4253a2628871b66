"""A `crontab` and a `systemctl` of the test's own in front of PATH: no test ever asks the machine's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

CRONTAB = """\
#!/bin/sh
echo "$1" >>'{calls}'
[ ! -e '{broken}' ] || {{ echo "crontab: you are not allowed to use this program" >&2; exit 1; }}
case "$1" in
  -l) [ -e '{table}' ] || {{ echo "no crontab for ada" >&2; exit 1; }}; exec /bin/cat '{table}' ;;
  -) exec /bin/cat >'{table}' ;;
  *) exit 2 ;;
esac
"""
SYSTEMCTL = """\
#!/bin/sh
echo "$*" >>'{calls}'
"""


@dataclass
class Machine:
    """What the stand-ins keep."""

    path: Path

    @property
    def table(self) -> Path:
        return self.path / "table"

    @property
    def home(self) -> Path:
        return self.path / "home"

    def calls(self, program: str) -> list[str]:
        calls = self.path / f"{program}.calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def refuse(self) -> None:
        (self.path / "broken").touch()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made, programs = Machine(tmp_path), tmp_path / "bin"
    programs.mkdir()
    for name, text in (("crontab", CRONTAB), ("systemctl", SYSTEMCTL)):
        program = programs / name
        calls = str(tmp_path / f"{name}.calls")
        program.write_text(text.format(table=made.table, broken=tmp_path / "broken", calls=calls))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))  # alone: a name that is missing here is missing
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return made
