"""Specs as JSON: how they are stored, sent and compared. YAML is written by people only and never by tpuctl (A24)."""

from __future__ import annotations

import hashlib
import json
from typing import TypeVar

from pydantic import ValidationError

from tpuctl.spec.cluster import ClusterSpec
from tpuctl.spec.errors import Problem, SpecError
from tpuctl.spec.model import Model
from tpuctl.spec.run import RunSpec

Spec = TypeVar("Spec", bound=Model)


def dump(spec: ClusterSpec | RunSpec) -> str:
    """JSON that `read_cluster` or `read_run` gives back as the same spec."""
    return spec.model_dump_json()


def read_cluster(text: str) -> ClusterSpec:
    """Raises SpecError when the text is no cluster spec of this version."""
    return _read(ClusterSpec, text, "the cluster spec's document")


def read_run(text: str) -> RunSpec:
    """Raises SpecError when the text is no run spec of this version."""
    return _read(RunSpec, text, "the run spec's document")


def digest(spec: ClusterSpec | RunSpec) -> str:
    """The first 16 hex digits of the SHA-256 of the canonical JSON: equal specs, equal digests, whatever their YAML."""
    canonical = json.dumps(spec.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _read(model: type[Spec], text: str, what: str) -> Spec:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        problems = [
            Problem(0, 0, f"{'.'.join(str(part) for part in each['loc']) or 'document'}: {each['msg']}")
            for each in error.errors(include_url=False, include_input=False, include_context=False)
        ]
        raise SpecError(what, problems) from error
