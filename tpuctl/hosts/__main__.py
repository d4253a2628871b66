"""`python -m tpuctl.hosts`: the host daemon. `… head`: the Ray head keeper. `… digest`: which code this is.

Each verb imports only what it needs: the daemon lives beside training programs and must stay small.
"""

from __future__ import annotations

import sys

from tpuctl.base.errors import TpuctlError


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
            case []:
                from tpuctl.hosts.daemon import main as daemon_main

                return daemon_main()
    except TpuctlError as error:
        print(f"tpuctl.hosts: {error}", file=sys.stderr)
        return error.exit_code
    print("usage: python -m tpuctl.hosts [head | digest]", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
