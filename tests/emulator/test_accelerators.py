"""The emulator's own accelerator table, and its address networks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuctl.emulator.accelerators import ACCELERATORS
from tpuctl.emulator.addresses import Addresses, AddressesUsedUpError, Network, lease_network


@pytest.mark.parametrize(
    ("name", "chips", "hosts", "chips_per_host"),
    [
        ("v2-8", 4, 1, 4),
        ("v3-32", 16, 4, 4),
        ("v4-8", 4, 1, 4),
        ("v4-16", 8, 2, 4),
        ("v4-512", 256, 64, 4),
        ("v5litepod-1", 1, 1, 1),
        ("v5litepod-8", 8, 1, 8),
        ("v5litepod-16", 16, 4, 4),
        ("v5p-8", 4, 1, 4),
        ("v5p-128", 64, 16, 4),
        ("v6e-4", 4, 1, 4),
        ("v6e-256", 256, 64, 4),
    ],
)
def test_type_names_mean_chips_and_hosts(name: str, chips: int, hosts: int, chips_per_host: int) -> None:
    accelerator = ACCELERATORS[name]
    assert (accelerator.chips, accelerator.hosts, accelerator.chips_per_host) == (chips, hosts, chips_per_host)


def test_topologies_multiply_to_chips_and_hosts_hold_them_all() -> None:
    assert len(ACCELERATORS) > 50
    for accelerator in ACCELERATORS.values():
        product = 1
        for side in accelerator.topology.split("x"):
            product *= int(side)
        assert product == accelerator.chips == accelerator.hosts * accelerator.chips_per_host


def test_addresses_are_used_in_turn_and_given_back() -> None:
    addresses = Addresses(Network("127.1.2.0/29"))
    first, second = addresses.take(), addresses.take()
    assert (first, second) == ("127.1.2.2", "127.1.2.3")
    addresses.give_back(first)
    rest = [addresses.take() for _ in range(addresses.free)]
    assert rest == ["127.1.2.4", "127.1.2.5", "127.1.2.6", first]
    with pytest.raises(AddressesUsedUpError):
        addresses.take()


def test_two_emulators_never_lease_the_same_network(tmp_path: Path) -> None:
    first, second = lease_network(tmp_path), lease_network(tmp_path)
    assert first.network != second.network
    assert all(lease.network.is_loopback and lease.network.prefixlen == 24 for lease in (first, second))
    wanted = first.network
    first.close()
    third = lease_network(tmp_path)
    assert third.network == wanted
    second.close()
    third.close()
