"""The cluster spec: what each key takes and what is refused by name."""

from __future__ import annotations

import pytest

from tpuctl.base.units import Instant
from tpuctl.spec.cluster import ClusterSpec, GrantEntry
from tpuctl.spec.errors import GrantOverError, SpecError
from tpuctl.spec.pool import DeadlineSpec, fixed
from tpuctl.spec.yaml import check_grant, parse_cluster

BASE = {
    "version": "1",
    "cluster": "lab",
    "project": "my-project",
    "head": "{zone: us-central1-a}",
    "grant": "{until: 2026-12-30, chips: {us-central2-b/v4/spot: 64, us-central1-a/v5e/spot: 64}}",
    "pools": "[{name: v4, accelerator: v4-32, zones: [us-central2-b], slices: 2}]",
}


def text_with(**changes: str | None) -> str:
    values = BASE | changes
    return "".join(f"{key}: {value}\n" for key, value in values.items() if value is not None)


def read(**changes: str | None) -> ClusterSpec:
    return parse_cluster(text_with(**changes), "tpuctl.yaml")


def told(**changes: str | None) -> str:
    with pytest.raises(SpecError) as caught:
        read(**changes)
    return "\n".join(problem.text for problem in caught.value.problems)


def pool(**changes: str) -> str:
    values = {"name": "v4", "accelerator": "v4-32", "zones": "[us-central2-b]", "slices": "2"} | changes
    return "{" + ", ".join(f"{key}: {value}" for key, value in values.items()) + "}"


def test_alias_and_usual_runtime_are_filled_in() -> None:
    spec = read(pools=f"[{pool(name='e', accelerator='v5e-16', zones='[us-central1-a]')}]")

    assert spec.pools[0].accelerators == ("v5litepod-16",)
    assert spec.pools[0].runtime_of(spec.pools[0].places[0].accelerator) == "v2-alpha-tpuv5-lite"
    assert spec.pools[0].tier == "spot"


def test_deadlines_take_durations_and_none() -> None:
    spec = read(pools=f"[{pool(deadlines='{queue: 3h, provision: none, boot: 90s}')}]")

    assert spec.pools[0].deadlines == DeadlineSpec(queue_s=10800.0, provision_s=None, boot_s=90.0, join_s=600.0)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("90", "needs a unit: 90s, 90m or 90h?"),
        ("1_000", "needs a unit"),
        ("ten minutes", "must be a duration like 90s"),
        ("0s", "would give up at once"),
        ("0.001ms", "'0.001ms' would give up at once; write a time from 1s, or none"),
        ("[1h]", "must be a text, not a list"),
        ("null", "quote this"),
        ("99999999d", "longer than a century"),
    ],
)
def test_deadline_that_is_no_duration_is_refused(value: str, hint: str) -> None:
    assert hint in told(pools=f"[{pool(deadlines=f'{{boot: {value}}}')}]")


def test_grant_is_read_with_its_last_day_whole() -> None:
    grant = read().grant

    assert grant is not None
    assert grant.until == Instant.parse("2026-12-31T00:00:00Z")
    assert grant.entries[1] == GrantEntry(zone="us-central1-a", generation="v5e", tier="spot", chips=64)  # type: ignore[arg-type]


def test_grant_is_over_after_its_last_day_and_not_before() -> None:
    check_grant(read(), Instant.parse("2026-12-30T23:59:59Z"))
    check_grant(read(grant="none"), Instant.parse("2099-01-01T00:00:00Z"))

    with pytest.raises(GrantOverError, match=r"ended with 2026-12-30 \(UTC\)") as caught:
        check_grant(read(), Instant.parse("2026-12-31T00:00:00Z"))
    assert caught.value.exit_code == 2


def test_grant_is_wanted_on_the_cloud_and_may_be_none() -> None:
    assert "missing key 'grant'" in told(grant=None)
    assert read(grant="none").grant is None
    assert read(grant=None, backend="emulator").grant is None


