"""What a zone offers: locations, accelerator types and runtime versions in JSON."""

from __future__ import annotations

from tpuctl.emulator.scenario import Settings
from tpuctl.emulator.tpu_spec import runtimes_of, types_of
from tpuctl.emulator.wire import Json


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
