from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tpuctl.hosts.ports import BLOCK, NoPortsError, PortClaim, RayPorts, claim_block


@pytest.fixture
def room() -> Iterator[tuple[int, int]]:
    """Three blocks in which nothing of this machine listens, found below the range that Ray's own nodes use."""
    for start in range(11000, 19000, 3 * BLOCK):
        claims: list[PortClaim] = []
        try:
            claims = [claim_block((start + n * BLOCK, start + (n + 1) * BLOCK)) for n in range(3)]
        except NoPortsError:
            continue
        finally:
            for claim in claims:
                claim.release()
        yield start, start + 3 * BLOCK
        return
    pytest.fail("no three free blocks of ports")


def test_each_claim_gets_a_block_of_its_own_and_gives_it_back(room: tuple[int, int]) -> None:
    first, second = claim_block(room), claim_block(room)
    assert (first.ports.first, second.ports.first) == (room[0], room[0] + BLOCK)

    first.release()
    again = claim_block(room)

    assert again.ports.first == room[0]
    again.release()
    second.release()


def test_a_block_in_which_somebody_listens_is_passed_over(room: tuple[int, int]) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", room[0] + 42))
        stranger.listen()

        claim = claim_block(room)

    assert claim.ports.first == room[0] + BLOCK
    claim.release()


def test_a_range_that_is_full_says_so(room: tuple[int, int]) -> None:
    claims = [claim_block(room) for _ in range(3)]

    with pytest.raises(NoPortsError, match=f"{room[0]}"):
        claim_block(room)

    for claim in claims:
        claim.release()


def test_no_two_ports_of_a_block_are_the_same_and_all_lie_inside() -> None:
    ports = RayPorts(20000)
    named = [value for name in dir(RayPorts) if isinstance(value := getattr(ports, name), int) and name != "first"]
    first_worker, last_worker = ports.workers
    every = [*named, *range(first_worker, last_worker + 1)]

    assert len(named) == 9
    assert len(set(every)) == len(every)
    assert set(every) <= set(range(20000, 20099))
