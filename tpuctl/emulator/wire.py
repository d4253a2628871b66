"""Requests, answers and error bodies as the real services shape them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tpuctl.base.units import Instant

Json = dict[str, Any]

HTTP_STATUS = {
    "CANCELLED": 499, "UNKNOWN": 500, "INVALID_ARGUMENT": 400, "DEADLINE_EXCEEDED": 504, "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409, "PERMISSION_DENIED": 403, "RESOURCE_EXHAUSTED": 429, "FAILED_PRECONDITION": 400,
    "ABORTED": 409, "OUT_OF_RANGE": 400, "UNIMPLEMENTED": 501, "INTERNAL": 500, "UNAVAILABLE": 503,
    "UNAUTHENTICATED": 401,
}  # fmt: skip
RPC_CODE = {
    "CANCELLED": 1, "UNKNOWN": 2, "INVALID_ARGUMENT": 3, "DEADLINE_EXCEEDED": 4, "NOT_FOUND": 5, "ALREADY_EXISTS": 6,
    "PERMISSION_DENIED": 7, "RESOURCE_EXHAUSTED": 8, "FAILED_PRECONDITION": 9, "ABORTED": 10, "OUT_OF_RANGE": 11,
    "UNIMPLEMENTED": 12, "INTERNAL": 13, "UNAVAILABLE": 14, "UNAUTHENTICATED": 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str  # decoded, without the query
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @classmethod
    def from_url(cls, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Request:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        return cls(method.upper(), unquote(parts.path), query, headers, body)

    def document(self) -> Json:
        """The JSON body; {} when there is none. Raises ServiceError when it is not a JSON object."""
        if not self.body:
            return {}
        try:
            document = json.loads(self.body)
        except ValueError as error:
            raise ServiceError("INVALID_ARGUMENT", "Invalid JSON payload received.") from error
        if not isinstance(document, dict):
            raise ServiceError("INVALID_ARGUMENT", "Invalid JSON payload received. Unknown root.")
        return document

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() in ("true", "1")


@dataclass(frozen=True, slots=True)
class Response:
    """What the caller gets. The three last fields tell the face how the answer travels.

    `delay_s`: the answer leaves so much later. `lost`: the connection is closed instead of answering, after `delay_s`.
    `again_at`: there is no answer yet; put the same request once more at that time (a blocking wait).
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    delay_s: float = 0.0
    lost: bool = False
    again_at: Instant | None = None


def json_response(status: int, document: Json) -> Response:
    return Response(
        status, {"Content-Type": "application/json; charset=UTF-8"}, json.dumps(document, sort_keys=True).encode()
    )


def delayed(response: Response, delay_s: float, *, lost: bool = False) -> Response:
    return replace(response, delay_s=response.delay_s + delay_s, lost=lost)


class ServiceError(Exception):
    """An answer that is an error. `status` is the RPC code's name; `reason` is Compute's own word where it has one."""

    def __init__(
        self,
        status: str,
        message: str,
        *,
        reason: str = "",
        details: tuple[Json, ...] = (),
        http: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason
        self.details = details
        self.http = http or HTTP_STATUS[status]

    def rpc(self) -> Json:
        """As a google.rpc.Status, for operations and failedData."""
        document: Json = {"code": RPC_CODE[self.status], "message": self.message}
        if self.details:
            document["details"] = list(self.details)
        return document

    def response(self) -> Response:
        error: Json = {"code": self.http, "message": self.message, "status": self.status}
        if self.reason:
            error["errors"] = [{"message": self.message, "domain": "global", "reason": self.reason}]
        if self.details:
            error["details"] = list(self.details)
        return json_response(self.http, {"error": error})


@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler says: the document, and for the call log whether something changed, on what, with which labels."""

    document: Json
    effect: bool = False
    resource: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    again_at: Instant | None = None


def error_info(reason: str, domain: str, **metadata: str) -> Json:
    return {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": domain,
        "metadata": dict(metadata),
    }


_ENUMS: dict[str, dict[str, int]] = {
    "QueuedResourceState": {
        "STATE_UNSPECIFIED": 0, "CREATING": 1, "ACCEPTED": 2, "PROVISIONING": 3, "FAILED": 4, "DELETING": 5,
        "ACTIVE": 6, "SUSPENDING": 7, "SUSPENDED": 8, "WAITING_FOR_RESOURCES": 9,
    },
    "Node": {
        "STATE_UNSPECIFIED": 0, "CREATING": 1, "READY": 2, "RESTARTING": 3, "REIMAGING": 4, "DELETING": 5,
        "REPAIRING": 6, "STOPPED": 8, "STOPPING": 9, "STARTING": 10, "PREEMPTED": 11, "TERMINATED": 12, "HIDING": 13,
        "HIDDEN": 14, "UNHIDING": 15, "UNKNOWN": 16,
    },
    "stateInitiator": {"STATE_INITIATOR_UNSPECIFIED": 0, "USER": 1, "SERVICE": 2},
    "health": {
        "HEALTH_UNSPECIFIED": 0, "HEALTHY": 1, "TIMEOUT": 3, "UNHEALTHY_TENSORFLOW": 4, "UNHEALTHY_MAINTENANCE": 5,
    },
    "maintenanceType": {"UNKNOWN_TYPE": 0, "SCHEDULED": 1, "UNSCHEDULED": 2},
    "maintenanceStatus": {"UNKNOWN": 0, "PENDING": 1, "ONGOING": 2},
    "apiVersion": {"API_VERSION_UNSPECIFIED": 0, "V1_ALPHA1": 1, "V1": 2, "V2_ALPHA1": 3, "V2": 4},
    "type": {"TYPE_UNSPECIFIED": 0, "V2": 2, "V3": 4, "V4": 7, "V5LITE_POD": 9, "V5P": 10, "V6E": 11},
}  # fmt: skip


def numbered_enums(document: Any) -> Any:
    """The same document with enum words as numbers, as asked by `$alt=json;enum-encoding=int`. Words that are no
    enum's stay: that is how a value newer than the client reaches it."""
    if isinstance(document, list):
        return [numbered_enums(item) for item in document]
    if not isinstance(document, dict):
        return document
    found = {}
    for key, value in document.items():
        table = _enum_table(key, document)
        found[key] = table.get(value, value) if table and isinstance(value, str) else numbered_enums(value)
    return found


def _enum_table(key: str, within: Json) -> dict[str, int] | None:
    if key == "state":
        return _ENUMS["Node"] if "acceleratorType" in within else _ENUMS["QueuedResourceState"]
    if key == "type" and "windowStartTime" in within:
        return _ENUMS["maintenanceType"]
    if key == "type" and "topology" not in within:
        return None
    if key == "apiVersion" and "acceleratorType" not in within:
        return None  # of an operation's metadata, where it is text
    return _ENUMS.get(key)
