"""The part of Google's list filters that label look-ups need: `labels.x=y`, `labels.x:*`, `name=z`, joined by AND."""

from __future__ import annotations

import re

from tpuctl.emulator.wire import Json, ServiceError

_TERM = re.compile(r"""(?P<field>[\w.-]+)\s*(?P<op>!=|=|:|eq\b)\s*(?P<value>"[^"]*"|'[^']*'|\S+)""")


def matches(text: str, document: Json) -> bool:
    """Raises ServiceError INVALID_ARGUMENT for what is not emulated, rather than answering something else."""
    rest = re.sub(r"[()]|\bAND\b", " ", text).strip()
    while rest:
        term = _TERM.match(rest)
        if term is None:
            message = f"Invalid value for field 'filter': '{text}'. Invalid list filter expression."
            raise ServiceError("INVALID_ARGUMENT", message, reason="invalid")
        if not _holds(term["op"], _value(document, term["field"]), term["value"].strip("\"'")):
            return False
        rest = rest[term.end() :].strip()
    return True


def _value(document: Json, field: str) -> str | None:
    value: object = document
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return None if value is None else str(value)


def _holds(op: str, value: str | None, wanted: str) -> bool:
    if op == "!=":
        return value != wanted
    if value is None:
        return False
    if op == ":":
        return wanted == "*" or wanted in value
    return value == wanted
