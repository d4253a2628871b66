"""`python -m tpuctl.emulator`: what `tpuctl emulator start` starts in the background."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tpuctl.base.clock import SystemClock
from tpuctl.base.errors import TpuctlError
from tpuctl.emulator.options import ServerOptions
from tpuctl.emulator.server import serve


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tpuctl.emulator", description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--name", default="default")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--scenario", type=Path)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--machines", choices=["process", "none"], default="process")
    given = parser.parse_args(argv)
    try:
        serve(ServerOptions(**vars(given)), SystemClock())
    except TpuctlError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
