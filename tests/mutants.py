"""Bugs planted one at a time in a copy of the code; each must be caught by the property that is named beside it.

    make mutants        a line a bug: what was planted, by what it was caught, how long that took

Exit 1 when one survives, or is caught by something else than what was meant to catch it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT_S = 300


@dataclass(frozen=True)
class Bug:
    """`old` stands once in the file. `caught_by`: tests of which at least one must fail."""

    what: str
    file: str
    old: str
    new: str
    caught_by: str


CRASHES = "tests/fleet/test_crashes.py"
ANYWHERE = f"{CRASHES}::test_a_pass_killed_anywhere_ends_in_exactly_the_wanted_slices"
LONGER = f"{CRASHES}::test_a_pass_killed_anywhere_in_a_longer_history_ends_so_too"
HISTORIES = "tests/fleet/test_histories.py"

BUGS = (
    Bug(
        "a list that failed counts as empty",
        "tpuctl/fleet/scene.py",
        'return Unseen(f"the {what} of {zone} could not be listed: {seen.reason}")',
        "return Listing((), True)",
        HISTORIES,
    ),
    Bug(
        "an incomplete list counts as complete",
        "tpuctl/fleet/scene.py",
        'return Absent() if listing.complete else Unseen(f"the list of {row.zone} is not complete")\n        made',
        "return Absent()\n        made",
        "tests/fleet/test_plan_enumerated.py tests/fleet/test_plan.py tests/fleet/test_field_cases.py",
    ),
    Bug(
        "what carries our name without our labels counts as ours",
        "tpuctl/fleet/scene.py",
        "return found if made is not None and made.qr_name == row.name else Foreign(found)",
        "return found",
        "tests/fleet/test_plan.py tests/fleet/test_field_cases.py tests/fleet/test_refusals.py",
    ),
    Bug(
        "labels of another cluster count as ours",
        "tpuctl/fleet/scene.py",
        "return made if made is not None and made.cluster == self.cluster else None",
        "return made",
        "tests/fleet/test_by_hand.py",
    ),
    Bug(
        "a create is sent before its intent is written",
        "tpuctl/fleet/apply.py",
        "                    tx.put_incarnation(sent)\n",
        "",
        f"{ANYWHERE} {LONGER}",
    ),
    Bug(
        "what a run leased while the pass was looking is marked for deletion",
        "tpuctl/fleet/save.py",
        "        tx.bar_slice(change.after)",
        "        tx.put_incarnation(change.after)",
        "tests/fleet/test_surviving.py",
    ),
    Bug(
        "the dead take nothing of the grant",
        "tpuctl/fleet/room.py",
        "if row.intent is not Intent.REFUSED:",
        "if row.intent is not Intent.REFUSED and not row.phase.is_over:",
        HISTORIES,
    ),
    Bug(
        "what was sent and given up does not keep its slot",
        "tpuctl/fleet/creation.py",
        "            if row.intent is Intent.SENT:\n                return _Reason",
        "            if False:\n                return _Reason",
        f"{HISTORIES} tests/fleet/test_field_cases.py tests/fleet/test_plan.py tests/fleet/test_plan_enumerated.py",
    ),
    Bug(
        "after the loss of the records slots are filled without looking for what fills them",
        "tpuctl/fleet/adopt.py",
        "            groups.setdefault((found.id.pool, found.id.slot), []).append(found)",
        "            continue",
        f"{LONGER} {HISTORIES}",
    ),
    Bug(
        "one look at a list that lacks it makes a slice gone",
        "tpuctl/fleet/lifecycle.py",
        "ABSENT_PASSES = 2",
        "ABSENT_PASSES = 1",
        "tests/fleet/test_plan.py tests/fleet/test_plan_enumerated.py tests/fleet/test_field_cases.py",
    ),
    Bug(
        "a suspect counts its window from before this Ray head began",
        "tpuctl/fleet/loss.py",
        "start = proven_since(row.suspect_since, scene)",
        "start = row.suspect_since",
        "tests/fleet/test_plan.py tests/fleet/test_field_cases.py tests/fleet/test_keep_going.py",
    ),
)


def main(words: list[str]) -> int:
    """Of `BUGS` those whose description has one of the words; all without words."""
    survivors = 0
    bugs = [bug for bug in BUGS if not words or any(word in bug.what for word in words)]
    for bug in bugs:
        began = time.monotonic()
        caught = _first_failure(bug)
        took_s = time.monotonic() - began
        print(f"{'caught' if caught else 'SURVIVED':8}  {took_s:5.1f}s  {bug.what}", flush=True)
        print(f"          by {caught}" if caught else f"          not by {bug.caught_by}", flush=True)
        survivors += not caught
    print(f"{len(bugs) - survivors} of {len(bugs)} planted bugs were caught")
    return 1 if survivors else 0


def _first_failure(bug: Bug) -> str:
    """The first test that fails with the bug in; "" when all pass. AssertionError when the bug cannot be planted."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("tpuctl", "tests", "configs", "docs", "pyproject.toml"):
            source = ROOT / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, Path(folder) / name)
        path = Path(folder) / bug.file
        text = path.read_text(encoding="utf-8")
        assert text.count(bug.old) == 1, f"{bug.what}: {text.count(bug.old)} places in {bug.file}"
        path.write_text(text.replace(bug.old, bug.new), encoding="utf-8")
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider", *bug.caught_by.split()],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": folder, "TPUCTL_TEST_NO_SHRINKING": "1"},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    assert run.returncode in (0, 1), run.stdout + run.stderr
    failed = [line for line in run.stdout.splitlines() if line.startswith("FAILED ")]
    return failed[0].removeprefix("FAILED ") if failed else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
