"""Which refusal is it? One table from (HTTP status, RPC code, reason, words) to the kinds of cloud/errors.py.

No other file reads the cloud's text. Codes and reasons decide where they can; words are the last resort, and each word
that is tested here has a recorded body in tests/cloud/bodies. Source: cloud.google.com/apis/design/errors, and
docs/facts.md, errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpuctl.cloud.effects import EXPIRED, OF
from tpuctl.cloud.errors import (
    AlreadyExistsError,
    ApiDisabledError,
    BadRequestError,
    CloudError,
    ConflictError,
    CredentialsError,
    LocationPolicyError,
    NoCapacityError,
    NotFoundError,
    PermissionDeniedError,
    QuotaFullError,
    QuotaZeroError,
    RateLimitedError,
    TransientError,
    TypeNotInZoneError,
)
from tpuctl.cloud.model import Failure

_RPC_CODES = {
    1: "CANCELLED", 2: "UNKNOWN", 3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED", 5: "NOT_FOUND", 6: "ALREADY_EXISTS",
    7: "PERMISSION_DENIED", 8: "RESOURCE_EXHAUSTED", 9: "FAILED_PRECONDITION", 10: "ABORTED", 11: "OUT_OF_RANGE",
    12: "UNIMPLEMENTED", 13: "INTERNAL", 14: "UNAVAILABLE", 15: "DATA_LOSS", 16: "UNAUTHENTICATED",
}  # fmt: skip

_QUOTA = re.compile(r"Quota(?: limit)? '(?P<metric>[^']+)' (?:has been )?(?:exceeded|exhausted)")
_LIMIT = re.compile(r"Limit:? (?P<limit>\d+(?:\.\d+)?)(?: in (?:region|zone) (?P<place>[a-z0-9-]+))?")
_PERMISSION = re.compile(r"[Pp]ermission '(?P<name>[^']+)' denied|Required '(?P<required>[^']+)' permission")
_ACCOUNT = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
_LOCATION = re.compile(r"'locations/(?P<zone>[^']+)'")


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the service said, before it has a meaning. `status` is 0 when it came as an operation's error."""

    status: int
    code: str  # RPC code (NOT_FOUND) or ""
    reasons: frozenset[str]  # of ErrorInfo, of `errors[]`, or the code of an operation's error
    text: str
    permission: str = ""  # where the details name it


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, so that a refusal can name whom to give what. "" where it is not known."""

    project: str = ""
    account: str = ""

    def __str__(self) -> str:
        who = self.account or "the account that runs tpuctl"
        return f"{who} in project {self.project}" if self.project else who


NOBODY = Caller()


@dataclass(frozen=True, slots=True)
class Rule:
    """Matches when each of the given fields does; empty = not asked."""

    error: type[CloudError]
    advice: str = ""  # instead of what cloud/effects.py says of the kind
    status: frozenset[int] = frozenset()
    code: frozenset[str] = frozenset()
    reason: frozenset[str] = frozenset()
    words: re.Pattern[str] | None = None
    effect_unknown: bool = False

    def matches(self, said: Refusal) -> bool:
        # A service gives an HTTP status, an RPC code, or both: either may decide.
        by_code = said.status in self.status or said.code in self.code
        return (
            (by_code or not (self.status or self.code))
            and (not self.reason or bool(self.reason & said.reasons))
            and (self.words is None or self.words.search(said.text) is not None)
        )


def _set(*items: str) -> frozenset[str]:
    return frozenset(items)


# The first rule that matches decides. Reasons stand before codes, codes before words, the general after the special.
RULES: tuple[Rule, ...] = (
    Rule(ApiDisabledError, reason=_set("SERVICE_DISABLED", "accessNotConfigured")),
    Rule(ApiDisabledError, status=frozenset({403}), code=_set("PERMISSION_DENIED"),
         words=re.compile(r"has not been used in project .* or it is disabled")),
    Rule(LocationPolicyError, reason=_set("LOCATION_POLICY_VIOLATED")),
    Rule(LocationPolicyError, status=frozenset({403}), code=_set("PERMISSION_DENIED"), words=_LOCATION),
    # Before the quota rules: 'Quota exceeded for quota metric … per minute' is a rate, whatever its reason says.
    Rule(RateLimitedError, status=frozenset({403, 429}), code=_set("RESOURCE_EXHAUSTED"),
         words=re.compile(r"per ?minute", re.IGNORECASE)),
    Rule(QuotaZeroError, status=frozenset({429}), code=_set("RESOURCE_EXHAUSTED"),
         words=re.compile(r"(?s)Quota(?: limit)? '.*Limit:? 0(?:\.0)?(?![\d.]*[1-9])")),
    Rule(QuotaFullError, status=frozenset({429}), code=_set("RESOURCE_EXHAUSTED"), words=_QUOTA),
    Rule(QuotaZeroError, "The limit is 0: ask for quota{place}, or use another zone.",
         reason=_set("quotaExceeded", "QUOTA_EXCEEDED"), words=re.compile(r"Limit:? 0(?:\.0)?(?![\d.]*[1-9])")),
    Rule(QuotaFullError, "Delete what is not needed, or ask for more quota.",
         reason=_set("quotaExceeded", "QUOTA_EXCEEDED")),
    Rule(RateLimitedError, reason=_set("rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED",
                     "RESOURCE_OPERATION_RATE_EXCEEDED")),
    Rule(NoCapacityError, "The zone has none now; wait, or take another zone or machine.",
         reason=_set("ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
                     "insufficientCapacity")),
    Rule(NoCapacityError, words=re.compile(r"no more capacity in the zone|[Ii]nsufficient reserved capacity")),
    Rule(RateLimitedError, status=frozenset({429}), code=_set("RESOURCE_EXHAUSTED")),
    Rule(ConflictError, reason=_set("resourceNotReady", "RESOURCE_NOT_READY", "resourceInUseByAnotherResource",
                     "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", "conditionNotMet")),
    Rule(AlreadyExistsError, reason=_set("alreadyExists", "RESOURCE_ALREADY_EXISTS")),
    Rule(NotFoundError, reason=_set("notFound", "RESOURCE_NOT_FOUND")),
    Rule(AlreadyExistsError, code=_set("ALREADY_EXISTS")),
    Rule(NotFoundError, status=frozenset({404}), code=_set("NOT_FOUND")),
    Rule(ConflictError, status=frozenset({409, 412}), code=_set("FAILED_PRECONDITION", "ABORTED")),
    Rule(ConflictError, "It is in a state that forbids this: tpuctl looks again.",
         words=re.compile(r"is not supported while in state")),
    Rule(TypeNotInZoneError, status=frozenset({400}), code=_set("INVALID_ARGUMENT"),
         words=re.compile(r"zonal accelerator configurations|requested zone .* is not supported"
                          r"|is not available in zone|provisioning model is not supported")),
    Rule(CredentialsError, status=frozenset({401}), code=_set("UNAUTHENTICATED")),
    Rule(PermissionDeniedError, status=frozenset({403}), code=_set("PERMISSION_DENIED")),
    Rule(BadRequestError, "The service does not know this call.", status=frozenset({501}), code=_set("UNIMPLEMENTED")),
    # The answer of a failing service proves nothing about the effect: the call may have got through (A40 to A42).
    Rule(TransientError, status=frozenset({408, 500, 502, 503, 504}),
         code=_set("INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "UNKNOWN", "CANCELLED", "DATA_LOSS"),
         effect_unknown=True),
    Rule(BadRequestError, status=frozenset({400}),
         code=_set("INVALID_ARGUMENT", "OUT_OF_RANGE")),
)  # fmt: skip


def classify(said: Refusal, what: str, caller: Caller = NOBODY) -> CloudError:
    """The error to raise; `what` names the call and its object, e.g. `create queued resource 'a-0' in us-east5-b`."""
    for rule in RULES:
        if rule.matches(said):
            return _make(rule, said, what, caller)
    unknown = f"{said.status} {said.code} {' '.join(sorted(said.reasons))}".strip()
    message = f"{what}: {said.text or 'no text'} ({unknown}; tpuctl does not know this answer)"
    if 400 <= said.status < 500:
        return BadRequestError(message, detail=said.text)
    return TransientError(message, detail=said.text, effect_unknown=True)


def _make(rule: Rule, said: Refusal, what: str, caller: Caller) -> CloudError:
    text = re.sub(r"\s+", " ", said.text).strip() or f"HTTP {said.status} {said.code}".strip()
    message = f"{what}: {text} {_advice(rule, said, caller)}".strip()
    if issubclass(rule.error, TransientError):
        return rule.error(message, detail=said.text, effect_unknown=rule.effect_unknown)
    return rule.error(message, detail=said.text)


def _advice(rule: Rule, said: Refusal, caller: Caller) -> str:
    """The rule's advice with what the text names: the permission, the place, the service."""
    permission = _PERMISSION.search(said.text)
    named = (permission["name"] or permission["required"]) if permission else said.permission
    limit = _LIMIT.search(said.text)
    place = f" in {limit['place']}" if limit and limit["place"] else ""
    account = _ACCOUNT.search(said.text)
    who = Caller(caller.project, account[0]) if account else caller
    service = re.search(r"\b(\w+\.googleapis\.com)\b", said.text)
    command = service[1] if service else "tpu.googleapis.com compute.googleapis.com secretmanager.googleapis.com"
    return (rule.advice or OF[rule.error.kind].cure).format(
        permission=f"'{named}'" if named else "the permission (docs: permissions)",
        who=who,
        place=place,
        service=f"{command} --project {caller.project}" if caller.project else command,
    )


