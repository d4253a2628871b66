"""The composition root: the only place that builds clients, clock, chance and store. One builder a command.

Heavy imports (Google's clients, Ray) stand inside the builder that needs them, so that help and status stay quick.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tpuctl.base.chance import Chance, SystemChance
from tpuctl.base.clock import Clock, SystemClock
from tpuctl.cloud.model import ComputeApi, Endpoints, SecretApi, TpuApi
from tpuctl.spec.cluster import ClusterSpec


@dataclass(frozen=True)
class Settings:
    """What the environment and the global options say. Only TPUCTL_* is read."""

    home: Path
    emulator: str  # TPUCTL_EMULATOR: root of all endpoints; "" = none

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], state_dir: Path | None = None) -> Settings:
        home = state_dir or Path(environment.get("TPUCTL_HOME") or Path.home() / ".tpuctl")
        return cls(home.expanduser().absolute(), environment.get("TPUCTL_EMULATOR", "").rstrip("/"))


@dataclass(frozen=True)
class Basis:
    """What nearly every builder starts from."""

    settings: Settings
    clock: Clock
    chance: Chance


def basis(state_dir: Path | None = None) -> Basis:
    return Basis(Settings.from_environment(os.environ, state_dir), SystemClock(), SystemChance())


def endpoints_of(spec: ClusterSpec, settings: Settings) -> Endpoints:
    """TPUCTL_EMULATOR sets all four; else the spec's own, else Google's."""
    if settings.emulator:
        return Endpoints.all_at(settings.emulator)
    google = Endpoints()
    named = spec.endpoints
    return Endpoints(
        (named.tpu or google.tpu).rstrip("/"),
        (named.compute or google.compute).rstrip("/"),
        (named.secretmanager or google.secretmanager).rstrip("/"),
        (named.storage or google.storage).rstrip("/"),
    )


def build_tpu(endpoints: Endpoints, project: str, clock: Clock) -> TpuApi:
    from tpuctl.cloud.tpu import RestTpu

    return RestTpu(endpoints.tpu, project, clock)


def build_compute(endpoints: Endpoints, project: str, clock: Clock) -> ComputeApi:
    from tpuctl.cloud.compute import RestCompute

    return RestCompute(endpoints.compute, project, clock)


def build_secrets(endpoints: Endpoints, project: str) -> SecretApi:
    from tpuctl.cloud.secrets import RestSecrets

    return RestSecrets(endpoints.secretmanager, project)
