"""`systemctl` of the emulated image: link, enable [--now], disable, start, stop, restart, is-active, is-enabled,
status, show, daemon-reload, poweroff.

It reads unit files and hands definitions to the machine's `init`, which keeps them. Unit files lie anywhere and are
linked (`systemctl link PATH`), since a script without root cannot write /etc/systemd/system. Keys that it does not know
are reported and ignored, as systemd does; a Type other than simple or exec is refused.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from pathlib import Path
from typing import Any

SUFFIXES = {"ms": 0.001, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
IGNORED = {  # harmless without control groups, users and sockets: no warning
    "Type", "User", "Group", "LimitMEMLOCK", "LimitNOFILE", "OOMScoreAdjust", "TimeoutStartSec", "SendSIGKILL",
    "Delegate", "StandardError", "TasksMax", "Nice", "StandardInput", "SyslogIdentifier",
}  # fmt: skip
EXIT_NOT_ACTIVE = 3
EXIT_NO_UNIT = 5


class Refusal(Exception):  # noqa: N818  (a message for the user and an exit status)
    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def seconds(text: str) -> float:
    """systemd.time(7) in small: `2`, `2s`, `500ms`, `1min 30s`."""
    total = 0.0
    for word in text.split():
        digits = word.rstrip("abcdefghijklmnopqrstuvwxyz")
        try:
            total += float(digits) * SUFFIXES[word[len(digits) :] or "s"]
        except (KeyError, ValueError):
            raise Refusal(f"not a time span: {text!r}") from None
    return total


def read_keys(text: str) -> list[tuple[str, str, str]]:
    """(section, key, value) in order; a backslash at the end of a line continues it."""
    section, found = "", []
    for line in text.replace("\\\n", " ").splitlines():
        bare = line.strip()
        if bare.startswith("["):
            section = bare.strip("[]")
        elif "=" in bare and bare[0] not in "#;":
            key, value = bare.split("=", 1)
            found.append((section, key.strip(), value.strip()))
    return found


def define(name: str, text: str, log: str) -> dict[str, Any]:
    """The definition that init keeps. Raises Refusal for a unit that it cannot keep."""
    unit: dict[str, Any] = {
        "name": name, "argv": [], "environment": {}, "environment_files": [], "directory": "", "restart": "no",
        "restart_s": 0.1, "kill_mode": "control-group", "stop_s": 90.0, "output": log,
    }  # fmt: skip
    for section, key, value in read_keys(text):
        if section == "Service" and not apply_key(unit, key, value):
            print(f"{name}: unknown key name '{key}' in section 'Service', ignoring.", file=sys.stderr)
    if not unit["argv"]:
        raise Refusal(f"{name}: Service has no ExecStart= setting. Refusing.")
    return unit


def apply_key(unit: dict[str, Any], key: str, value: str) -> bool:
    """False when the key is not known."""
    if key == "ExecStart":
        unit["argv"] = shlex.split(value.lstrip("-@:+!"))
    elif key == "Environment":
        unit["environment"].update(pair.split("=", 1) for pair in shlex.split(value) if "=" in pair)
    elif key == "EnvironmentFile":
        unit["environment_files"].append(value)
    elif key == "WorkingDirectory":
        unit["directory"] = "" if value == "~" else value
    elif key in ("RestartSec", "TimeoutStopSec"):
        unit["restart_s" if key == "RestartSec" else "stop_s"] = seconds(value)
    elif key in ("Restart", "KillMode"):
        choices = ("no", "always", "on-failure") if key == "Restart" else ("control-group", "mixed", "process")
        if value not in choices:
            raise Refusal(f"{unit['name']}: {key}={value} is not emulated; use one of {', '.join(choices)}")
        unit["restart" if key == "Restart" else "kill_mode"] = value
    elif key == "StandardOutput":
        kind, _, path = value.partition(":")
        if kind in ("append", "file"):
            unit["output"] = path
        elif kind == "null":
            unit["output"] = "/dev/null"
    elif key == "Type" and value not in ("simple", "exec"):
        raise Refusal(f"{unit['name']}: Type={value} is not emulated; use simple or exec")
    else:
        return key in IGNORED
    return True


class Systemctl:
    def __init__(self, machine: Path) -> None:
        self.machine = machine
        self.linked = machine / "run" / "units"
        self.enabled = machine / "run" / "enabled"

    def ask(self, verb: str, units: list[Any]) -> str:
        with socket.socket(socket.AF_UNIX) as channel:
            try:
                channel.connect(str(self.machine / "run" / "init.sock"))
            except OSError as error:
                raise Refusal(f"System has not been booted: {error}") from error
            channel.sendall(json.dumps({"verb": verb, "units": units}).encode() + b"\n")
            with channel.makefile("rb") as stream:
                line = stream.readline()
        if not line:
            raise Refusal("Connection reset by peer: the machine is going down")
        answer = json.loads(line)
        if answer["exit"]:
            raise Refusal(answer["out"], answer["exit"])
        return str(answer["out"])

    def definition(self, name: str) -> dict[str, Any]:
        try:
            text = (self.linked / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise Refusal(f"Unit {name} not found.", EXIT_NO_UNIT) from None
        return define(name, text, str(self.machine / "log" / f"{name.removesuffix('.service')}.log"))

    def rows(self, names: list[str]) -> list[list[str]]:
        return [line.split() for line in self.ask("show", names).splitlines()]

    def link(self, paths: list[str]) -> list[str]:
        names = []
        for path in paths:
            if not Path(path).is_absolute() or not Path(path).is_file():
                raise Refusal(f"Failed to link unit: file {path} does not exist, or is not an absolute path.")
            names.append(Path(path).name)
            point(self.linked / names[-1], Path(path))
        return names

    def begin(self, verb: str, names: list[str]) -> int:
        """Each by itself: a unit that cannot be started does not keep the others from it."""
        status = 0
        for name in names:
            try:
                self.ask(verb, [self.definition(name)])
            except Refusal as refusal:
                print(f"systemctl: {refusal}", file=sys.stderr)
                status = refusal.status
        return status

    def enable(self, names: list[str], *, now: bool) -> int:
        # A path is linked and enabled in one, as `systemctl enable PATH` does.
        names = [self.link([name])[0] if "/" in name else full(name) for name in names]
        for name in names:
            self.definition(name)
            point(self.enabled / name, self.linked / name)
        if now:
            return self.begin("start", names)
        return 0

    def disable(self, names: list[str], *, now: bool) -> None:
        for name in names:
            (self.enabled / name).unlink(missing_ok=True)
        if now:
            self.ask("stop", [row[0] for row in self.rows(names) if row[1] != "inactive"])

    def is_active(self, names: list[str], *, quiet: bool) -> int:
        states = [row[1] for row in self.rows(names)]
        if not quiet:
            print("\n".join(states))
        return 0 if "active" in states else EXIT_NOT_ACTIVE

    def is_enabled(self, names: list[str], *, quiet: bool) -> int:
        states = ["enabled" if (self.enabled / name).is_symlink() else "disabled" for name in names]
        if not quiet:
            print("\n".join(states))
        return 0 if "enabled" in states else 1

    def status(self, names: list[str]) -> int:
        rows = self.rows(names)
        for name, state, main, result, restarts in rows:
            print(f"{name}\n     Active: {state}\n   Main PID: {main}\n  last exit: {result}\n   restarts: {restarts}")
        return 0 if all(row[1] == "active" for row in rows) else EXIT_NOT_ACTIVE

    def show(self, names: list[str]) -> None:
        for name, state, main, result, restarts in self.rows(names):
            print(f"Id={name}\nActiveState={state}\nMainPID={main}\nExecMainStatus={result}\nNRestarts={restarts}")

    def reload(self) -> None:
        known = [row[0] for row in self.rows([])]
        definitions = []
        for name in known:
            if (self.linked / name).exists():
                try:
                    definitions.append(self.definition(name))
                except Refusal as refusal:  # as systemd: the others are reloaded, this one stays what it was
                    print(refusal, file=sys.stderr)
        self.ask("reload", definitions)

    def run(self, verb: str, names: list[str], flags: set[str]) -> int:
        if verb not in ("enable", "link"):
            names = [full(name) for name in names]
        now, quiet = "--now" in flags, bool(flags & {"-q", "--quiet"})
        if verb in ("start", "restart"):
            return self.begin(verb, names)
        if verb == "stop":
            self.ask("stop", names)
        elif verb == "link":
            self.link(names)
        elif verb == "enable":
            return self.enable(names, now=now)
        elif verb == "disable":
            self.disable(names, now=now)
        elif verb == "daemon-reload":
            self.reload()
        elif verb == "is-active":
            return self.is_active(names, quiet=quiet)
        elif verb == "is-enabled":
            return self.is_enabled(names, quiet=quiet)
        elif verb == "status":
            return self.status(names)
        elif verb == "show":
            self.show(names)
        elif verb == "poweroff":
            self.ask("poweroff", [])
        else:
            raise Refusal(
                f"Unknown command verb {verb} (the emulated image knows: {(__doc__ or '').split(': ', 1)[1]})"
            )
        return 0


def full(name: str) -> str:
    return name if "." in name else name + ".service"


def point(link: Path, target: Path) -> None:
    """A symbolic link that replaces an older one in one step."""
    beside = link.with_name(f".{link.name}.{os.getpid()}")
    beside.symlink_to(target)
    beside.replace(link)


def main(program: str, arguments: list[str]) -> int:
    machine = Path(program).absolute().parents[1]
    words = [word for word in arguments if not word.startswith("-")]
    flags = {word for word in arguments if word.startswith("-")}
    if not words:
        print("systemctl: a verb is missing", file=sys.stderr)
        return 1
    try:
        return Systemctl(machine).run(words[0], words[1:], flags)
    except Refusal as refusal:
        print(f"systemctl: {refusal}", file=sys.stderr)
        return refusal.status
