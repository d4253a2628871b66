"""Records to rows and back, by the names and types of the dataclasses' fields. Every statement names its columns."""

from __future__ import annotations

import json
import sqlite3
import types
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from tpuctl.base.units import Instant

R = TypeVar("R")
Value = str | int | float | None
_TYPES: dict[type[Any], Mapping[str, Any]] = {}


def columns_of(record_type: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(record_type))


def _types_of(record_type: type[Any]) -> Mapping[str, Any]:
    if record_type not in _TYPES:  # resolving them costs more than reading the row
        _TYPES[record_type] = {name: _without_none(hint) for name, hint in get_type_hints(record_type).items()}
    return _TYPES[record_type]


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        (kept,) = [each for each in get_args(hint) if each is not type(None)]
        return kept
    return hint


def to_values(record: Any) -> tuple[Value, ...]:
    return tuple(_encoded(getattr(record, name)) for name in columns_of(type(record)))


def from_row(record_type: type[R], row: sqlite3.Row) -> R:
    hints = _types_of(record_type)
    return record_type(**{name: _decoded(hints[name], row[name]) for name in columns_of(record_type)})


def upsert_of(table: str, record_type: type[Any], key: tuple[str, ...]) -> str:
    """INSERT … ON CONFLICT (key) DO UPDATE: unlike INSERT OR REPLACE it violates no other row's uniqueness silently."""
    names = columns_of(record_type)
    updates = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key)
    return (
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
        f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {updates}"
    )


def insert_of(table: str, record_type: type[Any]) -> str:
    names = columns_of(record_type)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def _encoded(value: Any) -> Value:
    if isinstance(value, Instant):
        return value.unix_s
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, tuple):
        return json.dumps(value)
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"no column type for {value!r}")


def _decoded(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    if hint is Instant:
        return Instant(float(value))
    if hint is bool:
        return bool(value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if get_origin(hint) is tuple:
        return tuple(tuple(each) if isinstance(each, list) else each for each in json.loads(value))
    return value