def quotas_in(text: str) -> tuple[str, ...]:
    """Metric names of the quotas that a text names, in its order."""
    return tuple(match["metric"] for match in _QUOTA.finditer(text))


# What says that a thing is or is not there must be the service's own word: a proxy's 404 page proves nothing.
_NEEDS_A_BODY = frozenset({404, 409, 412})


def from_http(status: int, body: bytes | str, what: str, caller: Caller = NOBODY) -> CloudError:
    """From an HTTP answer. One whose body is not the service's JSON (a proxy's page) is judged by its status."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    error = document.get("error") if isinstance(document, Mapping) else None
    if isinstance(error, Mapping):
        return classify(_refusal(status, error), what, caller)
    if status in _NEEDS_A_BODY:
        return TransientError(f"{what}: HTTP {status} without the service's own words", effect_unknown=True)
    return classify(Refusal(status, "", frozenset(), ""), what, caller)


def from_status(error: Mapping[str, Any], what: str) -> CloudError:
    """From a google.rpc.Status `{code: number, message, details}`: an operation's error or `failed_data.error`."""
    code = error.get("code", 2)
    named = {**error, "status": _RPC_CODES.get(code, "UNKNOWN") if isinstance(code, int) else str(code)}
    return classify(_refusal(0, named), what)


