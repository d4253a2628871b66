"""Logs are bytes, whatever they are; completeness is told, never guessed."""

from __future__ import annotations

from pathlib import Path

from tpuctl.agent.logs import read_chunk

WILD = b"\xe2\x96\x88 10%\r\x81\x00" * 100  # a progress bar, a lone continuation byte, a NUL


def test_bytes_arrive_as_written_however_they_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(WILD)

    got, offset, complete = b"", 0, False
    while not complete:
        chunk = read_chunk(path, offset, 7, finished=True)
        got, offset, complete = got + chunk.data, chunk.next_offset, chunk.complete

    assert got == WILD


def test_log_of_an_open_attempt_is_never_complete(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"so far")

    chunk = read_chunk(path, 0, 100, finished=False)

    assert (chunk.data, chunk.next_offset, chunk.complete) == (b"so far", 6, False)


def test_log_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    assert read_chunk(tmp_path / "0.log", 0, 100, finished=False).complete is False
    assert read_chunk(tmp_path / "0.log", 0, 100, finished=True).complete is True


def test_offset_beyond_the_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"abc")

    chunk = read_chunk(path, 10, 100, finished=False)

    assert (chunk.data, chunk.complete) == (b"", False)
