"""A client of the VM's metadata server. Source: Compute Engine documentation, VM metadata."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass

from tpuctl.base.errors import RetryLaterError
from tpuctl.base.web import Answer, NoAnswerError, call

_FLAVOR = {"Metadata-Flavor": "Google"}


class MetadataError(RetryLaterError):
    """The metadata server gave no usable answer."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 2.0)


@dataclass(frozen=True, slots=True)
class Value:
    text: str
    etag: str  # names this state of the value; wait() returns when another one holds


class Metadata:
    """`host` is `metadata.google.internal`, or the host:port of GCE_METADATA_HOST. All keys are below `instance/`."""

    def __init__(self, host: str, *, timeout_s: float = 5.0) -> None:
        self._root = f"http://{host}/computeMetadata/v1/instance/"
        self._timeout_s = timeout_s

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Metadata:
        return cls(environment.get("GCE_METADATA_HOST") or "metadata.google.internal")

    def get(self, key: str) -> str | None:
        """None: there is no such key. Raises MetadataError."""
        value = self._get(key, "", self._timeout_s)
        return None if value is None else value.text

    def wait(self, key: str, last_etag: str, for_s: int) -> Value | None:
        """The value once it is another than `last_etag` names (at once for "0"), or as it is after `for_s`."""
        query = urllib.parse.urlencode({"wait_for_change": "true", "timeout_sec": for_s, "last_etag": last_etag})
        return self._get(key, f"?{query}", for_s + self._timeout_s)

    def attribute(self, name: str) -> str | None:
        """What the creator of the VM, or the service, wrote: `tpuctl-config`, `agent-worker-number` …"""
        return self.get(f"attributes/{name}")

    def own_address(self) -> str:
        """The internal address. Raises MetadataError."""
        address = self.get("network-interfaces/0/ip")
        if not address:
            raise MetadataError("the metadata server names no address (network-interfaces/0/ip)")
        return address.strip()

    def is_preempted(self) -> bool:
        return (self.get("preempted") or "").strip() == "TRUE"

    def write_guest_attribute(self, namespace: str, key: str, text: str) -> None:
        """Readable from outside through getGuestAttributes. Raises MetadataError."""
        self._call("PUT", f"guest-attributes/{namespace}/{key}", self._timeout_s, text.encode())

    def _get(self, key: str, query: str, timeout_s: float) -> Value | None:
        answer = self._call("GET", key + query, timeout_s)
        return None if answer.status == 404 else Value(answer.text(), answer.headers.get("etag", ""))

    def _call(self, method: str, path: str, timeout_s: float, body: bytes | None = None) -> Answer:
        try:
            answer = call(method, self._root + path, headers=_FLAVOR, body=body, timeout_s=timeout_s)
        except NoAnswerError as error:
            raise MetadataError(f"the metadata server does not answer: {error}") from error
        if answer.status not in (200, 404):
            raise MetadataError(f"the metadata server answers {answer.status} to {method} {path}")
        return answer
