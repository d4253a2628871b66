"""What a type's name means (A18)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl.spec.accelerators import (
    GENERATIONS,
    Accelerator,
    UnknownAcceleratorError,
    accelerator,
    all_accelerators,
    canonical_generation,
)


@pytest.mark.parametrize(
    ("name", "hosts", "chips_per_host"),
    [
        ("v4-8", 1, 4),
        ("v4-16", 2, 4),
        ("v4-32", 4, 4),
        ("v4-2048", 256, 4),
        ("v2-8", 1, 4),
        ("v2-32", 4, 4),
        ("v3-128", 16, 4),
        ("v3-2048", 256, 4),
        ("v5p-8", 1, 4),
        ("v5p-64", 8, 4),
        ("v5p-12288", 1536, 4),
        ("v5litepod-1", 1, 1),
        ("v5litepod-4", 1, 4),
        ("v5litepod-8", 1, 8),
        ("v5litepod-16", 4, 4),
        ("v6e-1", 1, 1),
        ("v6e-8", 1, 8),
        ("v6e-32", 8, 4),
        ("v6e-256", 64, 4),
    ],
)
def test_hosts_and_chips_are_those_of_the_documents(name: str, hosts: int, chips_per_host: int) -> None:
    found = accelerator(name)
    assert (found.hosts, found.chips_per_host) == (hosts, chips_per_host)


@pytest.mark.parametrize(
    ("name", "topology"),
    [
        ("v4-8", "2x2x1"),
        ("v4-64", "2x4x4"),
        ("v4-256", "4x4x8"),
        ("v4-512", "4x8x8"),
        ("v4-4096", "8x16x16"),
        ("v5p-384", "4x4x12"),
        ("v5p-640", "4x4x20"),
        ("v5p-768", "4x8x12"),
        ("v5p-896", "4x4x28"),
        ("v5p-1536", "8x8x12"),
        ("v5p-3072", "8x12x16"),
        ("v5p-6144", "12x16x16"),
        ("v5p-8192", "16x16x16"),
        ("v5p-12288", "16x16x24"),
        ("v5e-32", "4x8"),
        ("v6e-128", "8x16"),
        ("v3-1024", "16x32"),
        ("v2-128", "8x8"),
    ],
)
def test_topology_is_the_documented_default(name: str, topology: str) -> None:
    assert accelerator(name).topology == topology


@pytest.mark.parametrize("each", all_accelerators().values(), ids=lambda each: str(each.name))
def test_every_row_is_consistent_with_itself(each: Accelerator) -> None:
    assert each.hosts * each.chips_per_host == each.chips
    assert math.prod(int(side) for side in each.topology.split("x")) == each.chips
    assert each.generation in GENERATIONS
    assert accelerator(each.name) is each


def test_the_table_has_every_documented_size() -> None:
    sizes = dict.fromkeys(GENERATIONS, 0)
    for each in all_accelerators().values():
        sizes[each.generation] += 1
    # v5p: 4 small ones, and every multiple of 128 cores up to 12288.
    assert sizes == {"v2": 5, "v3": 8, "v4": 10, "v5e": 8, "v5p": 4 + 96, "v6e": 8}


def test_alias_names_the_same_type() -> None:
    assert accelerator("v5e-16") is accelerator("v5litepod-16")
    assert canonical_generation("v5litepod") == canonical_generation("v5e") == "v5e"
    assert canonical_generation("v7") is None


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("v4-24", "v4-16, v4-32"),
        ("V4-32", "v4-32"),
        ("v4_32", "v4-32"),
        ("v5p-100", "v5p-64, v5p-128"),
        ("v6e-2", "v6e-1, v6e-4"),
        ("v5e-24", "v5litepod-16, v5litepod-32"),
        ("v4-0", "v4-8, v4-16"),
        ("tpu", "known: v2-8"),
        ("", "known: v2-8"),
    ],
)
def test_unknown_type_is_an_error_that_names_near_ones(wrong: str, near: str) -> None:
    with pytest.raises(UnknownAcceleratorError, match="unknown accelerator type") as caught:
        accelerator(wrong)
    assert near in str(caught.value)


@given(st.text(max_size=30) | st.from_regex(r"v[2-6][ep]?-[0-9]{1,20}", fullmatch=True))
def test_any_name_is_known_or_refused(name: str) -> None:
    near: tuple[str, ...] = ()
    try:
        near = (accelerator(name).name,)
    except UnknownAcceleratorError as error:
        near = error.near
    assert all(each in all_accelerators() for each in near)
