"""The demo: train on the emulator, lose a slice in mid-run, see it replaced and the run resumed. `make demo` runs it.

It uses tpuctl only as a person would, by its commands, and takes the slice away through the emulator alone: nothing
tells tpuctl. A second, undisturbed run of the same program follows; both must end with the same bits.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TPUCTL = (sys.executable, "-m", "tpuctl.cli.main")
PREEMPT_AT_STEP = 90
CHECKPOINT_EVERY = 20


class DemoError(Exception):
    """The demo did not go as it must; the message says where."""


class Demo:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = folder / "bucket"
        self.spec = folder / "tpuctl.yaml"
        self.began = time.monotonic()
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("TPUCTL", "RAY_", "JAX_"))}
        self.environment = kept | {"TPUCTL_HOME": str(folder / "home"), "TPUCTL_SPEC": str(self.spec)}

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:5.1f}s] {text}", flush=True)

    def tpuctl(self, *words: str, show: bool = False, check: bool = True) -> str:
        """Run one command; its stdout. With `show`, the person sees the command and what it prints."""
        if show:
            self.say(f"$ tpuctl {' '.join(words)}")
        done = subprocess.run(
            [*TPUCTL, *words],
            env=self.environment,
            cwd=HERE,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if show else subprocess.PIPE,
            check=False,
        )
        if check and done.returncode != 0:
            raise DemoError(f"tpuctl {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr or ''}")
        if show and done.stdout:
            print(done.stdout, end="", flush=True)
        return done.stdout

    def document(self, *words: str) -> Any:
        return json.loads(self.tpuctl(*words, "--json"))

    def wait(self, what: str, look: Callable[[], str | None], timeout_s: float) -> str:
        """Until `look` gives something; a line whenever five seconds went by without."""
        began = told = time.monotonic()
        while not (seen := look()):
            now = time.monotonic()
            if now - began > timeout_s:
                raise DemoError(f"waited {timeout_s:.0f} s for {what}\n{self.tpuctl('status', check=False)}")
            if now - told >= 5:
                told = now
                self.say(f"  … {what} ({now - began:.0f} s)")
            time.sleep(1.0)
        return seen

    def prepare(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.storage.mkdir(parents=True)
        text = (HERE / "tpuctl.yaml").read_text()
        if "@STORAGE@" not in text:
            raise DemoError("configs/demo/tpuctl.yaml lost its @STORAGE@ mark")
        self.spec.write_text(text.replace("@STORAGE@", str(self.storage)))

    def start_emulator(self) -> None:
        printed = self.tpuctl("emulator", "start", show=True)
        found = re.search(r"TPUCTL_EMULATOR=(\S+)", printed)
        if not found:
            raise DemoError(f"the emulator did not say where it listens:\n{printed}")
        self.environment["TPUCTL_EMULATOR"] = found[1]

    def step_of(self, run: str, *more: str) -> int:
        steps = re.findall(r"^step (\d+)", self.tpuctl("logs", run, *more, check=False), re.MULTILINE)
        return int(steps[-1]) if steps else 0

    def steps_repeated(self, run: str) -> int:
        """Steps that the second attempt computed again: where the first one was, less where the second began."""
        resumed = re.search(r"^resumed from step (\d+)", self.tpuctl("logs", run, "--attempt", "2"), re.MULTILINE)
        if resumed is None:
            raise DemoError("the second attempt did not begin from a checkpoint")
        return self.step_of(run, "--attempt", "1") - int(resumed[1])

    def state_of(self, run: str) -> str:
        return str(self.document("runs", run)["state"])

    def slice_of(self, run: str) -> dict[str, Any] | None:
        rows = [row for row in self.document("status")["slices"] if row["run"] == run]
        return rows[0] if rows else None

    def ended(self, run: str) -> str | None:
        state = self.state_of(run)
        if state in ("FAILED", "CANCELLED"):
            raise DemoError(f"run {run} is {state}:\n{self.tpuctl('why', run, check=False)}")
        return state if state == "SUCCEEDED" else None

    def whole_again(self) -> str | None:
        phases = [row["phase"] for row in self.document("status")["slices"]]
        return "READY" if phases and all(phase == "READY" for phase in phases) else None

    def lose_a_slice(self) -> None:
        self.wait(
            f"step {PREEMPT_AT_STEP} of the training",
            lambda: str(step) if (step := self.step_of("digits")) >= PREEMPT_AT_STEP else self.failed_early(),
            120,
        )
        row = self.slice_of("digits")
        if row is None:
            raise DemoError("the run holds no slice at mid-run")
        self.say(f"the cloud takes {row['name']} away in mid-run; nobody tells tpuctl")
        self.tpuctl("emulator", "preempt", row["queued_resource"], show=True)

    def failed_early(self) -> None:
        if self.state_of("digits") in ("SUCCEEDED", "FAILED", "CANCELLED"):
            raise DemoError(f"the run ended before it could lose its slice: {self.state_of('digits')}")

    def result(self, run: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.storage / "runs" / run / "result.json").read_text())
        return document

    def timeline(self) -> None:
        wanted = {
            "requested", "ready", "submitted", "started", "notice", "lost", "verdict", "succeeded", "gone",
        }  # fmt: skip
        rows = [json.loads(line) for line in self.tpuctl("events", "--json").splitlines()]
        events = [row for row in rows if row["kind"] in wanted]
        print("\nTimeline")
        for row in events:
            print(f"  {row['at'][11:19]}  {row['kind']:<16} {row['subject']:<24} {row['text']}")

    def check(self) -> None:
        """What the demo promises; anything else is a failure of it."""
        first, plain = self.result("digits"), self.result("digits-undisturbed")
        attempts = self.document("runs", "digits")["attempts"]
        repeated = self.steps_repeated("digits")
        verdicts = [row["verdict"] for row in attempts]
        print(f"\n  attempts         {len(attempts)}: {', '.join(str(verdict) for verdict in verdicts)}")
        print(f"  steps repeated   {repeated} (a checkpoint every {CHECKPOINT_EVERY})")
        print(f"  test accuracy    {first['accuracy']:.4f}")
        print(f"  parameters       {first['digest']}")
        print(f"  undisturbed run  {plain['digest']}")
        if verdicts != ["preempted", "succeeded"]:
            raise DemoError(f"expected one preemption, then success; got {verdicts}")
        if repeated > CHECKPOINT_EVERY:
            raise DemoError(f"{repeated} steps were repeated, more than a checkpoint's interval")
        if first["digest"] != plain["digest"]:
            raise DemoError("the resumed run ended with other parameters than the undisturbed one")
        if first["accuracy"] < 0.95:
            raise DemoError(f"accuracy {first['accuracy']} is below 0.95")

    def play(self) -> None:
        self.prepare()
        self.start_emulator()
        self.tpuctl("up", "--wait", "all", show=True)
        self.tpuctl("submit", str(HERE / "train.yaml"), show=True)
        self.lose_a_slice()
        self.wait("the end of the run", lambda: self.ended("digits"), 150)
        self.say("the run came home; the same program once more, undisturbed")
        self.tpuctl("submit", str(HERE / "undisturbed.yaml"), show=True)
        self.wait("the end of the undisturbed run", lambda: self.ended("digits-undisturbed"), 120)
        self.wait("the lost slice's replacement", self.whole_again, 90)
        self.tpuctl("status", show=True)
        self.timeline()
        self.check()

    def stop(self) -> None:
        self.tpuctl("emulator", "stop", show=True, check=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave emulator and cluster up at the end")
    parser.add_argument("--dir", type=Path, default=Path(".demo"), help="where the demo keeps its files")
    arguments = parser.parse_args()
    demo = Demo(arguments.dir.absolute())
    kept = False
    try:
        demo.play()
        if arguments.keep:
            kept = True
            names = ("TPUCTL_HOME", "TPUCTL_SPEC", "TPUCTL_EMULATOR")
            print("\nStill up. To look around, and to end it:")
            print("  export " + " ".join(f"{name}={demo.environment[name]}" for name in names))
            print("  .venv/bin/tpuctl status; .venv/bin/tpuctl emulator stop")
        else:
            demo.tpuctl("down", "--yes", show=True)
        demo.say("done")
        return 0
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    finally:
        if not kept:
            demo.stop()


if __name__ == "__main__":
    sys.exit(main())
