"""How a unit's program is started: environment files, command line, the child that becomes it. Part of `init`."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # see units.py
if TYPE_CHECKING:
    from typing import Any


def read_environment_file(path: str) -> dict[str, str]:
    """systemd's EnvironmentFile: NAME=VALUE lines. A leading `-` allows it to be missing. Raises OSError otherwise."""
    optional = path.startswith("-")
    try:
        with open(path.removeprefix("-"), encoding="utf-8") as file:  # noqa: PTH123
            lines = [line.strip() for line in file]
    except FileNotFoundError:
        if optional:
            return {}
        raise
    pairs = [line.split("=", 1) for line in lines if "=" in line and line[0] not in "#;"]
    return {name.strip(): unquote(value.strip()) for name, value in pairs}


def unquote(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value


def expand(words: list[str], environment: dict[str, str]) -> list[str]:
    """systemd's substitution in ExecStart: `${NAME}` inside a word, `$NAME` as a whole word (split), `$$` and `%%`."""
    found = []
    for word in words:
        if word.startswith("$") and word[1:].isidentifier():
            found += environment.get(word[1:], "").split()
            continue
        pieces = word.replace("%%", "%").split("${")
        text = pieces[0].replace("$$", "$")
        for piece in pieces[1:]:
            name, closed, rest = piece.partition("}")
            text += (environment.get(name, "") + rest.replace("$$", "$")) if closed else "${" + piece
        found.append(text)
    return found


def become(definition: dict[str, Any], environment: dict[str, str], output: int) -> None:
    """In the forked child: turn into the unit's program. Never returns; 200 and 203 are systemd's exit codes."""
    status = 203
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open("/dev/null", os.O_RDONLY)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        status = 200
        os.chdir(definition["directory"] or environment["HOME"])
        status = 203
        argv = expand(definition["argv"], environment)
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        os.write(2, f"{definition['name']}: {definition['argv'][0]}: {error}\n".encode())
    finally:
        os._exit(status)
