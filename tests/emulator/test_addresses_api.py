"""Static internal addresses: reserved, used by an instance, listed, and not deleted from under it."""

from __future__ import annotations

from typing import Any

from tpuctl.testing.core_driver import Driver

ADDRESSES = "/compute/v1/projects/lab/regions/us-central1/addresses"
INSTANCES = "/compute/v1/projects/lab/zones/us-central1-a/instances"


def instance(address: str) -> dict[str, Any]:
    return {
        "name": "head",
        "machineType": "zones/us-central1-a/machineTypes/e2-standard-8",
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": {}}],
        "networkInterfaces": [{"network": "global/networks/default", "networkIP": address}],
    }


def test_address_is_in_use_while_its_instance_exists(driver: Driver) -> None:
    assert driver.call("POST", ADDRESSES, {"name": "fixed", "addressType": "INTERNAL"})[0] == 200
    _, reserved = driver.call("GET", f"{ADDRESSES}/fixed")
    assert (reserved["status"], reserved["region"].rsplit("/", 1)[1]) == ("RESERVED", "us-central1")
    assert driver.call("POST", INSTANCES, instance(reserved["address"]))[0] == 200
    driver.pass_time(10)

    _, listed = driver.call("GET", ADDRESSES)
    (used,) = listed["items"]
    assert (used["status"], used["users"][0].rsplit("/", 1)[1]) == ("IN_USE", "head")
    _, head = driver.call("GET", f"{INSTANCES}/head")
    assert head["networkInterfaces"][0]["networkIP"] == reserved["address"]
    status, body = driver.call("DELETE", f"{ADDRESSES}/fixed")
    assert (status, body["error"]["errors"][0]["reason"]) == (400, "resourceInUseByAnotherResource")

    driver.call("DELETE", f"{INSTANCES}/head")
    driver.pass_time(10)
    assert driver.call("DELETE", f"{ADDRESSES}/fixed")[0] == 200
    assert driver.call("GET", ADDRESSES)[1]["items"] == []


def test_named_address_is_given_when_it_is_free(driver: Driver) -> None:
    driver.call("POST", ADDRESSES, {"name": "any"})
    taken = driver.call("GET", f"{ADDRESSES}/any")[1]["address"]
    head, _, last = taken.rpartition(".")
    wanted = f"{head}.{int(last) + 5}"
    assert driver.call("POST", ADDRESSES, {"name": "this", "address": wanted})[0] == 200
    assert driver.call("GET", f"{ADDRESSES}/this")[1]["address"] == wanted
    for bad in (taken, "8.8.8.8", "no address"):
        assert driver.call("POST", ADDRESSES, {"name": "bad", "address": bad})[0] == 400