_EXPIRED = re.compile(r"valid[-_ ]until|not (?:be )?provisioned (?:before|within)", re.IGNORECASE)


def failure_of(error: Mapping[str, Any] | None, what: str) -> Failure:
    """Why the service ended a queued resource as FAILED, from `failed_data.error`; None or empty: no reason given."""
    if not error or not (error.get("message") or error.get("code") or error.get("details")):
        return Failure("", f"{what}: FAILED, and the service gave no reason.")
    text = re.sub(r"\s+", " ", str(error.get("message") or "")).strip()
    if _EXPIRED.search(text):
        return Failure(EXPIRED, f"{what}: {text}")
    refusal = from_status(error, what)
    return Failure(refusal.kind, str(refusal))


def from_compute_operation(operation: Mapping[str, Any], what: str) -> CloudError | None:
    """The error of a Compute operation that is DONE, or None. Its status is in `httpErrorStatusCode`."""
    error = operation.get("error")
    if not error:
        return None
    errors = [item for item in error.get("errors", []) if isinstance(item, Mapping)]
    reasons = frozenset(str(item.get("code", "")) for item in errors)
    text = "; ".join(str(item.get("message", "")) for item in errors)
    return classify(Refusal(int(operation.get("httpErrorStatusCode") or 0), "", reasons - {""}, text), what)


def _refusal(status: int, error: Mapping[str, Any]) -> Refusal:
    parts = [item for key in ("details", "errors") for item in error.get(key) or () if isinstance(item, Mapping)]
    reasons = frozenset(str(item["reason"]) for item in parts if item.get("reason"))
    named = [item["metadata"] for item in parts if isinstance(item.get("metadata"), Mapping)]
    text = str(error.get("message") or "")
    # Some messages say only "Quota exceeded": which one stands in the details.
    violations = [each for item in parts for each in item.get("violations") or () if isinstance(each, Mapping)]
    said = [str(each.get("description") or "") for each in violations]
    said += [_limit_in(metadata) for metadata in named if "quota_limit" in metadata]
    said += [f"[{metadata['service']}]" for metadata in named if metadata.get("service")]
    for words in said:
        if words and words.strip("[]") not in text:
            text = f"{text} {words}".strip()
    permission = next((str(metadata["permission"]) for metadata in named if metadata.get("permission")), "")
    return Refusal(status, str(error.get("status") or ""), reasons, text, permission)


def _limit_in(metadata: Mapping[str, Any]) -> str:
    """What an ErrorInfo says of a quota, in the form of the texts above."""
    value = metadata.get("quota_limit_value")
    limit = "" if value is None else f" Limit: {value}"
    place = metadata.get("quota_location") or ""
    kind = "zone" if re.search(r"-[a-z]$", str(place)) else "region"
    return f"{metadata['quota_limit']}{limit}{f' in {kind} {place}' if limit and place else ''}"
