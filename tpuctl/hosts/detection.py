"""How fast a dead host is noticed, and that a host cut off ends its program before anybody else may start it again.

Pure. Two durations of the spec give everything: `hold_s` (how long a verdict waits for evidence) and `rejoin_s` (how
long a SUSPECT slice may take to come back). Ray on head and hosts and the runs' leases take their numbers here.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpuctl.base.errors import UserError

# A host is back in Ray this long after its raylet has left: clean-up, look-up and `ray start`. Measured: 4 to 12 s.
JOIN_S = 15.0
MIN_HOLD_S = 6.0
_SLOW_HOLD_S = 20.0  # from here on the robust settings fit


class DetectionError(UserError):
    """The durations of the spec do not fit each other."""


@dataclass(frozen=True, slots=True)
class Detection:
    """Ray's health checks (on the head), the hosts' own patience, and the lease of a program."""

    hold_s: float
    rejoin_s: float
    health_period_ms: int
    timeout_ms: int
    threshold: int
    reconnect_s: int  # a raylet that cannot reach the head for so long leaves
    self_check_ms: int  # how often a raylet asks whether the head still counts it as alive
    lease_s: float  # a program whose lease was not renewed for so long is killed on its host
    lease_margin_s: float  # for the kill itself, and for two clocks that run apart

    @property
    def silent_earliest_s(self) -> float:
        """The soonest that Ray may call a host dead that fell silent: threshold time-outs and the pauses between."""
        return (self.threshold * self.timeout_ms + (self.threshold - 1) * self.health_period_ms) / 1000

    @property
    def silent_latest_s(self) -> float:
        return self.threshold * (self.timeout_ms + self.health_period_ms) / 1000


def settings_for(hold_s: float, rejoin_s: float) -> Detection:
    """The settings for these durations. Raises DetectionError when no safe settings exist.

    Measured with Ray 2.60: 2000/3000/4 sees a frozen host after 18.6 s, 1000/1000/3 after 5.2 s. The quick settings are
    for tests and emulators: below about 18 s healthy hosts have been called dead in the field.
    """
    if hold_s >= _SLOW_HOLD_S:
        detection = Detection(hold_s, rejoin_s, 2000, 3000, 4, 15, 3000, 10.0, 2.0)
    else:
        detection = Detection(hold_s, rejoin_s, 1000, 1000, 3, 5, 1000, 4.0, 1.0)
    check(detection)
    return detection


def check(detection: Detection) -> None:
    """Raises DetectionError unless self-fencing comes before the head's verdict, and evidence within the hold."""
    fenced_s = detection.lease_s + detection.lease_margin_s
    if fenced_s > detection.silent_earliest_s:
        raise DetectionError(
            f"a host that is cut off ends its program after up to {fenced_s:g}s, but the head may call it dead after "
            f"{detection.silent_earliest_s:g}s: two attempts could run at once"
        )
    if detection.silent_latest_s > detection.hold_s:
        raise DetectionError(
            f"detection.hold is {detection.hold_s:g}s, but a dead host may go unnoticed for "
            f"{detection.silent_latest_s:g}s: its peers' exits would be taken for failures; set hold to at least "
            f"{detection.silent_latest_s:g}s"
        )
    back_s = detection.reconnect_s + JOIN_S
    if detection.rejoin_s < back_s:
        raise DetectionError(
            f"detection.rejoin is {detection.rejoin_s:g}s, but a host needs up to {back_s:g}s to come back after a "
            f"restart of the head: healthy slices would be replaced; set rejoin to at least {back_s:g}s"
        )