@pytest.mark.parametrize(
    ("grant", "hint"),
    [
        ("{chips: {us-central2-b/v4/spot: 31}}", "asks for 2 x v4-32 = 32 chips"),
        ("{chips: {us-central1-a/v5e/spot: 64}}", "outside the grant: us-central2-b/v4/spot is not granted"),
        ("{chips: {us-central2-b/v4/on-demand: 64}}", "outside the grant"),
        ("{chips: {us-central2-b/v4: 64}}", "must be zone/generation/tier"),
        ("{chips: {us-central2/v4/spot: 64}}", "'us-central2' is no zone"),
        ("{chips: {us-central2-b/v9/spot: 64}}", "generation 'v9' is none of v2"),
        ("{chips: {us-central2-b/v4/cheap: 64}}", "tier 'cheap' is none of spot"),
        ("{chips: {us-central2-b/v4/spot: 0}}", "it must be between 1 and"),
        ("{until: 2026-02-30, chips: {us-central2-b/v4/spot: 64}}", "must be a day like 2026-12-30, not '2026-02-30'"),
        ("{until: soon, chips: {us-central2-b/v4/spot: 64}}", "must be a day like"),
        ("{until: 2026-12-30}", "missing key 'grant.chips'"),
        ("{chips: {us-central1-a/v5e/spot: 1, us-central1-a/v5litepod/spot: 2}}", "is there twice"),
        ("all", "must be a mapping"),
    ],
)
def test_grant_that_does_not_hold_is_refused(grant: str, hint: str) -> None:
    pools = f"[{pool()}, {pool(name='b', slices='1')}]"
    assert hint in told(grant=grant, pools=pools)


def test_pools_of_one_grant_are_counted_together() -> None:
    grant = "{chips: {us-central2-b/v4/spot: 48}}"
    first, second = pool(), pool(name="b", slices="2")

    assert read(grant=grant, pools=f"[{first}, {pool(name='b', slices='1')}]").pools[1].slices == fixed(1)
    assert told(grant=grant, pools=f"[{first}, {second}]") == (
        "pool 'b' asks for 2 x v4-32 = 32 chips, with the pools above 64, of 48 granted in us-central2-b/v4/spot; "
        "lower slices"
    )


def test_v6e_with_the_general_image_is_refused_with_the_usual_one() -> None:  # A17
    v6e = pool(accelerator="v6e-8", runtime="tpu-ubuntu2204-base", zones="[us-east5-b]")

    assert "silently computes on the CPU; write 'v2-alpha-tpuv6e'" in told(grant="none", pools=f"[{v6e}]")
    assert read(pools=f"[{pool(runtime='tpu-ubuntu2204-base')}]").pools[0].runtime == "tpu-ubuntu2204-base"


