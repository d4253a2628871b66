"""What a create call asks for: read, checked, and refused in the service's own words."""

from __future__ import annotations

import re

from tpuctl.base.units import Instant
from tpuctl.emulator.accelerators import ACCELERATORS, Accelerator, by_topology
from tpuctl.emulator.scenario import Settings
from tpuctl.emulator.tpu_disks import read_disks
from tpuctl.emulator.tpu_records import Asked
from tpuctl.emulator.tpu_tiers import QUEUED_TIERS, tier_of
from tpuctl.emulator.tpu_versions import check_fields
from tpuctl.emulator.wire import Json, ServiceError
from tpuctl.emulator.world import World

_ID = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_METADATA_KEY = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_MAX_METADATA_VALUE = 262_144
_MAX_METADATA = 524_288
_OUTPUT_ONLY = frozenset({
    "name", "state", "health", "healthDescription", "networkEndpoints", "id", "createTime", "apiVersion", "symptoms",
    "queuedResource", "multisliceNode", "upcomingMaintenance", "ipAddress", "port", "protectionTier",
})  # fmt: skip


def bad_request(world: World, text: str) -> ServiceError:
    return ServiceError("INVALID_ARGUMENT", f"Cloud TPU received a bad request. {text} {world.event_id()}")


def wrong_state(world: World, text: str) -> ServiceError:
    return ServiceError("FAILED_PRECONDITION", f"Cloud TPU received a bad request. {text} {world.event_id()}")


def check_id(world: World, what: str, text: str) -> None:
    """Raises ServiceError INVALID_ARGUMENT."""
    if not _ID.fullmatch(text):
        raise bad_request(
            world,
            f'the {what} "{text}" is invalid: it must match ^[a-z]([a-z0-9-]{{0,61}}[a-z0-9])?$ and have at most 63 '
            "characters.",
        )


def read_queued(world: World, version: str, parent: str, qr_id: str, body: Json, now: Instant) -> Asked:
    """Raises ServiceError."""
    check_fields(version, "queuedResources", body)
    check_id(world, "queued resource id", qr_id)
    specs = (body.get("tpu") or {}).get("nodeSpec") or []
    if len(specs) != 1:
        raise bad_request(world, f"exactly one node spec is supported, {len(specs)} given.")
    spec = specs[0]
    if spec.get("parent") and _tail(spec["parent"]) != _tail(parent):
        raise bad_request(
            world,
            f'the node spec\'s parent "{spec["parent"]}" is not in the location of the queued resource "{parent}".',
        )
    zone = _tail(parent)
    template, accelerator = read_template(world, zone, spec.get("node") or {})
    until, after = _window(world, body.get("queueingPolicy") or {}, now)
    node_ids = _node_ids(world, qr_id, spec)
    return Asked(
        accelerator=accelerator,
        node_ids=node_ids,
        template=template,
        tier=tier_of(world, zone, accelerator, body, template),
        policy=dict(body.get("queueingPolicy") or {}),
        valid_until=until,
        valid_after=after,
        extra={
            key: body[key]
            for key in (*QUEUED_TIERS, "reservationName", "provisioningModel", "runDuration")
            if key in body
        },
        disks=read_disks(world, zone, template.get("dataDisks") or [], accelerator.hosts * len(node_ids)),
        version=version,
    )


def read_node(world: World, version: str, parent: str, node_id: str, body: Json) -> Asked:
    """What nodes.create asks for. Raises ServiceError."""
    check_fields(version, "nodes", body)
    check_id(world, "node id", node_id)
    zone = _tail(parent)
    template, accelerator = read_template(world, zone, body)
    return Asked(
        accelerator=accelerator,
        node_ids=(node_id,),
        template=template,
        tier=tier_of(world, zone, accelerator, {}, template),
        policy={},
        valid_until=None,
        valid_after=None,
        extra={},
        disks=read_disks(world, zone, template.get("dataDisks") or [], accelerator.hosts),
        version=version,
    )


def _tail(parent: str) -> str:
    return parent.rsplit("/", 1)[-1]


def _node_ids(world: World, qr_id: str, spec: Json) -> tuple[str, ...]:
    many = spec.get("multisliceParams") or spec.get("multiNodeParams")
    node_id = spec.get("nodeId", "")
    if many and node_id:
        raise bad_request(world, "only one of node_id and multislice_params may be set.")
    if many:
        count = int(many.get("nodeCount", 0))
        if count < 2:
            raise bad_request(world, f"node_count must be greater than 1, got {count}.")
        prefix = many.get("nodeIdPrefix") or qr_id
        ids = tuple(f"{prefix}-{index}" for index in range(count))
    else:
        ids = (node_id,)
    for each in ids:
        check_id(world, "node id", each)
    return ids


