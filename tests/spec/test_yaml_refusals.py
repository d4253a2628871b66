"""What no spec may contain, whatever its keys: told with its place, all at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tpuctl.base.errors import UserError
from tpuctl.spec.cluster import ClusterSpec
from tpuctl.spec.errors import Problem, SpecError
from tpuctl.spec.run import RunSpec
from tpuctl.spec.tree import MAX_BYTES
from tpuctl.spec.yaml import load_cluster, load_run, parse_cluster, parse_run

GOOD = """\
version: 1
cluster: lab
project: my-project
head: {zone: us-central1-a}
grant: {chips: {us-central2-b/v4/spot: 64}}
pools:
  - name: v4
    accelerator: v4-32
    zones: [us-central2-b]
    slices: 2
"""


def refusal(text: str) -> str:
    """What is said of a cluster spec that must be refused, without the heading."""
    with pytest.raises(SpecError) as caught:
        parse_cluster(text, "tpuctl.yaml")
    assert caught.value.exit_code == 2
    assert str(caught.value).splitlines()[1:51] == list(caught.value.lines[:50])
    return "\n".join(caught.value.lines)


def test_good_spec_is_read_and_says_what_it_means() -> None:
    spec = parse_cluster(GOOD, "tpuctl.yaml")

    assert (spec.cluster, spec.project, spec.backend) == ("lab", "my-project", "gcp")
    assert spec.pools[0].accelerators == ("v4-32",)


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    text = GOOD.replace("lab", "LAB").replace("us-central1-a", "moon").replace("v4-32", "v4-33")

    assert refusal(text).splitlines() == [
        "tpuctl.yaml:2:10: cluster 'LAB': use small letters, digits and dashes, a letter first and no dash last",
        "tpuctl.yaml:4:14: head.zone is 'moon'; a zone looks like us-central2-b",
        "tpuctl.yaml:8:18: unknown accelerator type 'v4-33' (nearest: v4-32, v4-64)",
    ]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("accelerator: v4-32", "acelerator: v4-32", "8:5: unknown key 'acelerator' (nearest: 'accelerator')"),
        ("slices: 2", "slice: 4", "10:5: unknown key 'slice' (nearest: 'slices')"),
        ("slices: 2", "count: 4", "10:5: unknown key 'count' (nearest: 'slices')"),
        ("slices: 2", "slices: 2\n    Spot: true", "11:5: unknown key 'Spot' (nearest: 'tier')"),
        ("project: my-project", "project: my-project\nzzz: 1", "4:1: unknown key 'zzz' (known here: version, cluster,"),
    ],
)
def test_misspelt_key_is_named_with_its_nearest(old: str, new: str, told: str) -> None:  # A23
    assert f"tpuctl.yaml:{told}" in refusal(GOOD.replace(old, new))


def test_key_that_is_there_twice_is_refused_with_both_lines() -> None:  # A20
    text = GOOD.replace("    slices: 2\n", "    slices: 2\n    zones: [europe-west4-a]\n")

    assert refusal(text) == "tpuctl.yaml:11:5: duplicate key 'zones', first on line 9; remove one of the two"


def test_second_block_of_the_same_name_is_refused() -> None:  # A20
    text = GOOD + "pools:\n  - {name: b, accelerator: v4-8, zones: [us-central2-b], slices: 0}\n"

    assert refusal(text) == "tpuctl.yaml:11:1: duplicate key 'pools', first on line 6; remove one of the two"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "1:1: the file is empty"),
        ("# only a comment\n", "1:1: the file is empty"),
        ("---\n", "1:1: the file is empty"),
        ("- a\n- b\n", "1:1: expected keys and values ('cluster: lab'), found a list"),
        ("just words", "1:1: expected keys and values ('cluster: lab'), found the text 'just words'"),
        (
            "cluster: lab\n\tproject: x\n",
            "not YAML: found character '\\t' that cannot start any token; indent with spaces",
        ),
        ("cluster: [lab\n", "not YAML: expected ',' or ']'"),
        ("cluster: a: b\n", "1:11: not YAML: mapping values are not allowed here; a text with ': ' in it needs quotes"),
        ('cluster: "lab\n', "not YAML: found unexpected end of stream"),
        ("cluster: l\x00b\n", "1:11: the character U+0000 may not stand in YAML; remove it"),
        ('cluster: "\\UFFFFFFFF"\n', "not YAML:"),
        ('cluster: "\\ud800"\n', "1:10: half of a character"),
        ("%YAML 1" + "0" * 5000 + ".1\n---\ncluster: lab\n", "not YAML:"),
        ("cluster: lab\n---\ncluster: lab\n", "2:1: a second document begins here"),
        ("[a]: b\n", "1:1: a key must be a plain word"),
        ("cluster: !!python/object/apply:os.system ['true']\n", "1:10: tag '!!python/object/apply:os.system'"),
        ("cluster: !!str lab\n", "1:10: tag '!!str': tags are not read"),
        ("cluster: &a lab\n", "1:10: anchor '&a': anchors and aliases are not read"),
        ("cluster: &a lab\nproject: *a\n", "2:10: alias '*a': anchors and aliases are not read; write it out"),
        ("head:\n  <<: {zone: x}\n", "2:3: merge key '<<'"),
        ("a: " + "[" * 50 + "]" * 50, "1:23: nested deeper than 20 levels"),
        ("a: " + "[" * 100_000, "nested deeper than 20 levels"),
        ("a: " + "x" * MAX_BYTES, "1:1: longer than 256 KiB"),
    ],
    ids=lambda value: repr(value[:24]),
)
def test_text_that_is_no_spec_is_refused_with_its_place(text: str, told: str) -> None:
    assert told in refusal(text)


def test_file_full_of_problems_does_not_fill_the_terminal() -> None:
    with pytest.raises(SpecError) as caught:
        parse_cluster("".join(f"k{number}: 1\n" for number in range(200)), "x.yaml")

    assert len(caught.value.problems) > 200
    assert len(str(caught.value).splitlines()) == 52
    assert str(caught.value).splitlines()[-1] == f"… and {len(caught.value.problems) - 50} more"


def test_aliases_that_would_grow_without_bound_cost_nothing() -> None:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]

    assert "anchors and aliases are not read" in refusal("\n".join(lines))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"cluster: lab\nproject: caf\xe9\n", "x.yaml:2:13: not UTF-8 text: byte 0xe9; save the file as UTF-8"),
        ("cluster: lab\n".encode("utf-16"), "x.yaml:1:1: not UTF-8 text: byte 0xff"),
        (b"\xc3\xa9\xff", "x.yaml:1:2: not UTF-8"),
    ],
)
def test_file_that_is_not_utf8_is_refused_with_its_place(data: bytes, told: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(data)

    with pytest.raises(SpecError) as caught:
        load_cluster(file)
    assert caught.value.lines[0].endswith(told.partition("x.yaml")[2]) or told in caught.value.lines[0]


def test_mark_of_utf8_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())

    assert load_cluster(file) == parse_cluster(GOOD, "x")


def test_huge_file_is_refused_without_being_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    with file.open("wb") as out:
        out.truncate(1 << 40)  # sparse: a terabyte of zeros

    with pytest.raises(SpecError, match="longer than 256 KiB"):
        load_cluster(file)


def test_missing_file_and_directory_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no spec"):
        load_run(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="cannot read the spec"):
        load_cluster(tmp_path)


def outcome(
    parse: Callable[[str, str], ClusterSpec | RunSpec], text: str
) -> ClusterSpec | RunSpec | tuple[Problem, ...]:
    try:
        return parse(text, "any.yaml")
    except SpecError as error:
        return error.problems


PIECES = (
    "cluster: lab\n", "pools:\n", "  - name: v4\n", "head: {zone: us-central1-a}\n", "command: x\n", "name: a\n", "- ",
    ": ", "{", "}", "[", "]", "\n", "  ", "\t", "#", "&a ", "*a", "!!str ", "|\n", ">\n", '"', "'", "?", "<<: ",
    "---\n", "...\n", "%YAML 1.1\n", "env: {A: 0123}\n", "slices: ", "1e99", "0x1F", "2026-12-01", "~", "no", "\ufeff",
    "\\", "é", "grant: none\n", "grant: {until: 2026-02-30, chips: {a/b/c: 1}}\n", "use: [{pool: v4}]\n",
    "storage: {us: gs://x}\n",
)  # fmt: skip


@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
@example("a: !<tag:yaml.org,2002:%ff> b")
@example('"\\xff": 1')
@example("? [a\n: b")
def test_any_text_is_a_spec_or_refused_and_never_crashes(text: str) -> None:
    for parse in (parse_cluster, parse_run):
        found = outcome(parse, text)
        if isinstance(found, tuple):
            assert found
            assert all(problem.line >= 1 and problem.column >= 1 for problem in found)


LINES = GOOD.splitlines(keepends=True)


@given(st.data())
def test_spec_with_any_line_lost_doubled_or_spoilt_never_crashes(data: st.DataObject) -> None:
    lines = list(LINES)
    at = data.draw(st.integers(0, len(lines) - 1))
    key, colon, _ = lines[at].partition(":")
    lines[at] = data.draw(
        st.sampled_from(["", lines[at] * 2, f"{key}{colon} []\n", f"{key}{colon} {{}}\n", f"{key}{colon}\n", "- x\n"])
        | st.text(max_size=12).map(lambda value: f"{key}{colon} {value}\n")
    )
    text = "".join(lines)
    found = outcome(parse_cluster, text)
    if isinstance(found, tuple):
        assert all(1 <= problem.line <= text.count("\n") + 2 for problem in found)
