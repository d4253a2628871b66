"""What the cloud can refuse with, one class a meaning. cloud/classify.py alone decides which text means which.

CloudError
  NotFoundError          it is not there
  AlreadyExistsError     the name is taken: look whose it is
  QuotaZeroError         the limit is 0: only the user can mend that
  QuotaFullError         the limit is reached: wait; own leftovers count
  NoCapacityError        the zone has none now
  RateLimitedError       too many calls a minute
  TypeNotInZoneError     wait for a change of the spec
  PermissionDeniedError  only the user can mend that
  ApiDisabledError       only the user can mend that
  LocationPolicyError    the project may not use this zone
  ConflictError          wrong state or update in flight: read again, then retry
  TransientError         5xx, time-outs, broken connections; `effect_unknown` says that it may have taken effect
  BadRequestError        the service does not accept what we sent
  CredentialsError       no or expired credentials; raised before any effect
"""

from __future__ import annotations

from tpuctl.base.errors import TpuctlError


class CloudError(TpuctlError):
    """`kind`: a stable word for status, records and tests. `pause_s`: the wait before the same call is repeated."""

    kind = "error"
    pause_s = 60.0

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail  # the service's own words, whole


class NotFoundError(CloudError):
    kind = "not-found"


class AlreadyExistsError(CloudError):
    kind = "already-exists"


class QuotaZeroError(CloudError):
    kind = "quota-zero"
    pause_s = 3600.0


class QuotaFullError(CloudError):
    kind = "quota-full"
    pause_s = 120.0


class NoCapacityError(CloudError):
    kind = "no-capacity"
    pause_s = 300.0


class RateLimitedError(CloudError):
    kind = "rate-limited"
    pause_s = 30.0


class TypeNotInZoneError(CloudError):
    kind = "type-not-in-zone"
    pause_s = float("inf")  # until the spec changes


class PermissionDeniedError(CloudError):
    kind = "permission"
    pause_s = 600.0


class ApiDisabledError(CloudError):
    kind = "api-disabled"
    pause_s = 600.0


class LocationPolicyError(CloudError):
    kind = "location-policy"
    pause_s = 3600.0


class ConflictError(CloudError):
    kind = "conflict"
    pause_s = 15.0


class TransientError(CloudError):
    kind = "transient"
    pause_s = 10.0

    def __init__(self, message: str, *, detail: str = "", effect_unknown: bool = False) -> None:
        super().__init__(message, detail=detail)
        self.effect_unknown = effect_unknown


class BadRequestError(CloudError):
    kind = "bad-request"
    pause_s = float("inf")


class CredentialsError(CloudError):
    kind = "credentials"
    pause_s = 60.0
