"""Refusals that come before any call's own meaning: API off, permission missing, zone not granted, too many calls."""

from __future__ import annotations

from collections import deque

from tpuctl.base.units import Instant
from tpuctl.emulator.scenario import Settings
from tpuctl.emulator.wire import ServiceError, error_info

_TITLES = {"tpu": "Cloud TPU API", "compute": "Compute Engine API", "secretmanager": "Secret Manager API"}


def check_api(settings: Settings, service: str, project: str, *, reason: str = "") -> None:
    """Raises ServiceError PERMISSION_DENIED when the project has not switched the API on."""
    if service not in settings.disabled_apis:
        return
    host = f"{service}.googleapis.com"
    page = f"https://console.developers.google.com/apis/api/{host}/overview?project={project}"
    raise ServiceError(
        "PERMISSION_DENIED",
        f"{_TITLES[service]} has not been used in project {project} before or it is disabled. Enable it by visiting "
        f"{page} then retry. If you enabled this API recently, wait a few minutes for the action to propagate to our "
        "systems and retry.",
        reason=reason,
        details=(error_info("SERVICE_DISABLED", "googleapis.com", service=host, consumer=f"projects/{project}"),),
    )


def check_permission(settings: Settings, permission: str, resource: str, *, reason: str = "") -> None:
    """Raises ServiceError PERMISSION_DENIED."""
    if permission in settings.denied_permissions:
        raise ServiceError(
            "PERMISSION_DENIED",
            f"Permission '{permission}' denied on '{resource}' (or it may not exist).",
            reason=reason,
            details=(
                error_info("IAM_PERMISSION_DENIED", "iam.googleapis.com", permission=permission, resource=resource),
            ),
        )


def check_zone(settings: Settings, zone: str, project: str, event_id: str) -> None:
    """Raises ServiceError: the project may not use the zone, or the zone has no TPUs."""
    if zone in settings.denied_zones:
        raise ServiceError(
            "PERMISSION_DENIED",
            f"Permission denied on 'locations/{zone}' (or it may not exist).",
            details=(
                error_info(
                    "LOCATION_POLICY_VIOLATED",
                    "googleapis.com",
                    location=zone,
                    consumer=f"projects/{project}",
                    service="tpu.googleapis.com",
                ),
            ),
        )
    if zone not in settings.zones:
        raise ServiceError(
            "INVALID_ARGUMENT",
            f'Cloud TPU received a bad request. The requested zone "{zone}" is not supported. {event_id}',
        )


class CreateRate:
    """Create calls of each project in the last minute."""

    def __init__(self, settings: Settings) -> None:
        self._limit = settings.creates_per_minute
        self._recent: dict[str, deque[Instant]] = {}

    def check(self, now: Instant, project: str) -> None:
        """Counts the call. Raises ServiceError RESOURCE_EXHAUSTED."""
        recent = self._recent.setdefault(project, deque())
        while recent and now.since(recent[0]) >= 60:
            recent.popleft()
        if self._limit is not None and len(recent) >= self._limit:
            raise ServiceError(
                "RESOURCE_EXHAUSTED",
                "Quota exceeded for quota metric 'CreateQueuedResource requests' and limit 'CreateQueuedResource "
                "requests per minute' of service 'tpu.googleapis.com' for consumer 'project_number:100000000001'.",
                details=(
                    error_info(
                        "RATE_LIMIT_EXCEEDED",
                        "googleapis.com",
                        service="tpu.googleapis.com",
                        quota_limit_value=str(self._limit),
                    ),
                ),
            )
        recent.append(now)
