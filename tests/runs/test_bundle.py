"""Working directories as archives."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpuctl.base.errors import UserError
from tpuctl.runs.bundle import BadBundleError, pack, unpack


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def read(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


names = st.lists(st.text("abcé 'x", min_size=1, max_size=5), min_size=1, max_size=3).map("/d".join)


@given(files=st.dictionaries(names, st.binary(max_size=50), max_size=6))
@settings(max_examples=60, deadline=None)
def test_tree_comes_back_as_it_was(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("bundle")
    source = path / "source"
    source.mkdir()
    kept = {name: data for name, data in files.items() if not any(other.startswith(name + "/") for other in files)}
    write(source, kept)

    digest, data = pack(source)
    unpack(data, digest, path / digest)

    assert read(path / digest) == kept


def test_same_tree_gives_the_same_bytes_whatever_its_times_place_and_order(tmp_path: Path) -> None:
    first = write(tmp_path / "first", {"a": b"1", "sub/b": b"2"})
    second = write(tmp_path / "elsewhere/second", {"sub/b": b"2", "a": b"1"})
    os.utime(second / "a", (1, 1))
    (second / "a").chmod(0o600)

    assert pack(first) == pack(second)
    (second / "a").chmod(0o700)
    assert pack(first)[0] != pack(second)[0], "whether a file can be executed is content"


def test_git_and_what_gitignore_names_stay_out(tmp_path: Path) -> None:
    files = {
        ".git/config": b"",
        ".gitignore": b"*.ckpt\n/data/\n!keep.ckpt\n",
        "train.py": b"",
        "x.ckpt": b"",
        "keep.ckpt": b"",
        "data/big": b"",
        "sub/data/small": b"",
        "sub/.gitignore": b"!x.ckpt\nlocal\n",
        "sub/x.ckpt": b"",
        "sub/local": b"",
        "local": b"",
    }
    digest, data = pack(write(tmp_path / "source", files))
    unpack(data, digest, tmp_path / "out")

    gone = {".git/config", "x.ckpt", "data/big", "sub/local"}
    assert set(read(tmp_path / "out")) == set(files) - gone


def test_links_inside_are_kept_and_links_outside_are_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "source", {"real/file": b"1"})
    (source / "link").symlink_to("real/file")
    digest, data = pack(source)
    unpack(data, digest, tmp_path / "out")
    assert (tmp_path / "out/link").readlink() == Path("real/file")

    (source / "escape").symlink_to("../../secret")
    with pytest.raises(UserError, match="outside the workdir"):
        pack(source)


def test_too_large_a_tree_is_refused_with_its_largest_files(tmp_path: Path) -> None:
    source = write(tmp_path / "source", {"small": b"1", "model.bin": b"0" * 2000})

    with pytest.raises(UserError, match=r"model\.bin .*\.gitignore"):
        pack(source, limit_bytes=1000)


def test_directory_that_is_missing_is_a_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a directory"):
        pack(tmp_path / "nowhere")


def an_archive(member: tarfile.TarInfo, data: bytes = b"x") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member.size = len(data) if member.isreg() else 0
        archive.addfile(member, io.BytesIO(data) if member.isreg() else None)
    return packed.getvalue()


@pytest.mark.parametrize("name", ["../escape", "/tmp/tpuctl-escape", "a/../../escape"])
def test_archive_that_leads_outside_is_refused_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    data = an_archive(tarfile.TarInfo(name))
    into = tmp_path / "in"

    with pytest.raises(BadBundleError):
        unpack(data, hashlib.sha256(data).hexdigest(), into / "out")

    assert list(into.iterdir()) == []
    assert not (tmp_path / "escape").exists()


def test_archive_with_a_link_to_the_outside_is_refused(tmp_path: Path) -> None:
    member = tarfile.TarInfo("link")
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    data = an_archive(member)

    with pytest.raises(BadBundleError):
        unpack(data, hashlib.sha256(data).hexdigest(), tmp_path / "out")


def test_damaged_archive_is_refused(tmp_path: Path) -> None:
    digest, data = pack(write(tmp_path / "source", {"a": b"1"}))

    with pytest.raises(BadBundleError, match="damaged"):
        unpack(data[:-1], digest, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_second_unpacking_leaves_the_first_alone(tmp_path: Path) -> None:
    digest, data = pack(write(tmp_path / "source", {"a": b"1"}))
    unpack(data, digest, tmp_path / "out")
    inode = (tmp_path / "out/a").stat().st_ino

    unpack(data, digest, tmp_path / "out")

    assert (tmp_path / "out/a").stat().st_ino == inode


def test_lines_that_are_no_patterns_exclude_nothing(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": b"!\n[z-a]\n*.log\n", "a.py": b"", "a.log": b""})

    _, archive = pack(tmp_path)

    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        assert packed.getnames() == [".gitignore", "a.py"]


def test_link_to_itself_is_shipped_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")

    _, archive = pack(tmp_path)

    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        assert [(member.name, member.linkname) for member in packed] == [("loop", "loop")]
    with pytest.raises(UserError, match="is not a directory"):
        pack(tmp_path / "loop")


@pytest.mark.parametrize("what", ["read_bytes", "lstat"])
def test_file_that_cannot_be_read_is_named(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that vanished while the directory was packed."""
    write(tmp_path, {"a.py": b"", "locked": b""})
    real = getattr(Path, what)

    def guarded(path: Path) -> object:
        if path.name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, what, guarded)

    with pytest.raises(UserError, match=r"cannot be packed: '.*locked' Permission denied"):
        pack(tmp_path)


def test_directory_that_cannot_be_listed_is_not_left_out_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"a.py": b"", "locked/b.py": b""})
    real = os.scandir

    def guarded(path: str) -> object:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", guarded)

    with pytest.raises(UserError, match=r"cannot be packed: '.*locked' Permission denied"):
        pack(tmp_path)
