"""The cluster specs that `tpuctl init` writes. configs/tpuctl.yaml is the first of them, letter by letter."""

from __future__ import annotations

import json
from pathlib import Path

_CLOUD = """\
# A cluster on spot TPU slices, for a grant as TPU Research Cloud gives them. Change project, grant, storage and pools.
# All keys: docs/spec.md. `tpuctl validate` tells what is wrong; no call is made before `tpuctl up`.
version: 1
cluster: lab                     # marks all that is ours: labels and names begin with it
project: my-project

# The head: an on-demand VM (billed, the only thing that is) with Ray's head and tpuctl's records.
head:
  zone: us-central1-a
  machine: e2-standard-4

# What was granted to you, by zone/generation/tier. Anything outside is refused before a call, as it would be billed.
grant:
  until: 2027-03-31              # the last day; without this line no end is known
  chips:
    us-central2-b/v4/spot: 32
    us-central1-a/v5e/spot: 64
    europe-west4-b/v5e/spot: 64

# Checkpoints and results. Keep it in the region of the slices: traffic between regions costs.
storage:
  us: gs://my-bucket/tpuctl

pools:
  - name: v4
    accelerator: v4-32           # 16 chips on 4 hosts
    zones: [us-central2-b]
    slices: 2
  - name: v5e
    accelerator: v5e-16          # 16 chips on 4 hosts
    zones: [us-central1-a]
    slices: 4
"""

_EMULATOR = """\
# A cluster on the emulator of this machine: `tpuctl emulator start`, then `tpuctl up`.
version: 1
cluster: lab
project: emulated
backend: emulator
head: {zone: us-central2-b}
storage: {us: @STORAGE@}  # stands for a bucket
detection: {hold: 8s, rejoin: 20s}  # quick, as everything is near; on the cloud the defaults are right
pools:
  - name: v4
    accelerator: v4-16           # 8 chips on 2 hosts
    zones: [us-central2-b]
    slices: 2
    deadlines: {provision: 2m, boot: 2m, join: 2m}
"""


def cloud_starter() -> str:
    return _CLOUD


def emulator_starter(storage: Path) -> str:
    """`storage` is an absolute directory; it need not exist yet."""
    # JSON's quoting is YAML's too, so that any path survives.
    return _EMULATOR.replace("@STORAGE@", json.dumps(f"file://{storage}", ensure_ascii=False))
