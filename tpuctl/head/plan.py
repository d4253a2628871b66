"""What to do about the head, from what is wanted and what was seen. Pure.

Order of making: secret, disk, VM; each is kept if it is there, so that a maker may be killed anywhere. Order of ending:
VM first, so that nobody makes slices any more; then the secret, so that nobody takes the head for lost; the disk last.
"""

from __future__ import annotations

from tpuctl.base.ids import Zone
from tpuctl.cloud.model import Instance, InstanceRequest
from tpuctl.head.model import (
    LEAVING,
    STOPPED,
    CreateDisk,
    CreateSecret,
    DeleteDisk,
    DeleteHead,
    DeleteSecret,
    DiskElsewhereError,
    HeadAction,
    HeadNames,
    HeadPlan,
    HeadView,
    HeadWant,
    InsertHead,
    NameTakenError,
    SecretState,
    TwoHeadsError,
)


def plan_head(want: HeadWant, view: HeadView) -> HeadPlan:
    """Towards one running head. An empty plan without `waits` means that it is there.

    Raises NameTakenError, TwoHeadsError and DiskElsewhereError: things that only a person can settle.
    """
    names = want.names
    head = _the_head(names, view)
    if view.stranger is not None and head is None:
        raise NameTakenError(
            f"instance {names.head!r} in {view.stranger.zone} is not of this cluster (it lacks the labels "
            f"{_shown(names)}) and was left alone. Give the cluster another name, or delete that instance yourself."
        )
    if head is None and not view.heads_complete:
        return HeadPlan(waits="some zones could not be listed: a head that is not seen there may exist")
    if head is not None and head.status in LEAVING:
        return HeadPlan(waits=f"instance {head.name!r} in {head.zone} is {head.status}")

    actions: list[HeadAction] = []
    if view.secret is not SecretState.PRESENT:
        empty = view.secret is SecretState.EMPTY
        actions.append(
            CreateSecret(
                names.secret,
                replace_empty=empty,
                reason="the secret has no version: its maker was interrupted" if empty else "the cluster has no secret",
            )
        )
    if head is not None and head.status not in STOPPED:
        return HeadPlan(tuple(actions))
    zone, notes = _zone_for(want, view)
    if head is not None:
        actions.append(DeleteHead(head.zone, head.name, f"it is {head.status}; its data disk stays"))
    if zone not in view.disks:
        if not view.disks_complete:
            return HeadPlan(waits="some zones could not be listed: a data disk that is not seen there may exist")
        actions.append(CreateDisk(zone, names.disk, want.disk_gb, "the cluster has no data disk"))
    actions.append(InsertHead(_request(want, zone), "there is no head" if head is None else f"it was {head.status}"))
    return HeadPlan(tuple(actions), notes=notes)


def plan_end(names: HeadNames, view: HeadView, *, keep_disk: bool) -> HeadPlan:
    """Towards nothing of ours. Only what carries our labels is touched; the secret is ours by its name."""
    actions: list[HeadAction] = [DeleteHead(head.zone, head.name, "the cluster ends") for head in view.heads]
    if view.secret is not SecretState.ABSENT:
        actions.append(DeleteSecret(names.secret, "the cluster ends"))
    if not keep_disk:
        actions += [DeleteDisk(zone, names.disk, "the cluster ends") for zone in view.disks]
    unseen = not view.heads_complete or (not keep_disk and not view.disks_complete)
    return HeadPlan(
        tuple(actions),
        waits="some zones could not be listed: something of this cluster may be left there" if unseen else "",
    )


def _the_head(names: HeadNames, view: HeadView) -> Instance | None:
    if len(view.heads) > 1:
        places = ", ".join(sorted(f"{head.name} in {head.zone}" for head in view.heads))
        raise TwoHeadsError(
            f"cluster {names.cluster!r} has {len(view.heads)} heads: {places}. Delete all but the one whose data "
            "disk you want, or end the cluster with 'tpuctl down'."
        )
    return view.heads[0] if view.heads else None


def _zone_for(want: HeadWant, view: HeadView) -> tuple[Zone, tuple[str, ...]]:
    """The records decide: a head without its disk would forget its cluster."""
    if not view.disks or want.zone in view.disks:
        return want.zone, ()
    if len(view.disks) > 1:
        raise DiskElsewhereError(
            f"data disks {want.names.disk!r} exist in {', '.join(view.disks)} and none in {want.zone}: set "
            "`head.zone` to the one that holds your records, or delete the others."
        )
    zone = view.disks[0]
    return zone, (f"the data disk is in {zone}: the head goes there and not to {want.zone}",)


def _request(want: HeadWant, zone: Zone) -> InstanceRequest:
    return InstanceRequest(
        name=want.names.head,
        zone=zone,
        machine=want.machine,
        labels=want.names.labels,
        metadata={},
        data_disk=want.names.disk,
        network=want.network,
        subnetwork=want.subnetwork,
        external_ip=want.external_ip,
        tags=want.tags,
        service_account=want.service_account,
    )


def _shown(names: HeadNames) -> str:
    return ", ".join(f"{key}={value}" for key, value in names.labels.items())
