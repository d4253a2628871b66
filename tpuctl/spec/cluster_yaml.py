"""From the tree of a cluster spec to the model."""

from __future__ import annotations

import re
from typing import cast

from tpuctl.base.ids import MAX_NAME, ClusterName, Epoch, IncarnationId, PoolName, Zone
from tpuctl.spec.accelerators import Accelerator, UnknownAcceleratorError, accelerator
from tpuctl.spec.cluster import (
    MAX_CLUSTER_NAME,
    MAX_POOL_NAME,
    Backend,
    ClusterSpec,
    DeadlineSpec,
    DetectionSpec,
    EndpointSpec,
    HeadSpec,
    NetworkSpec,
    PoolSpec,
    Reach,
)
from tpuctl.spec.cluster_keys import CLUSTER, MAX_POOL_SLICES, POOL
from tpuctl.spec.fields import Fields, Problems, shown
from tpuctl.spec.grant import PlacedPool, check_pools, read_grant
from tpuctl.spec.tree import Mapping, Node
from tpuctl.spec.tree import Sequence as ListNode

ZONE = r"[a-z]+(?:-[a-z]+)+[0-9]+-[a-z0-9]+"
ZONE_HINT = "a zone looks like us-central2-b"
MIN_HOLD_S = 6.0  # the quickest safe health checks need so long to see a silent host
# The longest epoch and number that the names of queued resources must have room for.
LAST_EPOCH, LAST_N = Epoch("zzzzzz"), 999_999


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
    pools = _pools(top, cluster)
    if backend == "gcp" and root.get("grant") is None:
        problems.add(root, "missing key 'grant': name zone/generation/tier and chips, or write 'grant: none'")
    grant = read_grant(top)
    if grant is not None:
        check_pools(grant, pools, problems)
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
    return DetectionSpec(hold_s=hold_s, rejoin_s=rejoin_s)


def _pools(top: Fields, cluster: ClusterName) -> tuple[PlacedPool, ...]:
    problems = top.problems
    pools: list[PlacedPool] = []
    for node in top.items("pools"):
        mapping = problems.mapping(node, "a pool")
        if mapping is None:
            continue
        pool = _pool(Fields(mapping, POOL, problems, "pool"))
        twin = next((other for other in pools if other.spec.name == pool.spec.name), None)
        at = mapping.get("name") or mapping
        if twin is not None:
            problems.add(at, f"a second pool {pool.spec.name!r}, first on line {twin.node.line}; rename one of the two")
        _check_names(problems, at, cluster, pool.spec)
        pools.append(pool)
    return tuple(pools)


def _check_names(problems: Problems, at: Node, cluster: ClusterName, pool: PoolSpec) -> None:
    """The names made of these must fit the cloud's limit, our own suffixes counted (A25)."""
    longest = IncarnationId(cluster, pool.name, max(pool.slices - 1, 0), LAST_EPOCH, LAST_N).qr_name
    if len(longest) > MAX_NAME:
        problems.add(at, f"names like {longest} have {len(longest)} characters, the cloud takes {MAX_NAME}: shorten it")


# Stands in for a value that was refused, so that reading goes on; a spec with any problem is never made.
_STAND_IN = PoolName("p")


def _pool(fields: Fields) -> PlacedPool:
    found = fields.read("accelerator", lambda node, what: _accelerator(fields.problems, node, what), None)
    runtime = fields.matching("runtime", r"[a-z0-9][a-zA-Z0-9._-]*", "a runtime looks like tpu-ubuntu2204-base")
    if found is not None and found.generation == "v6e" and runtime == "tpu-ubuntu2204-base":
        fields.problems.add(
            fields.get("runtime") or fields.node,
            f"runtime {runtime!r} has no driver for v6e and silently computes on the CPU; write {found.runtime!r}",
        )
    fields.choice("tier", ("spot",), "spot", later=("on-demand", "reserved"))
    spec = PoolSpec(
        name=PoolName(fields.name("name", MAX_POOL_NAME) or _STAND_IN),
        accelerator=found.name if found else "",
        zones=(fields.read("zones", lambda node, what: _zone(fields.problems, node, what), Zone("")),),
        runtime=runtime or (found.runtime if found else ""),
        slices=fields.read("slices", lambda node, what: _slices(fields.problems, node, what), 0),
        deadlines=_deadlines(fields),
    )
    return PlacedPool(spec, found, fields.node)


def _accelerator(problems: Problems, node: Node, what: str) -> Accelerator | None:
    if isinstance(node, ListNode):
        problems.add(node, f"{what}: a list of types is not there yet; write one")
        return None
    text = problems.text(node, what)
    if text is None:
        return None
    try:
        return accelerator(text)
    except UnknownAcceleratorError as error:
        problems.add(node, str(error))
        return None


def _zone(problems: Problems, node: Node, what: str) -> Zone | None:
    items = problems.items(node, what)
    if items is None:
        return None
    if len(items) != 1:
        problems.add(node, f"{what}: {'more than one zone is not there yet; write one' if items else 'write one zone'}")
        return None
    text = problems.text(items[0], "a zone")
    if text is None:
        return None
    if not re.fullmatch(ZONE, text):
        problems.add(items[0], f"{shown(text)} is no zone; {ZONE_HINT}")
        return None
    return Zone(text)


def _slices(problems: Problems, node: Node, what: str) -> int | None:
    if isinstance(node, Mapping):
        problems.add(node, f"{what}: {{min, max}} and 'max: grant' are not there yet; write one number")
        return None
    return problems.whole(node, what, 0, MAX_POOL_SLICES)


def _deadlines(pool: Fields) -> DeadlineSpec:
    fields = pool.block("deadlines")
    default = DeadlineSpec()
    if fields is None:
        return default
    return DeadlineSpec(
        queue_s=fields.deadline("queue", default.queue_s),
        provision_s=fields.deadline("provision", default.provision_s),
        boot_s=fields.deadline("boot", default.boot_s),
        join_s=fields.deadline("join", default.join_s),
    )
