"""What a zone offers, and what was asked of it: locations, types, runtimes, reservations, operations, the identity."""

from __future__ import annotations

from tpuctl.emulator.calls import Call
from tpuctl.emulator.operations import Operations
from tpuctl.emulator.scenario import Reservation, Settings
from tpuctl.emulator.tpu_machines import PROJECT_NUMBER
from tpuctl.emulator.tpu_paths import Finder, Verbs, Where, not_found
from tpuctl.emulator.tpu_spec import runtimes_of, types_of
from tpuctl.emulator.tpu_tiers import key_of
from tpuctl.emulator.wire import Answer, Json


class CatalogueApi:
    def __init__(self, finder: Finder, operations: Operations) -> None:
        self._find = finder
        self._world = finder.world
        self._operations = operations

    def verbs(self) -> Verbs:
        return {
            ("GET", "", False, ""): self._locations,
            ("POST", "", False, "generateServiceIdentity"): self._identity,
            ("GET", "acceleratorTypes", False, ""): self._types,
            ("GET", "acceleratorTypes", True, ""): self._one,
            ("GET", "runtimeVersions", False, ""): self._runtimes,
            ("GET", "runtimeVersions", True, ""): self._one,
            ("GET", "reservations", False, ""): self._reservations,
            ("GET", "operations", False, ""): self._list_operations,
            ("GET", "operations", True, ""): self._get_operation,
            ("DELETE", "operations", True, ""): self._drop_operation,
            ("POST", "operations", True, "cancel"): self._cancel_operation,
        }

    def _locations(self, call: Call, where: Where) -> Answer:
        if where.zone:
            return Answer(location_document(where.project, where.zone))
        settings = self._world.settings
        zones = sorted(zone for zone in settings.zones if zone not in settings.denied_zones)
        documents = [location_document(where.project, zone) for zone in zones]
        return Answer(self._find.page(call, "locations", zones, documents))

    def _identity(self, call: Call, where: Where) -> Answer:  # noqa: ARG002 -- all verbs have one signature
        email = f"service-{PROJECT_NUMBER}@cloud-tpu.iam.gserviceaccount.com"
        return Answer({"identity": {"email": email}})

    def _types(self, call: Call, where: Where) -> Answer:
        return self._paged(call, where, accelerator_documents(self._world.settings, where.parent, where.zone))

    def _runtimes(self, call: Call, where: Where) -> Answer:
        return self._paged(call, where, runtime_documents(self._world.settings, where.parent, where.zone))

    def _reservations(self, call: Call, where: Where) -> Answer:
        found = [
            self._reservation(where, each)
            for each in self._world.settings.reservations
            if where.zone in ("-", each.zone)
        ]
        return self._paged(call, where, found)

    def _reservation(self, where: Where, each: Reservation) -> Json:
        return {
            "name": f"projects/{where.project}/locations/{each.zone}/reservations/{each.name}",
            "state": "ACTIVE",
            "standard": {
                "size": each.chips,
                "capacityUnits": "CHIPS",
                "resourceType": each.type,
                "usage": {"total": str(self._find.life.capacity.used_of(key_of(each)))},
            },
        }

    def _paged(self, call: Call, where: Where, found: list[Json]) -> Answer:
        documents = sorted(found, key=lambda document: str(document["name"]))
        names = [str(document["name"]) for document in documents]
        return Answer(self._find.page(call, where.kind, names, documents))

    def _one(self, call: Call, where: Where) -> Answer:  # noqa: ARG002 -- all verbs have one signature
        make = accelerator_documents if where.kind == "acceleratorTypes" else runtime_documents
        for document in make(self._world.settings, where.parent, where.zone):
            if document["name"] == where.name:
                return Answer(document)
        raise not_found(where.name)

    def _list_operations(self, call: Call, where: Where) -> Answer:
        operations = sorted(self._operations.below(where.parent), key=lambda each: each.name)
        documents = [operation.document(where.version) for operation in operations]
        return Answer(self._find.page(call, "operations", [each.name for each in operations], documents))

    def _get_operation(self, call: Call, where: Where) -> Answer:  # noqa: ARG002 -- all verbs have one signature
        operation = self._operations.get(where.name)
        labels = self._find.labels(operation.target)
        return Answer(operation.document(where.version), resource=operation.target, labels=labels)

    def _drop_operation(self, call: Call, where: Where) -> Answer:  # noqa: ARG002 -- all verbs have one signature
        self._operations.drop(where.name)
        return Answer({})

    def _cancel_operation(self, call: Call, where: Where) -> Answer:  # noqa: ARG002 -- all verbs have one signature
        self._operations.cancel(where.name)
        return Answer({})


def location_document(project: str, zone: str) -> Json:
    return {
        "name": f"projects/{project}/locations/{zone}",
        "locationId": zone,
        "labels": {"cloud.googleapis.com/region": zone.rsplit("-", 1)[0]},
    }


def accelerator_documents(settings: Settings, parent: str, zone: str) -> list[Json]:
    return [
        {
            "name": f"{parent}/acceleratorTypes/{accelerator.name}",
            "type": accelerator.name,
            "acceleratorConfigs": [
                {"type": accelerator.generation.wire_type, "topology": accelerator.topology},
            ],
        }
        for accelerator in types_of(settings, zone)
    ]


def runtime_documents(settings: Settings, parent: str, zone: str) -> list[Json]:
    return [
        {"name": f"{parent}/runtimeVersions/{version}", "version": version} for version in runtimes_of(settings, zone)
    ]