@pytest.mark.parametrize(
    ("key", "value"),
    [("software", "{python: '3.11'}"), ("hosts", "{disk: 100GB}"), ("egress", "{}")],
)
def test_key_of_later_work_is_refused_by_name(key: str, value: str) -> None:
    assert told(**{key: value}).startswith(f"'{key}' is not there yet")


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"zones": "[us-central2-b, us-east5-b]"}, "outside the grant: us-east5-b/v4/spot is not granted"),
        ({"zones": "[us-central2-b, us-central2-b]"}, "this is there twice; remove one of the two"),
        ({"accelerator": "[v4-32, v5e-16]"}, "pool 'v4' is outside the grant: us-central2-b/v5e/spot is not granted"),
        ({"accelerator": "[v4-32, v4-33]"}, "unknown accelerator type 'v4-33'"),
        ({"accelerator": "[]"}, "write at least one type"),
        (
            {"accelerator": "[v4-32, v5e-16]", "runtime": "tpu-ubuntu2204-base"},
            "cannot be right for v4 and v5e at once",
        ),
        ({"tier": "on-demand"}, "outside the grant: us-central2-b/v4/on-demand is not granted"),
        ({"tier": "cheap"}, "must be spot or on-demand or reserved"),
        ({"reservation": "r1"}, "this pool's tier is spot; write 'tier: reserved'"),
        ({"slices": "{min: 3, max: 2}"}, "slices.max (2) is less than min (3); raise it"),
        ({"slices": "{min: 1}"}, "missing key 'max' (a number, or grant)"),
        ({"slices": "{max: all}"}, "must be a whole number, not 'all'"),
        ({"slices": "{most: 2, max: 3}"}, "unknown key 'most' (known here: min, max)"),
        ({"idle": "2h"}, "this pool has always 2; write 'slices: {min: 0, max: 2}', or 'idle: never'"),
        ({"idle": "2", "slices": "{min: 0, max: 2}"}, "needs a unit: 2s, 2m or 2h?"),
        ({"valid": "{after: tomorrow}"}, "must be a time like 2026-12-05T08:00:00Z, not 'tomorrow'"),
        ({"valid": "{after: 2026-12-05T08:00:00Z, until: 2026-12-05T07:00:00Z}"}, "is not after pool.valid.after"),
        ({"valid": "{until: 0s}"}, "would give up at once"),
        ({"labels": "{Team: a}"}, "label 'Team': small letters"),
        ({"labels": "{tpuctl-pool: a}"}, "names that begin with tpuctl are ours"),
        ({"metadata": "{startup-script: x}"}, "metadata 'startup-script' is ours"),
        ({"data_disks": "[{disk: data, mode: read-write}]"}, "can only read a data disk; write read-only"),
        ({"data_disks": "[{mode: read-only}]"}, "missing key 'pool.data_disks.disk'"),
        ({"zones": "us-central2-b"}, "pool.zones must be a list, not 'us-central2-b'"),
        ({"zones": "[]"}, "write at least one zone"),
        ({"zones": "[us-central2]"}, "'us-central2' is no zone"),
        ({"slices": "-1"}, "it must be between 0 and 1000"),
        ({"slices": "0644"}, "without leading zero"),
        ({"slices": "1_000"}, "in plain digits"),
        ({"slices": '"2"'}, "write 2 without quotes"),
        ({"slices": "two"}, "must be a whole number, not 'two'"),
        ({"slices": "yes"}, "must be a whole number, not 'yes'"),
        ({"name": "a" * 17}, "has 17 characters, at most 16 fit"),
        ({"name": "Big"}, "use small letters"),
        ({"name": "no"}, 'YAML takes no for a truth value; quote this: "no"'),
        ({"runtime": "2204"}, "quote this"),
    ],
)
def test_pool_value_that_cannot_be_is_refused(changes: dict[str, str], hint: str) -> None:
    assert hint in told(pools=f"[{pool(**changes)}]")


def test_a_pool_may_have_several_places_and_a_changing_number_of_slices() -> None:
    grant = "{chips: {us-central2-b/v4/spot: 64, us-central1-a/v5e/spot: 32, europe-west4-b/v5e/spot: 48}}"
    made = pool(
        accelerator="[v4-32, v5e-16]", zones="[us-central2-b, us-central1-a]", slices="{min: 1, max: grant}", idle="30m"
    )
    spec = read(grant=grant, pools=f"[{made}]")

    found = spec.pools[0]
    assert [str(place) for place in found.places] == [
        "v4-32 in us-central2-b",
        "v4-32 in us-central1-a",
        "v5litepod-16 in us-central2-b",
        "v5litepod-16 in us-central1-a",
    ]
    assert (str(found.slices), found.idle_s) == ("1 to what the grant has", 1800.0)
    # 64 chips are four slices of v4-32 (16 chips), 32 chips two of v5e-16; the third entry is in no zone of the pool.
    assert spec.most_slices(found) == 6


def test_what_the_api_has_beside_type_and_zone_is_read() -> None:
    spec = read(
        grant="{chips: {us-central2-b/v4/reserved: 64}}",
        pools=f"""[{
            pool(
                tier="reserved",
                reservation="team-a",
                labels="{team: a, cost: 007}",
                metadata="{note: yes}",
                data_disks="[{disk: images}]",
                valid="{after: 2026-12-05T08:00:00Z, until: 6h}",
            )
        }]""",
    )

    (found,) = spec.pools
    assert (found.tier, found.reservation) == ("reserved", "team-a")
    assert (found.labels, found.metadata) == ((("team", "a"), ("cost", "007")), (("note", "yes"),))
    assert [(disk.disk, disk.mode) for disk in found.data_disks] == [("images", "read-only")]
    assert (found.valid.after, found.valid.until_s) == (Instant.parse("2026-12-05T08:00:00Z"), 21600.0)


def test_who_is_told_and_after_which_silence_all_is_given_back() -> None:
    spec = read(notify="{command: ./tell.sh, webhook: 'https://chat.example/hook?key=1'}", ttl="3d")

    assert (spec.notify.command, spec.notify.webhook) == ("./tell.sh", "https://chat.example/hook?key=1")
    assert spec.ttl_s == 3 * 86400
    assert "write a URL like" in told(notify="{webhook: chat}")
    assert "needs a unit" in told(ttl="3")


