"""Runs the host daemon or the head keeper as a plain process, for tests. The cloud's two answers come from files.

`python vm_process.py host|head`; HOME has `cloud/head.json` ({address, epoch}) and `cloud/secret`.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tpuctl.base.files import read_json
from tpuctl.hosts import host_main, lookup, ray_head
from tpuctl.hosts.config import VmPlaces
from tpuctl.hosts.lookup import CloudLookup, CloudLookupError, FoundHead


def cloud_from_files() -> CloudLookup:
    cloud, places = Path(os.environ["HOME"]) / "cloud", VmPlaces.from_environment(os.environ)

    def find_head() -> FoundHead:
        document = read_json(cloud / "head.json")
        if document is None:
            raise CloudLookupError("instance not found")
        return FoundHead(document["address"], document["epoch"])

    def read_token() -> None:
        places.token.touch(mode=0o600)
        shutil.copyfile(cloud / "secret", places.token)

    return CloudLookup(find_head, read_token)


def fake_ray() -> tuple[str, ...]:
    return (sys.executable, os.environ["FAKE_RAY"])


if __name__ == "__main__":
    host_main.cloud_lookup = ray_head.cloud_lookup = lookup.cloud_lookup = cloud_from_files  # type: ignore[attr-defined]
    if "FAKE_RAY" in os.environ:
        host_main.ray_command = ray_head.ray_command = fake_ray  # type: ignore[attr-defined]
    sys.exit(host_main.main() if sys.argv[1] == "host" else ray_head.main())
