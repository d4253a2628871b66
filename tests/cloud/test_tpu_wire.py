"""What a request says on the wire, by Google's own JSON of the message."""

from __future__ import annotations

import json
from typing import Any

from google.cloud import tpu_v2

from tpuctl.base.ids import QrName, Zone
from tpuctl.base.units import Instant
from tpuctl.cloud.model import QrRequest
from tpuctl.cloud.tpu_wire import create_request, queued_resource_of

ZONE = Zone("us-central2-b")
EIGHT, NINE = Instant.parse("2026-12-05T08:00:00Z"), Instant.parse("2026-12-05T09:00:00.500Z")


def sent(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "name": QrName("lab-v4-0-t6m8gb-1"),
        "zone": ZONE,
        "accelerator_type": "v4-16",
        "runtime_version": "tpu-ubuntu2204-base",
        "labels": {"tpuctl-cluster": "lab"},
        "metadata": {"tpuctl-config": "{}"},
    }
    values.update(changes)
    message = create_request("p", QrRequest(**values), "5c7a8f0e-3b1d-4e4b-9a51-6a3f0d2c9b11")
    assert message.request_id == "5c7a8f0e-3b1d-4e4b-9a51-6a3f0d2c9b11"
    document: dict[str, Any] = json.loads(tpu_v2.QueuedResource.to_json(message.queued_resource, indent=None))
    return document


def policy(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in (sent(**changes).get("queueingPolicy") or {}).items() if value}


def test_tiers_are_spot_a_reservation_or_neither() -> None:
    spot, on_demand, reserved = sent(), sent(tier="on-demand"), sent(tier="reserved", reservation="team")

    assert (spot["spot"], spot["reservationName"]) == ({}, "")
    assert "spot" not in on_demand
    assert on_demand["reservationName"] == ""
    assert "spot" not in reserved
    assert reserved["reservationName"] == f"projects/p/locations/{ZONE}/reservations/team"
    assert sent(tier="reserved")["reservationName"] == f"projects/p/locations/{ZONE}/reservations/-"
    elsewhere = "projects/other/locations/us-central2-b/reservations/r"
    assert sent(tier="reserved", reservation=elsewhere)["reservationName"] == elsewhere


def test_window_is_one_constraint_a_start_an_end_or_both() -> None:
    assert policy() == {}
    assert policy(valid_after=EIGHT) == {"validAfterTime": "2026-12-05T08:00:00Z"}
    assert policy(valid_until=NINE) == {"validUntilTime": "2026-12-05T09:00:00.500Z"}
    assert policy(valid_after=EIGHT, valid_until=NINE) == {
        "validInterval": {"startTime": "2026-12-05T08:00:00Z", "endTime": "2026-12-05T09:00:00.500Z"}
    }


def test_disks_are_named_whole_and_may_be_read_only() -> None:
    (spec,) = sent(data_disks=(("images", True), ("projects/x/zones/z/disks/d", False)))["tpu"]["nodeSpec"]

    assert spec["node"]["dataDisks"] == [
        {"sourceDisk": f"projects/p/zones/{ZONE}/disks/images", "mode": tpu_v2.AttachedDisk.DiskMode.READ_ONLY.value},
        {"sourceDisk": "projects/x/zones/z/disks/d", "mode": tpu_v2.AttachedDisk.DiskMode.READ_WRITE.value},
    ]


def test_tier_is_read_back() -> None:
    def tier(**changes: Any) -> str:
        request = QrRequest(QrName("a"), ZONE, "v4-16", "r", {}, {}, **changes)
        return queued_resource_of(tpu_v2.QueuedResource.pb(create_request("p", request, "").queued_resource)).tier

    assert [tier(), tier(tier="on-demand"), tier(tier="reserved")] == ["spot", "on-demand", "reserved"]