def test_max_grant_needs_a_grant() -> None:
    assert "max is the grant, and there is none; write a number" in told(
        grant="none", pools=f"[{pool(slices='{max: grant}')}]"
    )


def test_pools_that_share_several_entries_are_counted_together() -> None:
    grant = "{chips: {us-central2-b/v4/spot: 32, us-east1-d/v4/spot: 32}}"
    zones = "[us-central2-b, us-east1-d]"
    both, one = pool(zones=zones, slices="3"), pool(name="b", slices="1")

    assert read(grant=grant, pools=f"[{both}, {one}]").pools
    assert "with the pools above 80, of 64 granted in us-central2-b/v4/spot and us-east1-d/v4/spot" in told(
        grant=grant, pools=f"[{one}, {pool(name='c', zones=zones, slices='4')}]"
    )


def test_idle_never_may_be_written() -> None:
    assert read(pools=f"[{pool(idle='never')}]") == read()


def test_two_pools_of_one_name_are_refused_with_the_first_ones_line() -> None:
    assert "a second pool 'v4', first on line 6" in told(pools=f"[{pool(slices='1')}, {pool(slices='1')}]")


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"cluster": "a" * 17}, "has 17 characters, at most 16 fit"),
        ({"cluster": None}, "missing key 'cluster'"),
        ({"pools": None}, "missing key 'pools'"),
        ({"head": "{}"}, "missing key 'head.zone'"),
        ({"head": "us-central1-a"}, "head must be a mapping"),
        ({"head": "{zone: us-central1-a, reach: magic}"}, "it must be auto or direct or ssh or iap"),
        ({"project": "0123"}, 'YAML takes 0123 for a number; quote this: "0123"'),
        ({"project": ""}, "project has no value"),
        ({"project": "My Project"}, "a project id is of small letters"),
        ({"version": "2"}, "this tpuctl reads version 1"),
        ({"version": "one"}, "must be a whole number"),
        ({"backend": "aws"}, "it must be gcp or emulator"),
        ({"endpoints": "{tpu: localhost}"}, "write a root like"),
        ({"network": "{external_ips: no}"}, "must be true or false, without quotes, not 'no'"),
        ({"network": '{external_ips: "false"}'}, "not the quoted text 'false'"),
        ({"network": "{tags: [Bad_Tag]}"}, "network tag 'Bad_Tag'"),
        ({"storage": "{us: file:///tmp/x}"}, "a directory is for backend emulator only"),
        ({"storage": "{us: s3://x}"}, "write gs://BUCKET"),
        ({"storage": "{us: gs://a-b, europe: gs://c-d}"}, "a second region 'europe' is not there yet"),
        ({"storage": "{US: gs://a-b}"}, "'US' is no region"),
        ({"storage": "gs://a-b"}, "storage must be a mapping"),
        ({"detection": "{hold: 5s}"}, "a silent host goes unnoticed for 6s"),
        ({"detection": "{hold: 60s, rejoin: 30s}"}, "is shorter than hold (60s)"),
        ({"pools": "{}"}, "pools must be a list"),
        ({"pools": "[v4]"}, "a pool must be a mapping"),
    ],
)
def test_value_that_cannot_be_is_refused(changes: dict[str, str | None], hint: str) -> None:
    assert hint in told(**changes)


def test_directory_as_storage_is_for_the_emulator_and_loses_its_last_slash() -> None:
    spec = read(backend="emulator", storage='{us: "file:///srv/with blank/"}')

    assert spec.storage == (("us", "file:///srv/with blank"),)


def test_longest_allowed_names_still_make_queued_resources() -> None:
    cluster, name = "c" * 16, "p" * 16

    spec = read(cluster=cluster, grant="none", pools=f"[{pool(name=name, slices='1000')}]")

    assert len(f"{spec.cluster}-{spec.pools[0].name}-999-zzzzzz-999999") <= 63


def test_flags_and_lists_are_read() -> None:
    spec = read(network="{external_ips: false, tags: [ssh, tpu-vm], network: lab, subnetwork: lab-us}")

    assert (spec.network.external_ips, spec.network.tags) == (False, ("ssh", "tpu-vm"))
