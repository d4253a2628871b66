"""Each kind of refusal has one row of effects, and the page says what the rows say."""

from __future__ import annotations

from pathlib import Path

from tpuctl.cloud.effects import OF, TABLE, page
from tpuctl.cloud.errors import CloudError

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"


def test_every_kind_has_one_row_and_every_row_a_kind() -> None:
    kinds = [kind.kind for kind in CloudError.__subclasses__()]

    assert sorted(kinds) == sorted(effect.kind for effect in TABLE)
    assert len(OF) == len(TABLE) == 14


def test_the_page_is_made_from_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "renew: python -m tpuctl.cloud.effects docs/errors.md"
