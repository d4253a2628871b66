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
from tpuctl.cloud.effects import OF, Effect


class CloudError(TpuctlError):
    """`kind`: a stable word for status, records and tests; what follows from it stands in cloud/effects.py."""

    kind = "error"

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail  # the service's own words, whole

    @property
    def effect(self) -> Effect:
        return OF[self.kind]


class NotFoundError(CloudError):
    kind = "not-found"


class AlreadyExistsError(CloudError):
    kind = "already-exists"


class QuotaZeroError(CloudError):
    kind = "quota-zero"


class QuotaFullError(CloudError):
    kind = "quota-full"


class NoCapacityError(CloudError):
    kind = "no-capacity"


class RateLimitedError(CloudError):
    kind = "rate-limited"


class TypeNotInZoneError(CloudError):
    kind = "type-not-in-zone"


class PermissionDeniedError(CloudError):
    kind = "permission"


class ApiDisabledError(CloudError):
    kind = "api-disabled"


class LocationPolicyError(CloudError):
    kind = "location-policy"


class ConflictError(CloudError):
    kind = "conflict"


class TransientError(CloudError):
    kind = "transient"

    def __init__(self, message: str, *, detail: str = "", effect_unknown: bool = False) -> None:
        super().__init__(message, detail=detail)
        self.effect_unknown = effect_unknown


class BadRequestError(CloudError):
    kind = "bad-request"


class CredentialsError(CloudError):
    kind = "credentials"
