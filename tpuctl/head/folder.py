"""What a client remembers of a cluster: `TPUCTL_HOME/clusters/<cluster>/`. All of it can be found again."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tpuctl.base.errors import UserError
from tpuctl.base.files import owner_only_directory, read_json, write_atomic, write_json_atomic
from tpuctl.base.units import Instant

_CLUSTER_LINE = re.compile(
    r"^cluster[ ]*:[ ]+(?P<quote>['\"]?)(?P<name>[a-z][a-z0-9-]{0,15})(?P=quote)[ ]*(?:#.*)?$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class KnownHead:
    """Where the head was last found. `address` is its internal one."""

    zone: str
    name: str
    address: str


@dataclass(frozen=True, slots=True)
class LastStatus:
    document: dict[str, Any]
    at: Instant


class ClusterFolder:
    def __init__(self, home: Path, cluster: str) -> None:
        self._path = home / "clusters" / cluster

    def token(self) -> str:
        """ "" when it was not read yet."""
        try:
            return (self._path / "token").read_text().strip()
        except FileNotFoundError:
            return ""

    def save_token(self, token: str) -> None:
        owner_only_directory(self._path)
        write_atomic(self._path / "token", f"{token}\n".encode(), mode=0o600)

    def head(self) -> KnownHead | None:
        document = self._json("head.json")
        try:
            return None if document is None else KnownHead(**document)
        except TypeError:
            return None  # of another version of tpuctl: it can be found again

    def save_head(self, head: KnownHead) -> None:
        owner_only_directory(self._path)
        write_json_atomic(self._path / "head.json", asdict(head))

    def last_status(self) -> LastStatus | None:
        document = self._json("last_status.json")
        try:
            return None if document is None else LastStatus(document, Instant.parse(document["at"]))
        except (KeyError, TypeError, ValueError):
            return None

    def save_status(self, document: dict[str, Any]) -> None:
        owner_only_directory(self._path)
        write_json_atomic(self._path / "last_status.json", document)

    def forget(self) -> None:
        """The cluster is gone: so is what was known of it."""
        for name in ("token", "head.json", "last_status.json"):
            (self._path / name).unlink(missing_ok=True)
        for torn in self._path.glob(".*.tmp"):
            torn.unlink(missing_ok=True)  # of a writer that was killed; it may hold the token
        if self._path.is_dir() and not any(self._path.iterdir()):
            self._path.rmdir()

    def _json(self, name: str) -> dict[str, Any] | None:
        try:
            document = read_json(self._path / name)
        except ValueError:
            return None
        return document if isinstance(document, dict) else None


def cluster_named_in(spec: Path) -> str:
    """The name in the one plain `cluster:` line of a spec, or "" when only the full reader can tell.

    It spares `tpuctl status` the YAML reader and the models, which cost more than the whole command otherwise.
    Raises UserError when the file cannot be read.
    """
    try:
        text = spec.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""
    except OSError as error:
        raise UserError(
            f"{spec}: {error.strerror}. Name the cluster's spec with -f FILE or TPUCTL_SPEC; 'tpuctl init' writes one."
        ) from error
    lines = [match["name"] for match in _CLUSTER_LINE.finditer(text)]
    return lines[0] if len(lines) == 1 else ""
