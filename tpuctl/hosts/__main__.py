"""`python -m tpuctl.hosts`: the host daemon. `… head`: the Ray head keeper. `… digest`: which code this is.
`… find-head` and `… read-token` are their short-lived children (lookup.py).

Each verb imports only what it needs: the daemon lives beside training programs and must stay small.
"""

from __future__ import annotations

import os
import sys

from tpuctl.base.errors import TpuctlError
from tpuctl.hosts.config import VmPlaces


def main(arguments: list[str]) -> int:
    try:
        match arguments:
            case ["digest"]:
                from tpuctl.hosts.digest import source_digest

                print(source_digest())
                return 0
            case ["head"]:
                from tpuctl.hosts.ray_head import main as head_main

                return head_main()
            case ["find-head"]:
                from tpuctl.hosts.lookup import print_head

                return print_head(_places().read_config())
            case ["read-token"]:
                from tpuctl.hosts.lookup import write_token

                return write_token(_places().read_config(), _places())
            case []:
                from tpuctl.hosts.host_main import main as daemon_main

                return daemon_main()
    except TpuctlError as error:
        print(f"tpuctl.hosts: {error}", file=sys.stderr)
        return error.exit_code
    print("usage: python -m tpuctl.hosts [head | digest]", file=sys.stderr)
    return 2


def _places() -> VmPlaces:
    return VmPlaces.from_environment(os.environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
