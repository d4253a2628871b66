"""The errors that planted faults answer with, by the names that scenarios use."""

from __future__ import annotations

from tpuctl.emulator.wire import Json, ServiceError, error_info

# name -> (status, message); the messages are the services' own as far as they are known.
ERRORS: dict[str, tuple[str, str]] = {
    "unavailable": ("UNAVAILABLE", "The service is currently unavailable."),
    "internal": ("INTERNAL", "Internal error. Please try again."),
    "unknown": ("UNKNOWN", "an internal error has occurred"),
    "deadline": ("DEADLINE_EXCEEDED", "Deadline expired before operation could complete."),
    "aborted": ("ABORTED", "There was a conflict while trying to complete your request."),
    "rate-limit": (
        "RESOURCE_EXHAUSTED",
        "Quota exceeded for quota metric 'Create requests' and limit 'Create requests per minute' of service "
        "'tpu.googleapis.com' for consumer 'project_number:1'.",
    ),
    "quota": (
        "RESOURCE_EXHAUSTED",
        "Quota limit 'TPUV6EPreemptiblePerProjectPerZoneForTPUAPI' has been exceeded. Limit: 64 in zone us-east1-d.",
    ),
    "quota-later": (
        "RESOURCE_EXHAUSTED",
        "Quota 'TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI' exhausted. Limit 16 in region us-west4",
    ),
    "no-capacity": (
        "RESOURCE_EXHAUSTED",
        'There is no more capacity in the zone "europe-west4-b"; you can try in another zone where Cloud TPU Nodes are '
        "offered (see https://cloud.google.com/tpu/docs/regions) [EID: 0x27e2d8ab1ccb8dd9]",
    ),
    "no-reserved": (
        "FAILED_PRECONDITION",
        "Insufficient reserved capacity. Contact customer support to increase your reservation. "
        "[EID: 0x27e2d8ab1ccb8dd9]",
    ),
    "permission": ("PERMISSION_DENIED", "Permission 'tpu.nodes.get' denied on resource (or it may not exist)."),
    "unauthenticated": (
        "UNAUTHENTICATED",
        "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
        "authentication credential.",
    ),
    "not-found": ("NOT_FOUND", "Resource was not found"),
    "unimplemented": ("UNIMPLEMENTED", "Operation is not implemented, or supported, or enabled."),
}


def named_error(name: str, message: str = "", *, compute: bool = False) -> ServiceError:
    """`message` replaces the usual text; `compute`: with that service's own reason."""
    status, text = ERRORS[name]
    details: tuple[Json, ...] = ()
    if name == "permission":
        details = (error_info("IAM_PERMISSION_DENIED", "iam.googleapis.com"),)
    if name == "rate-limit":
        details = (error_info("RATE_LIMIT_EXCEEDED", "googleapis.com", service="tpu.googleapis.com"),)
    reason = {"UNAVAILABLE": "backendError", "INTERNAL": "backendError", "PERMISSION_DENIED": "forbidden"}
    return ServiceError(status, message or text, reason=reason.get(status, "") if compute else "", details=details)
