"""What the emulated image has in front of its PATH: stand-ins for programs that would touch the real machine.

`*.sh` are installed under their names without the suffix; the Python ones by a wrapper (emulator/vm.py). Each finds its
machine as the parent of the directory that it lies in. Python ones run with `-I -S`: the standard library alone.
"""
