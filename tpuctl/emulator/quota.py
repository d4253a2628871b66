"""Quotas: what each project may hold, in the service's own units, metrics and words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tpuctl.emulator.accelerators import Accelerator
from tpuctl.emulator.scenario_limits import QuotaRule
from tpuctl.emulator.wire import Json, ServiceError


@dataclass(frozen=True, slots=True)
class Use:
    """Chips that a request holds, or asks for."""

    project: str
    zone: str
    accelerator: Accelerator
    chips: int
    tier: str  # spot, on-demand or reserved

    @property
    def region(self) -> str:
        return self.zone.rsplit("-", 1)[0]

    @property
    def units(self) -> int:
        """TensorCores of v2 to v4 and v5p; a chip of v5e and v6e is one core."""
        return self.chips * self.accelerator.generation.cores_per_chip


@dataclass(frozen=True, slots=True)
class Exceeded:
    metric: str
    limit: int
    place: str  # `zone us-central2-b` or `region us-central2`


class Quotas:
    """A request counts against its zone's limit and against its region's; what no rule names has no limit.

    Of several rules for one place and kind the last holds, and one that names the zone stands above `*`.
    """

    def __init__(self, rules: Sequence[QuotaRule], default_chips: int | None) -> None:
        self._rules = list(rules)
        self._default_chips = default_chips

    def set(self, rule: QuotaRule) -> None:
        """From now on. A rule without a number takes the limit away."""
        same = (rule.place, rule.generation, rule.tier)
        self._rules = [r for r in self._rules if (r.place, r.generation, r.tier) != same]
        self._rules.append(rule)

    def exceeded(self, uses: Iterable[Use], wanted: Use) -> list[Exceeded]:
        """The limits that the request would break: the zone's before the region's."""
        kin = [use for use in uses if _counts_with(use, wanted)]
        metric = wanted.accelerator.quota_metric(wanted.tier)
        found = []
        for scope, place, limit in (
            ("Zone", f"zone {wanted.zone}", self._zone_limit(wanted)),
            ("Region", f"region {wanted.region}", self._limit(wanted, f"region {wanted.region}")),
        ):
            held = sum(use.units for use in kin if scope == "Region" or use.zone == wanted.zone)
            if limit is not None and held + wanted.units > limit:
                found.append(Exceeded(f"{metric}PerProjectPer{scope}ForTPUAPI", limit, place))
        return found

    def table(self, uses: Iterable[Use]) -> list[Json]:
        """For people: each rule with what is held under it, of all projects together."""
        held = tuple(uses)
        return [
            {
                "place": rule.place,
                "generation": rule.generation,
                "tier": rule.tier,
                "limit": _units(rule),
                "used": sum(use.units for use in held if _is_under(rule, use)),
            }
            for rule in self._rules
        ]

    def _zone_limit(self, wanted: Use) -> int | None:
        for place in (f"zone {wanted.zone}", "zone *"):
            for rule in reversed(self._rules):
                if _is_for(rule, wanted) and rule.place == place:
                    return _in_units(rule, wanted)
        cores = wanted.accelerator.generation.cores_per_chip
        return None if self._default_chips is None else self._default_chips * cores

    def _limit(self, wanted: Use, place: str) -> int | None:
        for rule in reversed(self._rules):
            if _is_for(rule, wanted) and rule.place == place:
                return _in_units(rule, wanted)
        return None


def refusal(exceeded: Sequence[Exceeded]) -> ServiceError:
    """As a create call answers at once."""
    texts = [
        f"Quota limit '{each.metric}' has been exceeded. Limit: {each.limit} in {each.place}." for each in exceeded
    ]
    return ServiceError("RESOURCE_EXHAUSTED", ", ".join(texts))


def late_refusal(exceeded: Sequence[Exceeded]) -> ServiceError:
    """As an operation, or a FAILED queued resource, tells it afterwards."""
    texts = [f"Quota '{each.metric}' exhausted. Limit {each.limit} in {each.place}" for each in exceeded]
    violations = [{"subject": each.place, "description": text} for each, text in zip(exceeded, texts, strict=True)]
    details = ({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations},)
    return ServiceError("RESOURCE_EXHAUSTED", ", ".join(texts), details=details)


def _counts_with(use: Use, wanted: Use) -> bool:
    same = (use.project, use.region, use.tier) == (wanted.project, wanted.region, wanted.tier)
    return same and use.accelerator.quota_class == wanted.accelerator.quota_class


def _is_for(rule: QuotaRule, use: Use) -> bool:
    return (rule.generation, rule.tier) == (use.accelerator.quota_class, use.tier)


def _is_under(rule: QuotaRule, use: Use) -> bool:
    return _is_for(rule, use) and (rule.region == use.region if rule.region else rule.zone in ("*", use.zone))


def _in_units(rule: QuotaRule, use: Use) -> int | None:
    return rule.limit if rule.chips is None else rule.chips * use.accelerator.generation.cores_per_chip


def _units(rule: QuotaRule) -> int | None:
    cores = 1 if rule.generation.startswith(("v5e", "v6e")) else 2
    return rule.limit if rule.chips is None else rule.chips * cores
