"""`tpuctl status --cloud`: what carries the cluster's labels, asked of the cloud itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tpuctl.cli.options import say

if TYPE_CHECKING:
    from tpuctl.app import Basis
    from tpuctl.cloud.model import Listing, Node, QueuedResource, TpuApi

DOCUMENT_VERSION = 1


def show_cloud(here: Basis, file: Path, *, as_json: bool) -> None:
    """Exit 3 when a zone could not be read: what is missing there is unknown, not absent."""
    from tpuctl import app
    from tpuctl.spec.yaml import load_cluster

    spec = load_cluster(file)
    tpu = app.build_tpu(app.endpoints_of(spec, here.settings), spec.project, here.clock)
    view = app.build_head(here, spec).observe()
    named = app.zones_of(spec)
    zones = {zone: _zone(tpu, zone, spec.cluster) for zone in (*named, *_others(tpu, named, spec.cluster))}
    _remember(here, spec.cluster, view.heads)
    document = {
        "version": DOCUMENT_VERSION,
        "at": here.clock.now().iso(),
        "cluster": spec.cluster,
        "heads": [
            {"name": head.name, "zone": head.zone, "state": head.status, "address": head.address} for head in view.heads
        ],
        "disks": list(view.disks),
        "secret": view.secret.value,
        "complete": view.heads_complete and view.disks_complete,
        "zones": zones,
    }
    if as_json:
        typer.echo(json.dumps(document, indent=1))
    else:
        typer.echo("\n".join(_lines(document)))
    if not document["complete"] or any(zone["unknown"] for zone in zones.values()):
        say("tpuctl: something could not be listed: what is missing above is unknown, not absent")
        raise typer.Exit(3)


def _others(tpu: TpuApi, named: tuple[Any, ...], cluster: str) -> list[Any]:
    """Zones that the spec does not name (any more) and that have something of ours all the same."""
    from tpuctl.cloud.errors import CloudError
    from tpuctl.head.model import CLUSTER_LABEL
    from tpuctl.head.sweep import ALL_ZONES

    try:
        listing = tpu.list_queued_resources(ALL_ZONES)
    except CloudError as error:
        say(f"zones that the spec does not name could not be looked at: {error}")
        return []
    ours = {item.zone for item in listing.items if item.labels.get(CLUSTER_LABEL) == cluster}
    return sorted(ours - set(named))


def _zone(tpu: TpuApi, zone: Any, cluster: str) -> dict[str, Any]:
    from tpuctl.cloud.errors import CloudError
    from tpuctl.head.model import CLUSTER_LABEL

    try:
        queued: Listing[QueuedResource] = tpu.list_queued_resources(zone)
        nodes: Listing[Node] = tpu.list_nodes(zone)
    except CloudError as error:
        return {"unknown": str(error), "queued_resources": []}
    states = {node.node_id: _word(node.state) for node in nodes.items if node.labels.get(CLUSTER_LABEL) == cluster}
    ours = [item for item in queued.items if item.labels.get(CLUSTER_LABEL) == cluster]
    rows = [
        {
            "name": item.name,
            "accelerator": item.accelerator_type,
            "state": _word(item.state),
            "node_state": states.pop(item.name, None),
        }
        for item in ours
    ]
    # Nodes without a queued resource of ours: leftovers that cost money and that no pass sees.
    rows += [{"name": name, "accelerator": "", "state": None, "node_state": state} for name, state in states.items()]
    complete = queued.complete and nodes.complete
    return {"unknown": "" if complete else "the list is incomplete", "queued_resources": rows}


def _word(state: Any) -> str:
    from tpuctl.cloud.model import UnrecognisedState

    return f"unrecognised ({state.raw})" if isinstance(state, UnrecognisedState) else str(state.name)


def _remember(here: Basis, cluster: str, heads: Any) -> None:
    from tpuctl.app import warn
    from tpuctl.head.folder import ClusterFolder, KnownHead

    if len(heads) == 1 and heads[0].address:
        ClusterFolder(here.settings.home, cluster, warn).save_head(
            KnownHead(heads[0].zone, heads[0].name, heads[0].address)
        )


def _lines(document: dict[str, Any]) -> list[str]:
    lines = [f"cluster {document['cluster']}, as the cloud lists it"]
    lines += [
        f"head    {head['name']}  {head['zone']}  {head['state']}  {head['address']}" for head in document["heads"]
    ] or ["head    none"]
    lines.append(f"disk    {', '.join(document['disks']) or 'none'}")
    lines.append(f"secret  {document['secret']}")
    for zone, told in document["zones"].items():
        lines.append(f"{zone}: {told['unknown'] or len(told['queued_resources'])}".replace(": 0", ": nothing of ours"))
        lines += [
            f"  {row['name']}  {row['accelerator']}  {row['state'] or 'no queued resource'}"
            f"  node {row['node_state'] or 'none'}"
            for row in told["queued_resources"]
        ]
    return lines
