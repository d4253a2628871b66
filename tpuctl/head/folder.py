"""What a client remembers of a cluster: `TPUCTL_HOME/clusters/<cluster>/`. All of it can be found again.

So no command fails for it: what cannot be read is not known, and what cannot be saved (a full disk, somebody else's
directory) is told and looked for again the next time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tpuctl.base.errors import UserError
from tpuctl.base.files import owner_only_directory, read_json, write_atomic, write_json_atomic
from tpuctl.base.units import Instant

_CLUSTER_LINE = re.compile(
    r"^cluster[ ]*:[ ]+(?P<quote>['\"]?)(?P<name>[a-z][a-z0-9-]{0,15})(?P=quote)[ ]*(?:#.*)?$", re.MULTILINE
)

_WORD = re.compile(r"[!-~]*")  # what may stand in a header or an address


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
    """`say` hears what could not be read or kept."""

    def __init__(self, home: Path, cluster: str, say: Callable[[str], None] = lambda _: None) -> None:
        self._path = home / "clusters" / cluster
        self._say = say

    def token(self) -> str:
        """ "" when it was not read yet."""
        token = ""
        with self._reading("token"):
            token = (self._path / "token").read_text("ascii").strip()
        return token if _WORD.fullmatch(token) else ""

    def save_token(self, token: str) -> None:
        self._keep(lambda: write_atomic(self._path / "token", f"{token}\n".encode(), mode=0o600))

    def head(self) -> KnownHead | None:
        document = self._json("head.json")
        try:
            head = None if document is None else KnownHead(**document)
        except TypeError:
            return None  # of another version of tpuctl: it can be found again
        texts = () if head is None else (head.zone, head.name, head.address)
        return head if all(isinstance(text, str) and _WORD.fullmatch(text) for text in texts) else None

    def save_head(self, head: KnownHead) -> None:
        self._keep(lambda: write_json_atomic(self._path / "head.json", asdict(head)))

    def last_status(self) -> LastStatus | None:
        document = self._json("last_status.json")
        try:
            return None if document is None else LastStatus(document, Instant.parse(document["at"]))
        except (KeyError, TypeError, ValueError):
            return None

    def save_status(self, document: dict[str, Any]) -> None:
        self._keep(lambda: write_json_atomic(self._path / "last_status.json", document))

    def forget(self) -> None:
        """The cluster is gone: so is what was known of it. What else lies there is not ours to delete."""
        try:
            for name in ("token", "head.json", "last_status.json"):
                (self._path / name).unlink(missing_ok=True)
            # What a command that was killed while it saved has left.
            for half in self._path.glob(".*.tmp"):
                half.unlink(missing_ok=True)
            if self._path.is_dir():
                self._path.rmdir()
        except OSError as error:
            self._say(f"{self._path} could not be removed: {error.strerror}")

    def _keep(self, write: Callable[[], None]) -> None:
        try:
            owner_only_directory(self._path)
            write()
        except OSError as error:
            self._say(f"nothing can be remembered in {self._path}: {error.strerror}; the next command looks again")

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            return
        except OSError as error:
            self._say(f"{self._path / name} cannot be read: {error.strerror}")
        except ValueError:
            return  # damaged: as good as none

    def _json(self, name: str) -> dict[str, Any] | None:
        document = None
        with self._reading(name):
            document = read_json(self._path / name)
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
