"""Compute and Secret Manager through googleapiclient, in process and on virtual time."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from googleapiclient import discovery
from googleapiclient.errors import HttpError

from tpuctl.emulator.events import VmReset, VmStart, VmStop
from tpuctl.emulator.scenario import parse_scenario
from tpuctl.testing.clock import FakeClock
from tpuctl.testing.in_process import EmulatedCloud

WHERE = {"project": "lab", "zone": "us-central2-b"}
SECRET = "s3cret-value"


def a_cloud(**scenario: Any) -> EmulatedCloud:
    return EmulatedCloud(FakeClock(), parse_scenario(scenario))


def compute_of(cloud: EmulatedCloud) -> Any:
    options = {"api_endpoint": f"{cloud.ENDPOINT}/compute/v1/"}
    return discovery.build("compute", "v1", http=cloud.http(), static_discovery=True, client_options=options)


def secrets_of(cloud: EmulatedCloud) -> Any:
    options = {"api_endpoint": cloud.ENDPOINT}
    return discovery.build("secretmanager", "v1", http=cloud.http(), static_discovery=True, client_options=options)


def head_body(**more: Any) -> dict[str, Any]:
    return {
        "name": "head",
        "machineType": "zones/us-central2-b/machineTypes/e2-standard-4",
        "labels": {"tpuctl-cluster": "lab"},
        "disks": [
            {"boot": True, "autoDelete": True, "initializeParams": {"diskSizeGb": "100"}},
            {"source": "zones/us-central2-b/disks/data", "deviceName": "tpuctl-data", "autoDelete": False},
        ],
        "networkInterfaces": [{"network": "global/networks/default", "accessConfigs": [{"name": "External NAT"}]}],
        "metadata": {"items": [{"key": "startup-script", "value": "true"}]},
    } | more


def with_head(cloud: EmulatedCloud) -> Any:
    """A running head with its data disk; the service object."""
    compute = compute_of(cloud)
    compute.disks().insert(
        **WHERE, body={"name": "data", "sizeGb": "20", "labels": {"tpuctl-cluster": "lab"}}
    ).execute()
    operation = compute.instances().insert(**WHERE, body=head_body(), requestId="one").execute()
    done = compute.zoneOperations().wait(**WHERE, operation=operation["name"]).execute()
    assert (done["status"], "error" in done) == ("DONE", False)
    return compute


def test_instance_runs_on_its_own_loopback_address_with_its_data_disk() -> None:
    cloud = a_cloud()
    compute = with_head(cloud)

    instance = compute.instances().get(**WHERE, instance="head").execute()

    (start,) = (event.vm for event in cloud.events if isinstance(event, VmStart))
    assert instance["status"] == "RUNNING"
    assert instance["networkInterfaces"][0]["networkIP"] == start.address
    assert start.attributes == {"startup-script": "true"}
    assert start.disks == ("tpuctl-data",)
    assert start.disk_of_device["tpuctl-data"].startswith("data-")
    assert instance["creationTimestamp"].endswith("Z")


def test_waiting_for_an_operation_takes_its_time_and_no_more() -> None:
    cloud = a_cloud(latencies={"instance": 30})
    compute = compute_of(cloud)
    before = cloud.clock.now()
    body = head_body(disks=[{"boot": True, "initializeParams": {}}])
    operation = compute.instances().insert(**WHERE, body=body).execute()
    assert operation["status"] == "RUNNING"

    compute.zoneOperations().wait(**WHERE, operation=operation["name"]).execute()

    assert cloud.clock.now().since(before) == 30


def test_same_request_id_inserts_once_and_another_meets_a_taken_name() -> None:
    cloud = a_cloud()
    compute = with_head(cloud)
    compute.instances().insert(**WHERE, body=head_body(), requestId="one").execute()

    with pytest.raises(HttpError) as caught:
        compute.instances().insert(**WHERE, body=head_body(), requestId="two").execute()

    assert caught.value.resp.status == 409
    assert caught.value.error_details[0]["reason"] == "alreadyExists"
    assert sum(isinstance(event, VmStart) for event in cloud.events) == 1


def test_data_disk_outlives_the_instance_and_the_boot_disk_does_not() -> None:
    cloud = a_cloud()
    compute = with_head(cloud)
    names = [disk["name"] for disk in compute.disks().list(**WHERE).execute()["items"]]
    assert names == ["data", "head"]
    with pytest.raises(HttpError) as caught:
        compute.disks().delete(**WHERE, disk="data").execute()
    assert caught.value.error_details[0]["reason"] == "resourceInUseByAnotherResource"

    compute.instances().delete(**WHERE, instance="head").execute()
    cloud.pass_time(10)

    assert any(isinstance(event, VmStop) for event in cloud.events)
    assert [disk["name"] for disk in compute.disks().list(**WHERE).execute()["items"]] == ["data"]
    with pytest.raises(HttpError) as caught:
        compute.instances().get(**WHERE, instance="head").execute()
    assert (caught.value.resp.status, caught.value.error_details[0]["reason"]) == (404, "notFound")
    compute.disks().delete(**WHERE, disk="data").execute()
    cloud.pass_time(10)
    assert compute.disks().list(**WHERE).execute()["items"] == []


def test_instances_are_found_by_label_in_every_zone() -> None:
    cloud = a_cloud()
    compute = with_head(cloud)

    def found(text: str) -> list[str]:
        items = compute.instances().aggregatedList(project="lab", filter=text).execute()["items"]
        return [instance["name"] for zone in items.values() for instance in zone.get("instances", [])]

    assert found("labels.tpuctl-cluster=lab") == ["head"]
    assert found("labels.tpuctl-cluster=other") == []
    assert found("(labels.tpuctl-cluster=lab) AND (name=head)") == ["head"]
    with pytest.raises(HttpError, match="Invalid list filter"):
        found("labels ~ anything")


def test_vm_may_live_in_a_zone_without_tpus_but_not_in_nonsense() -> None:
    compute = compute_of(a_cloud(zones={"us-central2-b": ["v4"]}))
    assert compute.instances().list(project="lab", zone="us-east1-b").execute()["items"] == []
    with pytest.raises(HttpError) as caught:
        compute.instances().list(project="lab", zone="nowhere").execute()
    assert caught.value.resp.status == 404


def test_reset_keeps_the_disks_and_stop_ends_the_machine_until_start() -> None:
    cloud = a_cloud()
    compute = with_head(cloud)
    cloud.events.clear()

    compute.instances().reset(**WHERE, instance="head").execute()
    cloud.pass_time(5)
    compute.instances().stop(**WHERE, instance="head").execute()
    cloud.pass_time(5)
    assert compute.instances().get(**WHERE, instance="head").execute()["status"] == "TERMINATED"
    compute.instances().start(**WHERE, instance="head").execute()
    cloud.pass_time(5)

    assert [type(event) for event in cloud.events] == [VmReset, VmStop, VmStart]
    assert compute.instances().get(**WHERE, instance="head").execute()["status"] == "RUNNING"


def test_metadata_changes_want_the_newest_fingerprint() -> None:
    compute = with_head(a_cloud())
    metadata = compute.instances().get(**WHERE, instance="head").execute()["metadata"]
    body = {"fingerprint": metadata["fingerprint"], "items": [{"key": "a", "value": "b"}]}
    compute.instances().setMetadata(**WHERE, instance="head", body=body).execute()

    with pytest.raises(HttpError) as caught:
        compute.instances().setMetadata(**WHERE, instance="head", body=body).execute()

    assert (caught.value.resp.status, caught.value.error_details[0]["reason"]) == (412, "conditionNotMet")
    assert compute.instances().get(**WHERE, instance="head").execute()["metadata"]["items"] == body["items"]


def test_zone_without_room_fails_the_operation_and_leaves_nothing() -> None:
    cloud = a_cloud(faults=[{"kind": "fail-later", "method": "POST", "path": "instances$", "error": "no-capacity"}])
    compute = compute_of(cloud)
    body = head_body(disks=[{"boot": True, "autoDelete": True, "initializeParams": {}}])
    operation = compute.instances().insert(**WHERE, body=body).execute()

    done = compute.zoneOperations().wait(**WHERE, operation=operation["name"]).execute()

    assert done["error"]["errors"][0]["code"] == "ZONE_RESOURCE_POOL_EXHAUSTED"
    assert compute.instances().list(**WHERE).execute()["items"] == []
    assert compute.disks().list(**WHERE).execute()["items"] == []


def test_lost_answer_surfaces_as_a_broken_connection_and_hang_as_a_timeout() -> None:
    cloud = a_cloud()
    compute = compute_of(cloud)
    cloud.plant("lost-after", method="POST", path="disks")
    cloud.plant("hang-before", method="GET", path="disks", seconds=1000)
    with pytest.raises(ConnectionResetError):
        compute.disks().insert(**WHERE, body={"name": "data"}).execute()
    before = cloud.clock.now()
    with pytest.raises(TimeoutError):
        compute.disks().get(**WHERE, disk="data").execute()
    assert cloud.clock.now().since(before) == 60
    assert cloud.fired() == 2
    assert compute.disks().get(**WHERE, disk="data").execute()["name"] == "data"


def test_secret_is_written_once_read_and_deleted_and_never_logged() -> None:
    cloud = a_cloud()
    secrets = secrets_of(cloud).projects().secrets()
    body = {"replication": {"automatic": {}}, "labels": {"tpuctl-cluster": "lab"}}
    secrets.create(parent="projects/lab", secretId="token", body=body).execute()
    payload = {"payload": {"data": base64.b64encode(SECRET.encode()).decode()}}
    secrets.addVersion(parent="projects/lab/secrets/token", body=payload).execute()

    with pytest.raises(HttpError) as caught:
        secrets.create(parent="projects/lab", secretId="token", body=body).execute()
    assert caught.value.resp.status == 409
    answer = secrets.versions().access(name="projects/lab/secrets/token/versions/latest").execute()
    assert base64.b64decode(answer["payload"]["data"]).decode() == SECRET
    listed = secrets.list(parent="projects/lab", filter="labels.tpuctl-cluster=lab").execute()
    assert [secret["name"] for secret in listed["secrets"]] == ["projects/lab/secrets/token"]

    secrets.delete(name="projects/lab/secrets/token").execute()
    with pytest.raises(HttpError) as caught:
        secrets.versions().access(name="projects/lab/secrets/token/versions/latest").execute()
    assert caught.value.resp.status == 404
    written = repr(cloud.cloud.calls) + repr(cloud.cloud.history) + repr(cloud.cloud.secrets)
    assert len(cloud.cloud.calls) == 7
    assert SECRET not in written
    assert payload["payload"]["data"] not in written
