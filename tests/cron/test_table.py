"""The block in a crontab: everything outside stays byte for byte, whatever it is."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpuctl.base.errors import UserError
from tpuctl.cron.table import (
    BrokenBlockError,
    Entry,
    block_in,
    check_every,
    entry_line,
    with_block,
    without_block,
)

LINE = entry_line(5, ("/usr/bin/true",))
LINES = st.lists(
    st.one_of(st.binary(max_size=20).map(lambda raw: raw.replace(b"\n", b"")), st.just(b"0 3 * * * backup\r"))
)
TABLES = LINES.map(lambda lines: b"".join(line + b"\n" for line in lines))


@settings(max_examples=40)
@given(TABLES)
def test_install_and_remove_leave_the_table_as_it_was(table: bytes) -> None:
    installed = with_block(table, "lab", LINE)

    assert installed.startswith(table)
    assert block_in(installed, "lab") == Entry(5, "/usr/bin/true")
    assert without_block(installed, "lab") == table


@settings(max_examples=40)
@given(TABLES, TABLES)
def test_a_block_is_replaced_where_it_stands(before: bytes, after: bytes) -> None:
    installed = with_block(before, "lab", LINE) + after

    changed = with_block(installed, "lab", entry_line(1, ("/bin/other",)))

    assert block_in(changed, "lab") == Entry(1, "/bin/other")
    assert changed.startswith(before)
    assert changed.endswith(after)
    assert without_block(changed, "lab") == before + after
    assert with_block(changed, "lab", entry_line(1, ("/bin/other",))) == changed


def test_blocks_of_other_clusters_are_others_also_when_their_names_begin_alike() -> None:
    both = with_block(with_block(b"", "lab-2", LINE), "lab", entry_line(60, ("/bin/other",)))

    assert without_block(both, "lab") == with_block(b"", "lab-2", LINE)
    assert (block_in(both, "lab"), block_in(both, "la")) == (Entry(60, "/bin/other"), None)


def test_a_last_line_without_an_end_gets_one_as_crontab_itself_wants() -> None:
    assert without_block(with_block(b"0 3 * * * backup", "lab", LINE), "lab") == b"0 3 * * * backup\n"


@pytest.mark.parametrize(
    "table",
    [
        b"# >>> tpuctl lab: x\n* * * * * true\n",
        b"# <<< tpuctl lab\n",
        b"# <<< tpuctl lab\n# >>> tpuctl lab: x\n",
        2 * (b"# >>> tpuctl lab: x\n" + LINE + b"# <<< tpuctl lab\n"),
    ],
)
def test_a_block_that_somebody_broke_is_left_alone(table: bytes) -> None:
    with pytest.raises(BrokenBlockError, match="crontab -e"):
        with_block(table, "lab", LINE)
    with pytest.raises(BrokenBlockError, match="crontab -e"):
        without_block(table, "lab")


def test_a_line_that_somebody_edited_is_shown_and_replaced() -> None:
    table = with_block(b"", "lab", b"@hourly mine\n")

    assert block_in(table, "lab") == Entry(0, "@hourly mine")
    assert block_in(with_block(table, "lab", LINE), "lab") == Entry(5, "/usr/bin/true")


@settings(max_examples=40)
@given(st.lists(st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_words_reach_the_shell_as_they_are(words: list[str]) -> None:
    line = entry_line(1, words).decode()

    command = line.removeprefix("* * * * * ").removesuffix("\n")
    assert "%" not in command.replace("\\%", "")  # cron takes a bare one for a line break
    assert shlex.split(command.replace("\\%", "%")) == words


@pytest.mark.parametrize(("every", "minute"), [(1, "*"), (5, "*/5"), (30, "*/30"), (60, "0")])
def test_every_so_many_minutes(every: int, minute: str) -> None:
    assert entry_line(check_every(every), ("x",)) == f"{minute} * * * * x\n".encode()
    assert block_in(with_block(b"", "lab", entry_line(every, ("x",))), "lab") == Entry(every, "x")


@pytest.mark.parametrize("every", [0, 7, 45, 90, -1])
def test_what_does_not_divide_an_hour_is_refused(every: int) -> None:
    with pytest.raises(UserError, match="minutes of an hour"):
        check_every(every)


def test_a_path_with_a_line_break_is_refused() -> None:
    with pytest.raises(UserError, match="line break"):
        entry_line(1, ("/home/a\n* * * * * evil",))
