"""What all models of what users write have in common."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from tpuctl.base.ids import is_plain_name
from tpuctl.base.units import Instant

Tier = Literal["spot", "on-demand", "reserved"]


def _instant(value: Any) -> Any:
    return Instant.parse(value) if isinstance(value, str) else value


# In JSON an instant is RFC 3339 text, as everywhere in our documents.
When = Annotated[Instant, BeforeValidator(_instant), PlainSerializer(Instant.iso, return_type=str)]


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, populate_by_name=True)


def plain(limit: int) -> AfterValidator:
    """Names become parts of file names, labels and resource names: a document from elsewhere is held to them too."""

    def check(name: str) -> str:
        if not is_plain_name(name, limit):
            raise ValueError(f"{name!r} is no plain name of at most {limit} letters, digits and dashes")
        return name

    return AfterValidator(check)
