from __future__ import annotations

from dataclasses import replace

import pytest

from tpuctl.base.ids import Epoch, SliceName, Zone
from tpuctl.store.database import Store
from tpuctl.store.errors import LeaseTakenError, SliceHeldError
from tpuctl.store.records import Intent, PassRecord, Phase, ZoneHold
from tpuctl.testing.builders import EPOCH, POOL, a_run, an_incarnation
from tpuctl.testing.clock import START


def test_every_field_of_an_incarnation_comes_back(store: Store) -> None:
    row = an_incarnation(
        intent=Intent.SENT,
        phase=Phase.SUSPECT,
        joined=1,
        unseen_since=START,
        suspect_since=START.plus(0.25),
        suspect_passes=2,
        error_text="ümlaut 'quoted'",
    )
    with store.transaction() as tx:
        tx.put_incarnation(an_incarnation())
        tx.put_incarnation(row)

    with store.snapshot() as tx:
        assert tx.incarnation(row.name) == row


def test_incarnations_are_told_apart_by_whether_they_live_and_exist(store: Store) -> None:
    rows = [an_incarnation(slot, phase=phase) for slot, phase in enumerate(Phase)]
    with store.transaction() as tx:
        for row in rows:
            tx.put_incarnation(row)

    with store.snapshot() as tx:
        assert {row.phase for row in tx.existing_incarnations()} == set(Phase) - {Phase.GONE}
        assert {row.phase for row in tx.living_incarnations()} == {p for p in Phase if not p.is_over}
        assert tx.incarnations_of(SliceName("v4-3")) == (rows[3],)


def test_of_what_is_gone_only_the_newest_of_each_slot_are_read(store: Store) -> None:
    with store.transaction() as tx:
        for n in range(1, 6):
            tx.put_incarnation(an_incarnation(0, n, phase=Phase.GONE, since=START.plus(n)))
        tx.put_incarnation(an_incarnation(0, 6, since=START.plus(6)))
        tx.put_incarnation(an_incarnation(1, 1, phase=Phase.GONE))

    with store.snapshot() as tx:
        assert [(row.slot, row.n) for row in tx.recent_incarnations(2)] == [(1, 1), (0, 4), (0, 5), (0, 6)]


def test_the_last_number_of_a_slot_counts_what_is_gone_but_not_other_epochs(store: Store) -> None:
    with store.transaction() as tx:
        tx.put_incarnation(an_incarnation(0, 4, phase=Phase.GONE))
        tx.put_incarnation(an_incarnation(0, 2))
        tx.put_incarnation(an_incarnation(0, 9, epoch=Epoch("t6m8ga")))

    with store.snapshot() as tx:
        assert tx.last_numbers(EPOCH) == {(POOL, 0): 4}


def test_a_leased_slice_is_not_barred(store: Store) -> None:
    row = an_incarnation()
    with store.transaction() as tx:
        tx.put_incarnation(row)
        tx.put_run(a_run())
        tx.take_leases(a_run().id, 1, [(row.slice_name, row.name)], START)

    with pytest.raises(SliceHeldError, match="digits-1"), store.transaction() as tx:
        tx.bar_slice(replace(row, delete_request_id="d", delete_reason="scale-down"))

    with store.snapshot() as tx:
        assert tx.incarnation(row.name) == row


def test_a_lost_slice_is_barred_although_a_lease_holds_it(store: Store) -> None:
    row = an_incarnation()
    with store.transaction() as tx:
        tx.put_incarnation(row)
        tx.put_run(a_run())
        tx.take_leases(a_run().id, 1, [(row.slice_name, row.name)], START)
        tx.bar_slice(replace(row, phase=Phase.LOST, delete_request_id="d"))

    with store.snapshot() as tx:
        barred = tx.incarnation(row.name)
    assert barred is not None
    assert (barred.phase, barred.delete_request_id) == (Phase.LOST, "d")


def test_a_barred_slice_is_not_leased(store: Store) -> None:
    row = an_incarnation()
    with store.transaction() as tx:
        tx.bar_slice(replace(row, delete_request_id="d"))
        with pytest.raises(LeaseTakenError, match="being deleted"):
            tx.take_leases(a_run().id, 1, [(row.slice_name, row.name)], START)


def test_a_hold_is_replaced_by_a_newer_one_and_ends_with_a_create(store: Store) -> None:
    hold = ZoneHold(Zone("z"), "v4-16", "quota-full", START, "limit 64")
    with store.transaction() as tx:
        tx.put_zone_hold(hold)
        tx.put_zone_hold(replace(hold, until=START.plus(60)))
        assert tx.zone_holds() == (replace(hold, until=START.plus(60)),)
        tx.clear_zone_holds(hold.zone, hold.accelerator)
        assert tx.zone_holds() == ()


def test_the_last_pass_is_the_newest(store: Store) -> None:
    with store.transaction() as tx:
        assert tx.last_pass() is None
        tx.add_pass(PassRecord(START, START.plus(1), 0, "first"))
        tx.add_pass(PassRecord(START.plus(60), START.plus(61), 3, "second"))

    with store.snapshot() as tx:
        assert tx.last_pass() == PassRecord(START.plus(60), START.plus(61), 3, "second")
