"""Compute Engine v1, as far as the head VM needs it, by Google's discovery client and its shipped document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from googleapiclient import discovery

from tpuctl.base.clock import Clock
from tpuctl.base.ids import Zone
from tpuctl.base.units import Instant
from tpuctl.cloud.access import http_for
from tpuctl.cloud.classify import from_compute_operation
from tpuctl.cloud.errors import TransientError
from tpuctl.cloud.failures import cloud_call
from tpuctl.cloud.model import Instance, InstanceRequest, Listing
from tpuctl.cloud.retry import reading

TIMEOUT_S = 20.0
WAIT_CALL_S = 150.0  # operations.wait answers after up to 2 minutes, finished or not
OPERATION_LIMIT_S = 300.0
IMAGE = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts"
BOOT_DISK_GB = 50
SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class RestCompute:
    """ComputeApi. Safe to use from several threads: each call has its own connection."""

    def __init__(self, endpoint: str, project: str, clock: Clock, *, http: Any = None) -> None:
        """`http`: an httplib2-like object used for every call instead of fresh ones (an emulator in process)."""
        self._endpoint, self._project, self._clock, self._http = endpoint, project, clock, http
        with cloud_call(f"use {endpoint}"):
            # With api_endpoint the whole base is replaced, so that the service's path is written out.
            service = discovery.build(
                "compute",
                "v1",
                http=http or http_for(endpoint, TIMEOUT_S),
                static_discovery=True,
                cache_discovery=False,
                client_options={"api_endpoint": f"{endpoint}/compute/v1/"},
            )
        # Each of these builds its methods anew from the document when asked for, which costs more than a call.
        self._instances, self._disks = service.instances(), service.disks()
        self._operations = service.zoneOperations()

    def find_instances(self, label: str, value: str) -> Listing[Instance]:
        what = f"list instances labelled {label}={value}"
        pages = list(self._aggregated(self._instances, label, value, what))
        items = [_instance(item) for scope in _scopes(pages) for item in scope.get("instances", [])]
        return Listing(tuple(items), all(_is_complete(page) for page in pages))

    def get_instance(self, zone: Zone, name: str) -> Instance:
        call = self._instances.get(project=self._project, zone=zone, instance=name)
        return _instance(self._read(call, f"get instance {name!r} in {zone}"))

    def insert_instance(self, request: InstanceRequest, request_id: str) -> None:
        call = self._instances.insert(
            project=self._project, zone=request.zone, body=instance_body(request, self._project), requestId=request_id
        )
        self._effect(call, request.zone, f"insert instance {request.name!r} in {request.zone}")

    def delete_instance(self, zone: Zone, name: str, request_id: str) -> None:
        call = self._instances.delete(project=self._project, zone=zone, instance=name, requestId=request_id)
        self._effect(call, zone, f"delete instance {name!r} in {zone}")

    def insert_disk(self, zone: Zone, name: str, size_gb: int, labels: Mapping[str, str], request_id: str) -> None:
        body = {
            "name": name,
            "sizeGb": str(size_gb),
            "type": f"projects/{self._project}/zones/{zone}/diskTypes/pd-balanced",
            "labels": dict(labels),
        }
        call = self._disks.insert(project=self._project, zone=zone, body=body, requestId=request_id)
        self._effect(call, zone, f"insert disk {name!r} in {zone}")

    def find_disks(self, label: str, value: str) -> Listing[tuple[Zone, str]]:
        what = f"list disks labelled {label}={value}"
        pages = list(self._aggregated(self._disks, label, value, what))
        items = [
            (Zone(_last(item["zone"])), str(item["name"]))
            for scope in _scopes(pages)
            for item in scope.get("disks", [])
            if "zone" in item  # regional disks are never ours
        ]
        return Listing(tuple(items), all(_is_complete(page) for page in pages))

    def delete_disk(self, zone: Zone, name: str, request_id: str) -> None:
        call = self._disks.delete(project=self._project, zone=zone, disk=name, requestId=request_id)
        self._effect(call, zone, f"delete disk {name!r} in {zone}")

    def _execute(self, call: Any, what: str, timeout_s: float = TIMEOUT_S) -> Any:
        with cloud_call(what):
            return call.execute(http=self._http or http_for(self._endpoint, timeout_s), num_retries=0)

    def _read(self, call: Any, what: str) -> Any:
        return reading(lambda: self._execute(call, what), self._clock)

    def _aggregated(self, collection: Any, label: str, value: str, what: str) -> Iterator[Mapping[str, Any]]:
        call = collection.aggregatedList(project=self._project, filter=f"labels.{label}={value}")
        while call is not None:
            page = self._read(call, what)
            yield page
            call = collection.aggregatedList_next(previous_request=call, previous_response=page)

    def _effect(self, call: Any, zone: Zone, what: str) -> None:
        """Send it and wait until its operation is DONE. An operation can be DONE and have failed."""
        operation = self._execute(call, what)
        began_s = self._clock.monotonic()
        while operation.get("status") != "DONE":
            if self._clock.monotonic() - began_s > OPERATION_LIMIT_S:
                raise TransientError(
                    f"{what}: operation {operation.get('name')} is not done after {OPERATION_LIMIT_S:.0f} s; "
                    "it may still take effect: look again later",
                    effect_unknown=True,
                )
            waiting = self._operations.wait(project=self._project, zone=zone, operation=operation["name"])
            operation = self._wait_once(partial(self._execute, waiting, what, WAIT_CALL_S))
        error = from_compute_operation(operation, what)
        if error is not None:
            raise error

    def _wait_once(self, call: Callable[[], Any]) -> Any:
        began_s = self._clock.monotonic()
        operation = reading(call, self._clock)
        # A server that does not block, and one that answers at once although unfinished, is asked once a second.
        if operation.get("status") != "DONE" and self._clock.monotonic() - began_s < 1.0:
            self._clock.sleep(1.0)
        return operation


def instance_body(request: InstanceRequest, project: str) -> dict[str, Any]:
    """The REST body of an on-demand VM. The data disk stays when the VM goes; the boot disk goes with it."""
    zone = f"projects/{project}/zones/{request.zone}"
    interface: dict[str, Any] = {"network": _network(request.network, project)}
    if request.subnetwork:
        region = request.zone.rsplit("-", 1)[0]
        name = request.subnetwork
        interface["subnetwork"] = name if "/" in name else f"projects/{project}/regions/{region}/subnetworks/{name}"
    if request.external_ip:
        interface["accessConfigs"] = [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}]
    boot = {"sourceImage": IMAGE, "diskSizeGb": str(BOOT_DISK_GB), "diskType": f"{zone}/diskTypes/pd-balanced"}
    return {
        "name": request.name,
        "machineType": f"{zone}/machineTypes/{request.machine}",
        "labels": dict(request.labels),
        "tags": {"items": list(request.tags)},
        "disks": [
            {"boot": True, "autoDelete": True, "initializeParams": boot},
            {"source": f"{zone}/disks/{request.data_disk}", "deviceName": "tpuctl-data", "autoDelete": False},
        ],
        "networkInterfaces": [interface],
        "serviceAccounts": [{"email": request.service_account or "default", "scopes": [SCOPE]}],
        "metadata": {"items": [{"key": key, "value": text} for key, text in request.metadata.items()]},
        "scheduling": {"provisioningModel": "STANDARD", "automaticRestart": True, "onHostMaintenance": "MIGRATE"},
    }


def _network(name: str, project: str) -> str:
    return name if "/" in name else f"projects/{project}/global/networks/{name}"


def _instance(item: Mapping[str, Any]) -> Instance:
    interfaces = item.get("networkInterfaces") or [{}]
    metadata = (item.get("metadata") or {}).get("items") or []
    return Instance(
        name=str(item["name"]),
        zone=Zone(_last(item.get("zone", ""))),
        status=str(item.get("status", "")),
        address=str(interfaces[0].get("networkIP", "")),
        created=Instant.parse(item["creationTimestamp"]),
        labels=dict(item.get("labels") or {}),
        metadata={entry["key"]: entry.get("value", "") for entry in metadata},
    )


def _last(url: str) -> str:
    return str(url).rsplit("/", 1)[-1]


def _scopes(pages: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for page in pages:
        yield from (page.get("items") or {}).values()


def _is_complete(page: Mapping[str, Any]) -> bool:
    """False when the service names zones that it could not read."""
    warnings = [(scope.get("warning") or {}).get("code") for scope in (page.get("items") or {}).values()]
    own = (page.get("warning") or {}).get("code")
    return not page.get("unreachables") and "UNREACHABLE" not in [*warnings, own]
