"""Roots of APIs, as spec and environment name them."""

from __future__ import annotations

import pytest

from tpuctl.base.errors import UserError
from tpuctl.cloud.access import scheme_and_host


@pytest.mark.parametrize(
    "endpoint",
    ["", "nonsense", "ftp://h", "http://", "http://:80", "http://h:99999", "http://h:x", "http://[::1", "http://h/v2"],
)
def test_what_is_no_root_is_refused_before_a_call(endpoint: str) -> None:
    with pytest.raises(UserError, match="give a root such as"):
        scheme_and_host(endpoint)


def test_root_is_split() -> None:
    assert scheme_and_host("http://127.0.0.1:8080") == ("http", "127.0.0.1:8080")
