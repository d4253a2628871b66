"""What exists of a cluster's head: VM, data disk, secret. A failing call raises its CloudError."""

from __future__ import annotations

from tpuctl.base.ids import Zone
from tpuctl.cloud.errors import NotFoundError
from tpuctl.cloud.model import ComputeApi, Instance, SecretApi
from tpuctl.head.model import CLUSTER_LABEL, HeadNames, HeadView, SecretState


def observe_head(compute: ComputeApi, secrets: SecretApi, names: HeadNames, zone: Zone) -> HeadView:
    """`zone`: where a head would be inserted; a stranger of that name there is looked for too."""
    listed = compute.find_instances(CLUSTER_LABEL, names.cluster)
    heads = {head.zone: head for head in listed.items if names.are_ours(head.labels)}
    # Lists lag behind inserts. The name in its zone is asked for itself, so that two ups see one head.
    named = _get(compute, zone, names.head) if zone not in heads else None
    if named is not None and names.are_ours(named.labels):
        heads[named.zone] = named
        named = None
    disks = compute.find_disks(CLUSTER_LABEL, names.cluster)
    return HeadView(
        heads=tuple(heads.values()),
        heads_complete=listed.complete,
        stranger=named,
        disks=tuple(sorted(place for place, name in disks.items if name == names.disk)),
        disks_complete=disks.complete,
        secret=observe_secret(secrets, names.secret),
    )


def observe_secret(secrets: SecretApi, name: str) -> SecretState:
    try:
        secrets.read_secret(name)
    except NotFoundError:
        return SecretState.EMPTY if secrets.has_secret(name) else SecretState.ABSENT
    return SecretState.PRESENT


def _get(compute: ComputeApi, zone: Zone, name: str) -> Instance | None:
    try:
        return compute.get_instance(zone, name)
    except NotFoundError:
        return None
