"""From the tree of a cluster spec to the model."""

from __future__ import annotations

import re
from typing import cast

from tpuctl.base.ids import ClusterName, Zone
from tpuctl.spec.cluster import (
    MAX_CLUSTER_NAME,
    Backend,
    ClusterSpec,
    DetectionSpec,
    EndpointSpec,
    HeadSpec,
    NetworkSpec,
    NotifySpec,
    Reach,
)
from tpuctl.spec.cluster_keys import CLUSTER
from tpuctl.spec.fields import Fields, Problems, shown
from tpuctl.spec.grant import check_open_ends, check_pools, read_grant
from tpuctl.spec.pool_yaml import ZONE, ZONE_HINT, read_pools
from tpuctl.spec.tree import Mapping, Node

MIN_HOLD_S = 6.0  # the quickest safe health checks need so long to see a silent host


def cluster_of(root: Mapping, problems: Problems) -> ClusterSpec | None:
    """None when anything was complained of."""
    top = Fields(root, CLUSTER, problems)
    top.version()
    cluster = ClusterName(top.name("cluster", MAX_CLUSTER_NAME))
    backend = cast("Backend", top.choice("backend", ("gcp", "emulator"), "gcp"))
    project = top.matching(
        "project", r"[a-z](?:[a-z0-9.:-]*[a-z0-9])?", "a project id is of small letters, digits and dashes"
    )
    head, endpoints, network = _head(top), _endpoints(top), _network(top)
    storage = _storage(top, backend)
    detection = _detection(top)
    notify, ttl_s = _notify(top), top.deadline("ttl", None)
    pools = read_pools(top, cluster)
    if backend == "gcp" and root.get("grant") is None:
        problems.add(root, "missing key 'grant': name zone/generation/tier and chips, or write 'grant: none'")
    grant = read_grant(top)
    if grant is not None:
        check_pools(grant, pools, problems)
    check_open_ends(grant, pools, problems)
    if problems.found:
        return None
    return ClusterSpec(
        cluster=cluster,
        project=project,
        backend=backend,
        head=head,
        endpoints=endpoints,
        grant=grant,
        network=network,
        storage=storage,
        detection=detection,
        notify=notify,
        ttl_s=ttl_s,
        pools=tuple(pool.spec for pool in pools),
    )


def _head(top: Fields) -> HeadSpec:
    head = top.block("head")
    if head is None:
        return HeadSpec(zone=Zone(""))
    return HeadSpec(
        zone=Zone(head.matching("zone", ZONE, ZONE_HINT)),
        machine=head.matching("machine", r"[a-z0-9-]+", "a machine type looks like e2-standard-4", "e2-standard-4"),
        service_account=head.matching(
            "service_account", r"|[^@\s]+@[^@\s]+", 'write its e-mail address, or "" for the project\'s default'
        ),
        reach=cast("Reach", head.choice("reach", ("auto", "direct", "ssh", "iap"), "auto")),
    )


def _endpoints(top: Fields) -> EndpointSpec:
    fields = top.block("endpoints")
    if fields is None:
        return EndpointSpec()
    url, hint = r"|https?://[^\s/?#@]+(?:/[^\s?#]*)?", "write a root like http://127.0.0.1:9000"
    return EndpointSpec(
        tpu=fields.matching("tpu", url, hint),
        compute=fields.matching("compute", url, hint),
        secretmanager=fields.matching("secretmanager", url, hint),
        storage=fields.matching("storage", url, hint),
    )


def _network(top: Fields) -> NetworkSpec:
    fields = top.block("network")
    if fields is None:
        return NetworkSpec()
    problems, tags = fields.problems, []
    for node in fields.items("tags"):
        tag = problems.text(node, "a network tag")
        if tag is not None and not re.fullmatch(r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?", tag):
            problems.add(node, f"network tag {shown(tag)}: use small letters, digits and dashes")
        tags.append(tag or "")
    path = r"[a-zA-Z0-9._/:-]*"
    return NetworkSpec(
        network=fields.matching("network", path, "write its name or path", "default"),
        subnetwork=fields.matching("subnetwork", path, "write its name or path"),
        external_ips=fields.flag("external_ips", default=True),
        tags=tuple(tags),
    )


def _storage(top: Fields, backend: str) -> tuple[tuple[str, str], ...]:
    problems = top.problems
    node = top.get("storage")
    mapping = None if node is None else problems.mapping(node, "storage")
    if mapping is None:
        return ()
    entries: list[tuple[str, str]] = []
    for key, value in mapping.items:
        if entries:
            problems.add(key, f"storage for a second region {shown(key.text)} is not there yet; keep one entry")
            continue
        if not re.fullmatch(r"[a-z]+(?:-[a-z]+[0-9]*)*", key.text):
            problems.add(key, f"storage: {shown(key.text)} is no region; write one like us, or us-central2")
        url = problems.text(value, f"storage.{key.text}")
        entries.append((key.text, "" if url is None else _checked_url(problems, value, url, backend)))
    return tuple(entries)


def _checked_url(problems: Problems, node: Node, url: str, backend: str) -> str:
    """Without the slashes at its end, so that {storage}/runs has no empty part."""
    if re.fullmatch(r"gs://[a-z0-9][a-z0-9._-]+(?:/\S*)?", url):
        return url.rstrip("/")
    if re.fullmatch(r"file:///\S.*", url):
        if backend == "emulator":
            return url.rstrip("/")
        problems.add(node, f"storage {shown(url)}: a directory is for backend emulator only; write gs://BUCKET")
    else:
        problems.add(node, f"storage {shown(url)}: write gs://BUCKET, or on the emulator file:///DIRECTORY")
    return ""


def _detection(top: Fields) -> DetectionSpec:
    fields = top.block("detection")
    default = DetectionSpec()
    if fields is None:
        return default
    hold_s = fields.duration("hold", default.hold_s)
    rejoin_s = fields.duration("rejoin", default.rejoin_s)
    if hold_s < MIN_HOLD_S:
        fields.problems.add(
            fields.get("hold") or fields.node,
            f"detection.hold is {hold_s:g}s, but a silent host goes unnoticed for {MIN_HOLD_S:g}s: write at least that",
        )
    if rejoin_s < hold_s:
        fields.problems.add(
            fields.get("rejoin") or fields.node,
            f"detection.rejoin ({rejoin_s:g}s) is shorter than hold ({hold_s:g}s): slices would be deleted before the "
            "verdict; raise rejoin",
        )
    return DetectionSpec(hold_s=hold_s, rejoin_s=rejoin_s, young_s=fields.deadline("young", default.young_s))


def _notify(top: Fields) -> NotifySpec:
    fields = top.block("notify")
    if fields is None:
        return NotifySpec()
    return NotifySpec(
        command=fields.text("command"),
        webhook=fields.matching("webhook", r"|https?://[^\s/?#@]+(?:[/?]\S*)?", "write a URL like https://host/path"),
    )
