"""`python -m tpuctl`: the console script by another name, for children that must run in this very environment."""

from tpuctl.cli.main import main

if __name__ == "__main__":
    main()
