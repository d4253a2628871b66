"""Control verbs about what a project may have and do: quotas, and calls that are refused for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tpuctl.emulator.scenario import QuotaRule, Settings, parse_part
from tpuctl.emulator.service import Service

Document = dict[str, Any]
Verb = Callable[[Document], Document]

_REFUSED = {"apis": "disabled_apis", "permissions": "denied_permissions", "zones": "denied_zones"}


class Limits:
    """One method a verb: a JSON document in, one out. Raises TpuctlError with what is wrong."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._world = service.cloud.world
        self._tpu = service.cloud.tpu

    def verbs(self) -> dict[str, Verb]:
        return {
            "quotas": self.quotas, "set-quota": self.set_quota, "refusals": self.refusals, "refuse": self.refuse,
            "clear-refusals": self.clear_refusals,
        }  # fmt: skip

    def quotas(self, _: Document) -> Document:
        return self._dated({"quotas": self._tpu.quotas.table(self._tpu.life.uses())})

    def set_quota(self, asked: Document) -> Document:
        """A quota rule, as in scenarios: from now on; without a number it takes the limit away."""
        self._tpu.quotas.set(parse_part(QuotaRule, asked, "quota"))
        return self.quotas({})

    def refusals(self, _: Document) -> Document:
        settings = self._world.settings
        return self._dated({key: sorted(getattr(settings, field)) for key, field in _REFUSED.items()})

    def refuse(self, asked: Document) -> Document:
        """{apis?, permissions?, zones?}: lists, added to what is refused already."""
        settings = self._world.settings
        wanted = {
            field: [*getattr(settings, field), *asked.get(key, [])] for key, field in _REFUSED.items() if key in asked
        }
        checked = parse_part(Settings, wanted, "refuse")
        self._put({field: tuple(dict.fromkeys(getattr(checked, field))) for field in wanted})
        return self.refusals({})

    def clear_refusals(self, _: Document) -> Document:
        self._put(dict.fromkeys(_REFUSED.values(), ()))
        return self.refusals({})

    def _put(self, change: Document) -> None:
        self._world.settings = self._world.settings.model_copy(update=change)

    def _dated(self, document: Document) -> Document:
        return {"version": 1, "at": self._service.clock.now().iso(), **document}
