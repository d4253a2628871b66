"""What one version of the TPU API has and the other lacks: fields refused on the way in, left out on the way out.

Records know no version. Source: the API definitions of v2 and v2alpha1, as Google publishes them for its clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tpuctl.emulator.wire import Json, ServiceError

VERSIONS = ("v2", "v2alpha1")
# Paths of fields that only one of the two has. `[]`: of each item of a list.
_ONLY: Mapping[str, tuple[str, ...]] = {
    "v2": ("tpu.nodeSpec[].multisliceParams",),
    "v2alpha1": (
        "bestEffort", "provisioningModel", "runDuration", "guaranteed.reserved", "tpu.nodeSpec[].multiNodeParams",
    ),
}  # fmt: skip
_ONLY_NODE: Mapping[str, tuple[str, ...]] = {
    "v2": (),
    "v2alpha1": (
        "autocheckpointEnabled", "schedulingConfig.provisioningModel", "schedulingConfig.reservationName",
        "bootDiskConfig.diskSizeGb", "bootDiskConfig.enableConfidentialCompute", "bootDiskConfig.provisionedIops",
        "bootDiskConfig.provisionedThroughput", "bootDiskConfig.sourceImage", "bootDiskConfig.storagePool",
        "dataDisks[].workerIds",
    ),
}  # fmt: skip


def check_fields(version: str, kind: str, document: Json) -> None:
    """`kind`: queuedResources or nodes. Raises ServiceError INVALID_ARGUMENT for a field that this version lacks."""
    for path in _strange(version, kind):
        for holder, at in _holders(document, path):
            if (name := path.rsplit(".", 1)[-1]) in holder:
                root = {"queuedResources": "queued_resource", "nodes": "node"}[kind]
                place = ".".join(part for part in (root, at) if part)
                raise ServiceError(
                    "INVALID_ARGUMENT",
                    f"Invalid JSON payload received. Unknown name \"{name}\" at '{place}': Cannot find field.",
                )


def in_version(version: str, kind: str, document: Json) -> Json:
    """The document without what this version lacks. The record's own document stays as it is."""
    for path in _strange(version, kind):
        document = _without(document, path.split("."))
    return document


def _strange(version: str, kind: str) -> tuple[str, ...]:
    other = "v2alpha1" if version == "v2" else "v2"
    if kind == "nodes":
        return _ONLY_NODE[other]
    return _ONLY[other] + tuple(f"tpu.nodeSpec[].node.{path}" for path in _ONLY_NODE[other])


def _holders(document: Json, path: str) -> Iterator[tuple[Json, str]]:
    """(each object that may hold the last field of the path, where it stands)."""
    head, _, rest = path.partition(".")
    if not rest:
        yield document, ""
        return
    name = head.removesuffix("[]")
    inner = document.get(name)
    items = enumerate(inner) if head != name and isinstance(inner, list) else [(None, inner)]
    for index, item in items:
        if isinstance(item, dict):
            here = _snake(name) + ("" if index is None else f"[{index}]")
            for holder, at in _holders(item, rest):
                yield holder, f"{here}.{at}" if at else here


def _without(document: Json, path: list[str]) -> Json:
    name = path[0].removesuffix("[]")
    if name not in document:
        return document
    if len(path) == 1:
        return {key: value for key, value in document.items() if key != name}
    inner = document[name]
    if isinstance(inner, list):
        return document | {name: [_without(item, path[1:]) for item in inner]}
    return document | {name: _without(inner, path[1:])} if isinstance(inner, dict) else document


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
