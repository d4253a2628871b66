"""The service's own table of accelerators and zones: what a type means, where it is offered, its quota.

Read from the vendor's pages on its own and deliberately not shared with tpuctl.spec: a misreading in one of the two
tables shows itself as a disagreement between them.
"""

from __future__ import annotations

from dataclasses import dataclass

# Topology by chips. 2D for v2, v3, v5e and v6e; 3D for v4 and v5p.
_GRID_V2 = {4: "2x2", 16: "4x4", 64: "8x8", 128: "8x16", 256: "16x16"}
_GRID_V3 = {
    4: "2x2", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16", 512: "16x32", 1024: "32x32",
}  # fmt: skip
_GRID_LITE = {
    1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16",
}  # fmt: skip
_CUBE_V4 = {
    4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4", 128: "4x4x8", 256: "4x8x8", 512: "8x8x8",
    768: "8x8x12", 1024: "8x8x16", 2048: "8x16x16",
}  # fmt: skip
_CUBE_V5P = _CUBE_V4 | {
    192: "4x4x12", 320: "4x4x20", 384: "4x8x12", 448: "4x4x28", 1536: "8x12x16", 3072: "12x16x16", 4096: "16x16x16",
    6144: "16x16x24",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Generation:
    key: str  # as scenarios and quotas call it
    prefix: str  # of type names
    wire_type: str  # AcceleratorConfig.type
    cores_per_chip: int
    names_count_cores: bool
    grids: dict[int, str]
    metric: str  # the part of the quota metric's name
    runtimes: tuple[str, ...]


_COMMON_RUNTIMES = ("tpu-ubuntu2204-base", "tpu-vm-base")
GENERATIONS: tuple[Generation, ...] = (
    Generation("v2", "v2", "V2", 2, True, _GRID_V2, "V2s", _COMMON_RUNTIMES),
    Generation("v3", "v3", "V3", 2, True, _GRID_V3, "V3s", _COMMON_RUNTIMES),
    Generation("v4", "v4", "V4", 2, True, _CUBE_V4, "V4s", (*_COMMON_RUNTIMES, "v2-alpha-tpuv4")),
    Generation(
        "v5e", "v5litepod", "V5LITE_POD", 1, False, _GRID_LITE, "V5s", (*_COMMON_RUNTIMES, "v2-alpha-tpuv5-lite")
    ),
    Generation("v5p", "v5p", "V5P", 2, True, _CUBE_V5P, "V5P", (*_COMMON_RUNTIMES, "v2-alpha-tpuv5")),
    Generation("v6e", "v6e", "V6E", 1, False, _GRID_LITE, "V6E", (*_COMMON_RUNTIMES, "v2-alpha-tpuv6e")),
)

ZONES: dict[str, tuple[str, ...]] = {
    "asia-east1-c": ("v2",),
    "asia-northeast1-b": ("v6e",),
    "asia-southeast1-b": ("v5e",),
    "europe-west4-a": ("v2", "v3", "v6e"),
    "europe-west4-b": ("v5e", "v5p"),
    "southamerica-west1-a": ("v6e",),
    "us-central1-a": ("v2", "v3", "v5e", "v5p"),
    "us-central1-b": ("v2", "v3", "v6e"),
    "us-central1-c": ("v2",),
    "us-central2-b": ("v4",),
    "us-east1-d": ("v6e",),
    "us-east5-a": ("v5e", "v5p", "v6e"),
    "us-east5-b": ("v5e", "v5p", "v6e"),
    "us-south1-a": ("v5e", "v5p"),
    "us-west1-c": ("v5e", "v6e"),
    "us-west4-a": ("v5e",),
}


# Quota classes and the end that each gives its metric's name; the others have none.
_METRIC_ENDS = {"v2-pod": "Pod", "v3-pod": "Pod", "v4": "Pod", "v5e": "Litepod", "v5e-serving": "LitepodServing"}
QUOTA_CLASSES = ("v2", "v2-pod", "v3", "v3-pod", "v4", "v5e", "v5e-serving", "v5p", "v6e")


@dataclass(frozen=True, slots=True)
class Accelerator:
    name: str
    generation: Generation
    chips: int
    topology: str

    @property
    def hosts(self) -> int:
        """Virtual machines. 4 chips each, except that v5e and v6e sizes up to 8 chips are one machine."""
        if self.generation.key in ("v5e", "v6e") and self.chips <= 8:
            return 1
        return max(1, self.chips // 4)

    @property
    def chips_per_host(self) -> int:
        return self.chips // self.hosts

    @property
    def quota_class(self) -> str:
        """As scenarios name it. Single devices and pods of v2 and v3, and v5e's serving sizes, have quotas apart."""
        key = self.generation.key
        if key in ("v2", "v3") and self.chips > 4:
            return f"{key}-pod"
        return "v5e-serving" if key == "v5e" and self.chips <= 8 else key

    def quota_metric(self, tier: str) -> str:
        """The name without its end, e.g. `TPUV5sPreemptibleLitepodServing`. `tier`: spot, on-demand or reserved."""
        middle = {"spot": "Preemptible", "reserved": "Reserved"}.get(tier, "")
        return f"TPU{self.generation.metric}{middle}{_METRIC_ENDS.get(self.quota_class, '')}"


def _all_types() -> dict[str, Accelerator]:
    found = {}
    for generation in GENERATIONS:
        for chips, topology in generation.grids.items():
            number = chips * generation.cores_per_chip if generation.names_count_cores else chips
            name = f"{generation.prefix}-{number}"
            found[name] = Accelerator(name, generation, chips, topology)
    return found


ACCELERATORS: dict[str, Accelerator] = _all_types()


def generation_of(key: str) -> Generation:
    """Raises KeyError."""
    return {g.key: g for g in GENERATIONS}[key]


def by_topology(wire_type: str, topology: str) -> Accelerator | None:
    """The type that an acceleratorConfig names; None when there is no such size."""
    for accelerator in ACCELERATORS.values():
        if accelerator.generation.wire_type == wire_type and accelerator.topology == topology:
            return accelerator
    return None
