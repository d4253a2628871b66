"""`make bench`: what tpuctl costs, as ratios to something measured in the same run; interleaved, medians.

`python -m tests.bench [commands] [history] [planner] [recovery] [--rounds N]`; without names, all.
"""

from __future__ import annotations

import argparse

from tests.bench import commands, history, planner, recovery

BENCHES = {"commands": commands.bench, "history": history.bench, "planner": planner.bench, "recovery": recovery.bench}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *BENCHES], help="which; all without any")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    for name in arguments.names or BENCHES:
        print(f"\n{name}: {arguments.rounds} rounds", flush=True)
        BENCHES[name](arguments.rounds)


if __name__ == "__main__":
    main()
