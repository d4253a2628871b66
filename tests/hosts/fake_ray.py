"""Plays `ray start --block` for the daemon's tests: says that it is up, stays, and ends on SIGTERM.

In HOME: each start appends {argv, environment} to `ray-starts`; while `ray-fails` exists a start fails with its text.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

home = Path(os.environ["HOME"])
with (home / "ray-starts").open("a") as starts:
    starts.write(json.dumps({"argv": sys.argv[1:], "environment": dict(os.environ), "pid": os.getpid()}) + "\n")
if (home / "ray-fails").exists():
    print((home / "ray-fails").read_text())
    sys.exit(1)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("Ray runtime started.", flush=True)
while True:
    signal.pause()
