"""What the services of one emulated cloud share: time, chance, events for machines, operations and the history."""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tpuctl.base.units import Instant
from tpuctl.emulator.addresses import IN_PROCESS_NETWORK, Addresses, Network
from tpuctl.emulator.compute_records import DiskRecord
from tpuctl.emulator.events import VmEvent
from tpuctl.emulator.scenario import Override, Settings, Span, Unreachable
from tpuctl.emulator.timeline import Timeline
from tpuctl.emulator.wire import Json

KEPT = 200_000  # calls and transitions remembered


@dataclass(frozen=True, slots=True)
class Transition:
    """A resource changed its state. `state` is GONE when it ended."""

    at: Instant
    resource: str  # full name
    state: str
    why: str
    labels: Mapping[str, str]

    def document(self) -> Json:
        return {
            "at": self.at.iso(),
            "resource": self.resource,
            "state": self.state,
            "why": self.why,
            "labels": dict(self.labels),
        }


@dataclass(slots=True)
class Shown:
    """An override in force."""

    rule: Override
    until: Instant | None


@dataclass
class World:
    settings: Settings
    seed: int
    network: Network = IN_PROCESS_NETWORK
    started: Instant | None = None
    timeline: Timeline = field(default_factory=Timeline)
    events: list[VmEvent] = field(default_factory=list)
    history: deque[Transition] = field(default_factory=lambda: deque(maxlen=KEPT))
    overrides: list[Shown] = field(default_factory=list)
    vm_names: set[str] = field(default_factory=set)
    disks: dict[tuple[str, str, str], DiskRecord] = field(default_factory=dict)  # by project, zone, name

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.addresses = Addresses(self.network)
        self.unreachable: list[Unreachable] = list(self.settings.unreachable)
        # A dice cup of its own: a latency that becomes a range changes nothing else of a seeded history.
        self._delays = random.Random(f"latencies {self.seed}")
        self._numbers = self.chance.getrandbits(40)

    def number(self) -> int:
        """A unique id as the services give them: large, growing, the same for the same seed."""
        self._numbers += self.chance.randrange(1, 1 << 16)
        return (1 << 60) + self._numbers

    def event_id(self) -> str:
        """The `[EID: 0x…]` at the end of the service's messages."""
        return f"[EID: 0x{self.chance.getrandbits(64):016x}]"

    def vm_name(self, wanted: str, zone: str) -> str:
        """Node ids are unique in a zone, VM names in the whole emulator."""
        name = wanted if wanted not in self.vm_names else f"{wanted}-{zone}"
        while name in self.vm_names:
            name += "-x"
        self.vm_names.add(name)
        return name

    def drawn(self, latency: float | Span) -> float:
        """The seconds that it takes this time."""
        return self._delays.uniform(latency.low, latency.high) if isinstance(latency, Span) else latency

    def age(self, now: Instant) -> float:
        """Seconds since the emulator started."""
        return 0.0 if self.started is None else now.since(self.started)

    def out_of_sight(self, now: Instant) -> tuple[str, ...]:
        """Zones that lists cannot read now."""
        age_s = self.age(now)
        return tuple(sorted({rule.zone for rule in self.unreachable if rule.holds(age_s)}))

    def note(self, at: Instant, resource: str, state: str, why: str, labels: Mapping[str, str]) -> None:
        self.history.append(Transition(at, resource, state, why, dict(labels)))

    def later(self, now: Instant, seconds: float, action: Callable[[Instant], None]) -> None:
        self.timeline.at(now.plus(seconds), action)

    def shown(self, now: Instant, name: str, document: Json) -> Json | None:
        """The document as overrides want it; None when the resource is to look absent."""
        for override in self.overrides:
            if override.until is not None and override.until <= now:
                continue
            if not name.endswith("/" + override.rule.resource):
                continue
            if override.rule.hidden:
                return None
            document = _overlaid(document, override.rule.fields)
        return document


def _overlaid(document: Json, fields: Json) -> Json:
    """A copy in which the named fields have the given values; `a.b` reaches inside; None removes."""
    found = dict(document)
    for key, value in fields.items():
        head, _, rest = key.partition(".")
        if rest:
            found[head] = _overlaid(found.get(head) or {}, {rest: value})
        elif value is None:
            found.pop(head, None)
        else:
            found[head] = value
    return found


def zone_of(name: str) -> str:
    """The zone in a full resource name."""
    match = re.search(r"/(?:locations|zones)/([^/]+)", name)
    return match[1] if match else ""