def read_template(world: World, zone: str, body: Json) -> tuple[Json, Accelerator]:
    """The node without output-only fields, and its accelerator. Raises ServiceError."""
    template = {key: value for key, value in body.items() if key not in _OUTPUT_ONLY}
    accelerator = _accelerator(world, zone, template)
    if not template.get("runtimeVersion"):
        raise bad_request(world, "the runtime version is required.")
    if template["runtimeVersion"] not in runtimes_of(world.settings, zone):
        raise bad_request(
            world, f'The requested runtime version "{template["runtimeVersion"]}" was not found in zone "{zone}".'
        )
    check_changeable(world, template)
    if template.get("networkConfig") and template.get("networkConfigs"):
        raise bad_request(world, "only one of network_config and network_configs may be set.")
    return template, accelerator


def check_changeable(world: World, node: Json) -> None:
    """The fields that an update may change too. Raises ServiceError."""
    _check_labels(world, node.get("labels") or {})
    _check_metadata(world, node.get("metadata") or {})
    if len(node.get("description", "")) > 512:
        raise bad_request(world, "the description may have at most 512 characters.")


def runtimes_of(settings: Settings, zone: str) -> tuple[str, ...]:
    offered = settings.zones.get(zone, ())
    found = {r for a in ACCELERATORS.values() if a.generation.key in offered for r in a.generation.runtimes}
    return tuple(sorted(found))


def types_of(settings: Settings, zone: str) -> tuple[Accelerator, ...]:
    offered = settings.zones.get(zone, ())
    return tuple(a for a in ACCELERATORS.values() if a.generation.key in offered or a.name in offered)


def _accelerator(world: World, zone: str, node: Json) -> Accelerator:
    name, config = node.get("acceleratorType", ""), node.get("acceleratorConfig") or {}
    if name and config:
        raise bad_request(world, "only one of accelerator_type and accelerator_config may be set.")
    if not name and not config:
        raise bad_request(world, "one of accelerator_type and accelerator_config is required.")
    if config:
        wanted = by_topology(str(config.get("type", "")), str(config.get("topology", "")))
        name = wanted.name if wanted else f"{config.get('type')} {config.get('topology')}"
    if name not in {accelerator.name for accelerator in types_of(world.settings, zone)}:
        raise ServiceError(
            "INVALID_ARGUMENT",
            "Cloud TPU received a bad request. The requested accelerator configuration for accelerator type, "
            f'"{name}", could not be found in the zonal accelerator configurations for "{zone}".; the accelerator '
            f"{name} was not found in zone {zone} {world.event_id()}",
        )
    return ACCELERATORS[name]


def _check_labels(world: World, labels: Json) -> None:
    if len(labels) > 64:
        raise bad_request(world, f"at most 64 labels are allowed, got {len(labels)}.")
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(str(value)):
            raise bad_request(world, f'invalid label "{key}": "{value}".')


def _check_metadata(world: World, metadata: Json) -> None:
    total = 0
    for key, value in metadata.items():
        size = len(str(value).encode())
        total += size + len(key)
        if not _METADATA_KEY.fullmatch(key):
            raise bad_request(world, f'invalid metadata key "{key}".')
        if size > _MAX_METADATA_VALUE:
            raise bad_request(world, f'the value of metadata key "{key}" has more than {_MAX_METADATA_VALUE} bytes.')
    if total > _MAX_METADATA:
        raise bad_request(world, f"the metadata has more than {_MAX_METADATA} bytes.")


def _window(world: World, policy: Json, now: Instant) -> tuple[Instant | None, Instant | None]:
    """(valid until, valid after) of a queueing policy."""
    if len(policy) > 1:
        first, second = list(policy)[:2]
        raise ServiceError(
            "INVALID_ARGUMENT",
            f"Invalid value at 'queued_resource.queueing_policy' (oneof), oneof field 'start_timing_constraints' is "
            f"already set by '{first}'. Cannot set '{second}'",
        )
    try:
        if "validUntilDuration" in policy:
            return now.plus(_proto_duration(policy["validUntilDuration"])), None
        if "validUntilTime" in policy:
            return Instant.parse(policy["validUntilTime"]), None
        if "validAfterDuration" in policy:
            return None, now.plus(_proto_duration(policy["validAfterDuration"]))
        if "validAfterTime" in policy:
            return None, Instant.parse(policy["validAfterTime"])
        interval = policy.get("validInterval") or {}
        until = Instant.parse(interval["endTime"]) if "endTime" in interval else None
        after = Instant.parse(interval["startTime"]) if "startTime" in interval else None
    except ValueError as error:
        raise bad_request(world, f"invalid queueing policy: {error}.") from error
    if until is not None and after is not None and until <= after:
        raise bad_request(world, "the valid interval must end after it starts.")
    return until, after


def _proto_duration(text: str) -> float:
    """Seconds of a JSON google.protobuf.Duration, e.g. `3600s`."""
    if not text.endswith("s"):
        raise ValueError(f"not a duration: {text!r}")
    return float(text[:-1])
