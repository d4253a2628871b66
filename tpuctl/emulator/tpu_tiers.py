"""Which tier a create call asks for: spot, on-demand or reserved, and out of which reservation."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpuctl.emulator.accelerators import Accelerator
from tpuctl.emulator.scenario_limits import Reservation
from tpuctl.emulator.scenario_parts import covers
from tpuctl.emulator.wire import Json, ServiceError
from tpuctl.emulator.world import World

QUEUED_TIERS = ("spot", "guaranteed", "bestEffort")
_RESERVATION = re.compile(r"(?:projects|folders|organizations)/[^/]+/locations/([^/]+)/reservations/([^/]+)")


@dataclass(frozen=True, slots=True)
class Tier:
    name: str  # spot, on-demand or reserved: as quotas are kept
    preemptible: bool = False
    reservation: str = ""  # `<zone>/<name>`; "" when the tier is reserved: there is none that serves it
    too_late: Json | None = None  # a google.rpc.Status with which the accepted request ends


ON_DEMAND_TIER = Tier("on-demand")


def tier_of(world: World, zone: str, accelerator: Accelerator, queued: Json, node: Json) -> Tier:
    """Of a node body, and of the queued resource around it ({} when there is none). Raises ServiceError."""
    given = [tier for tier in QUEUED_TIERS if tier in queued]
    if len(given) > 1:
        raise ServiceError(
            "INVALID_ARGUMENT",
            f"Invalid value at 'queued_resource' (oneof), oneof field 'tier' is already set. Cannot set '{given[1]}'",
        )
    scheduling = node.get("schedulingConfig") or {}
    models = {queued.get("provisioningModel"), scheduling.get("provisioningModel")}
    preemptible = bool(scheduling.get("spot") or scheduling.get("preemptible"))
    spot = "spot" in queued or preemptible or "SPOT" in models
    named = str(queued.get("reservationName") or scheduling.get("reservationName") or "")
    reserved = bool(
        named
        or (queued.get("guaranteed") or {}).get("reserved")
        or scheduling.get("reserved")
        or "RESERVATION_BOUND" in models
    )
    if spot and reserved:
        raise ServiceError(
            "INVALID_ARGUMENT",
            f"Cloud TPU received a bad request. spot resources cannot be provisioned in a reservation. "
            f"{world.event_id()}",
        )
    if reserved:
        tier = _reserved(world, zone, accelerator, named)
    elif spot or "bestEffort" in queued:
        tier = Tier("spot", preemptible=True)
    elif "FLEX_START" in models:
        tier = _flex_start(zone, accelerator)
    else:
        tier = ON_DEMAND_TIER
    _check_offered(world, zone, accelerator, tier)
    return tier


def _flex_start(zone: str, accelerator: Accelerator) -> Tier:
    """It counts against the preemptible quota, and is not preempted."""
    if accelerator.generation.key in ("v5e", "v6e"):
        return Tier("spot")
    text = f'FLEX_START provisioning model is not supported for accelerator type "{accelerator.name}" in location '
    return Tier("spot", too_late={"code": 3, "message": f'{text}"{zone}"'})


def _reserved(world: World, zone: str, accelerator: Accelerator, name: str) -> Tier:
    wanted = _reservation_id(world, zone, name)
    for each in world.settings.reservations:
        serves = covers(each.zone, each.type, zone, accelerator.name, accelerator.generation.key)
        if serves and wanted in ("-", each.name):
            return Tier("reserved", reservation=key_of(each))
    return Tier("reserved", too_late=no_reserved_capacity(world).rpc())


def no_reserved_capacity(world: World) -> ServiceError:
    text = "Insufficient reserved capacity. Contact customer support to increase your reservation."
    return ServiceError("FAILED_PRECONDITION", f"{text} {world.event_id()}")


def _reservation_id(world: World, zone: str, name: str) -> str:
    if not name:
        return "-"
    match = _RESERVATION.fullmatch(name)
    if match is None or match[1] != zone:
        raise ServiceError(
            "INVALID_ARGUMENT",
            f'Cloud TPU received a bad request. the reservation name "{name}" must be '
            f"projects/<project>/locations/{zone}/reservations/<reservation>. {world.event_id()}",
        )
    if match[2] != "-" and not any((r.zone, r.name) == (zone, match[2]) for r in world.settings.reservations):
        raise ServiceError("NOT_FOUND", f"Resource '{name}' was not found")
    return match[2]


def key_of(reservation: Reservation) -> str:
    return f"{reservation.zone}/{reservation.name}"


def _check_offered(world: World, zone: str, accelerator: Accelerator, tier: Tier) -> None:
    for rule in world.settings.not_offered:
        there = covers(rule.zone, rule.type, zone, accelerator.name, accelerator.generation.key)
        if there and rule.tier in ("*", tier.name):
            preemptible, reserved = str(tier.name == "spot").lower(), str(tier.name == "reserved").lower()
            raise ServiceError(
                "INVALID_ARGUMENT",
                f"Accelerator type {accelerator.name} as preemptible ({preemptible}) and reserved ({reserved}) is not "
                f"available in zone {zone}, please contact support.",
            )
