"""Every recorded refusal has one meaning; the table has no rule that no body reaches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tpuctl.cloud import classify
from tpuctl.cloud.errors import CloudError, TransientError

BODIES = Path(__file__).parent / "bodies"

KINDS = {
    "quota_zero_region_429": "quota-zero",
    "quota_zone_429": "quota-full",
    "quota_two_limits_429": "quota-full",
    "quota_later_8": "quota-full",
    "quota_in_details_8": "quota-zero",
    "quota_in_metadata_429": "quota-full",
    "rate_in_metadata_429": "rate-limited",
    "no_reserved_capacity_8": "no-capacity",
    "act_as_denied_403": "permission",
    "gone_later_5": "not-found",
    "internal_unknown_2": "transient",
    "no_capacity_8": "no-capacity",
    "no_reserved_capacity_9": "no-capacity",
    "rate_limit_429": "rate-limited",
    "exhausted_429": "rate-limited",
    "type_not_in_zone_400": "type-not-in-zone",
    "zone_unsupported_400": "type-not-in-zone",
    "tier_not_offered_400": "type-not-in-zone",
    "flex_start_not_offered_3": "type-not-in-zone",
    "node_preempted_400": "conflict",
    "name_taken_409": "already-exists",
    "not_there_404": "not-found",
    "delete_refused_400": "conflict",
    "update_in_flight_409": "conflict",
    "no_permission_403": "permission",
    "location_policy_403": "location-policy",
    "location_policy_without_reason_403": "location-policy",
    "api_disabled_403": "api-disabled",
    "api_disabled_without_reason_403": "api-disabled",
    "unauthenticated_401": "credentials",
    "internal_500": "transient",
    "unavailable_503": "transient",
    "deadline_504": "transient",
    "internal_later_13": "transient",
    "unimplemented_501": "bad-request",
    "invalid_400": "bad-request",
    "compute_exists_409": "already-exists",
    "compute_missing_404": "not-found",
    "compute_quota_403": "quota-full",
    "compute_quota_zero_403": "quota-zero",
    "compute_rate_403": "rate-limited",
    "compute_forbidden_403": "permission",
    "compute_api_off_403": "api-disabled",
    "compute_not_ready_400": "conflict",
    "compute_in_use_400": "conflict",
    "compute_condition_412": "conflict",
    "compute_backend_503": "transient",
    "compute_invalid_400": "bad-request",
    "compute_op_exhausted": "no-capacity",
    "compute_op_quota": "quota-full",
    "compute_op_rate": "rate-limited",
    "compute_op_not_ready": "conflict",
    "compute_op_exists": "already-exists",
}


def recorded(name: str) -> CloudError:
    document: dict[str, Any] = json.loads((BODIES / f"{name}.json").read_text())
    if "operation" in document:
        return classify.from_status(document["operation"], "create 'a-0'")
    if "compute_operation" in document:
        error = classify.from_compute_operation(document["compute_operation"], "insert 'head'")
        assert error is not None
        return error
    return classify.from_http(document["status"], json.dumps(document["body"]), "create 'a-0'")


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_recorded_body_has_its_one_meaning(name: str, kind: str) -> None:
    error = recorded(name)

    assert error.kind == kind
    assert error.detail


def test_every_recorded_body_is_in_the_table_and_every_kind_has_one() -> None:
    kinds = {kind.kind for kind in CloudError.__subclasses__()}

    assert {path.stem for path in BODIES.glob("*.json")} == set(KINDS)
    assert kinds == set(KINDS.values())
    assert len(kinds) == 14


def test_no_rule_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: set[int] = set()
    for name in KINDS:
        said = capture(name, monkeypatch)
        reached.add(next(index for index, rule in enumerate(classify.RULES) if rule.matches(said)))

    assert reached == set(range(len(classify.RULES)))


def capture(name: str, monkeypatch: pytest.MonkeyPatch) -> classify.Refusal:
    caught: list[classify.Refusal] = []
    original = classify.classify

    def spy(said: classify.Refusal, what: str, caller: classify.Caller = classify.NOBODY) -> CloudError:
        caught.append(said)
        return original(said, what, caller)

    with monkeypatch.context() as patch:
        patch.setattr(classify, "classify", spy)
        recorded(name)
    return caught[0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("quota_zone_429", ("TPUV4sPreemptiblePodPerProjectPerZoneForTPUAPI", "Limit: 64", "us-central2-b", "slices")),
        ("quota_zero_region_429", ("limit is 0", "in us-east5", "grant")),
        ("quota_in_details_8", ("TPUV6EPreemptiblePerProjectPerRegionForTPUAPI", "limit is 0", "in us-east5")),
        ("quota_in_metadata_429", ("TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI", "Limit: 64", "us-west4-a")),
        ("rate_in_metadata_429", ("CreateRequestsPerMinutePerProject", "Limit: 60", "slows down")),
        ("act_as_denied_403", ("Give tpu-runner@lab-1.iam.gserviceaccount.com 'iam.serviceAccounts.actAs'",)),
        ("no_permission_403", ("'tpu.queuedResources.create'", "Give the account")),
        ("compute_forbidden_403", ("'compute.instances.create'", "Give the account")),
        ("api_disabled_403", ("gcloud services enable tpu.googleapis.com",)),
        ("compute_api_off_403", ("gcloud services enable compute.googleapis.com",)),
        ("location_policy_403", ("us-central2-b", "grant")),
        ("unauthenticated_401", ("gcloud auth application-default login",)),
    ],
)
def test_message_says_which_and_what_to_do(name: str, words: tuple[str, ...]) -> None:
    message = str(recorded(name))

    assert message.startswith(("create 'a-0': ", "insert 'head': "))
    assert [word for word in words if word not in message] == []


def test_quotas_are_read_out_of_a_text_with_several() -> None:
    assert classify.quotas_in(recorded("quota_two_limits_429").detail) == (
        "TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI",
        "TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI",
    )


def test_failing_service_leaves_the_effect_unknown() -> None:
    error = recorded("unavailable_503")

    assert isinstance(error, TransientError)
    assert error.effect_unknown


@pytest.mark.parametrize("status", [404, 409, 412])
def test_page_of_a_proxy_is_not_the_services_word_on_existence(status: int) -> None:
    error = classify.from_http(status, "<html>Not Found</html>", "get 'a-0'")

    assert error.kind == "transient"


@pytest.mark.parametrize(("status", "kind"), [(429, "rate-limited"), (401, "credentials"), (502, "transient")])
def test_answer_without_words_is_judged_by_its_status(status: int, kind: str) -> None:
    assert classify.from_http(status, b"", "get 'a-0'").kind == kind


def test_unknown_refusal_is_told_whole_and_does_not_crash() -> None:
    teapot = classify.from_http(418, '{"error": {"message": "short and stout", "status": "TEAPOT"}}', "get 'a-0'")

    assert teapot.kind == "bad-request"
    assert "short and stout" in str(teapot)
    assert "TEAPOT" in str(teapot)


def test_limit_of_sixty_is_not_read_as_zero() -> None:
    text = "Quota limit 'X' has been exceeded. Limit: 0.5 in region r."

    assert classify.from_status({"code": 8, "message": text}, "create").kind == "quota-full"


def test_refused_permission_names_account_and_project_of_the_caller() -> None:
    document = json.loads((BODIES / "no_permission_403.json").read_text())
    caller = classify.Caller("lab-1", "head@lab-1.iam.gserviceaccount.com")

    error = classify.from_http(document["status"], json.dumps(document["body"]), "create 'a-0'", caller)

    cure = "Give head@lab-1.iam.gserviceaccount.com in project lab-1 'tpu.queuedResources.create'."
    assert str(error).endswith(cure)


def test_disabled_api_names_the_command_with_the_project() -> None:
    document = json.loads((BODIES / "api_disabled_403.json").read_text())

    error = classify.from_http(403, json.dumps(document["body"]), "create 'a-0'", classify.Caller("lab-1"))

    assert "'gcloud services enable tpu.googleapis.com --project lab-1'" in str(error)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (
            {"code": 4, "message": "The queued resource could not be provisioned before its valid-until time."},
            "expired",
            "valid-until",
        ),
        ({"code": 9, "message": "QueuedResource was not provisioned before 2026-01-01T00:00:00Z"}, "expired", "2026"),
        ({"code": 8, "message": "Quota 'X' exhausted. Limit 4 in zone z-a"}, "quota-full", "Limit 4 in zone z-a"),
        ({"code": 8, "message": 'There is no more capacity in the zone "z-a"'}, "no-capacity", "z-a"),
        ({"code": 13, "message": "an internal error has occurred"}, "transient", "internal"),
        ({"code": 4, "message": "Deadline expired before operation could complete."}, "transient", "Deadline"),
        ({"code": 0, "message": ""}, "", "gave no reason"),
        (None, "", "gave no reason"),
    ],
)
def test_end_of_a_queued_resource_has_its_kind(error: dict[str, Any] | None, kind: str, words: str) -> None:
    failure = classify.failure_of(error, "queued resource 'a-0'")

    assert failure.kind == kind
    assert failure.words.startswith("queued resource 'a-0': ")
    assert words in failure.words
