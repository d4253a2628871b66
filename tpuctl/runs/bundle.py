"""A working directory as one archive named by its digest: the same tree gives the same bytes on every machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import secrets
import shutil
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pathspec

from tpuctl.base.errors import TpuctlError, UserError

LIMIT_BYTES = 256 * 1024 * 1024
_NO_PATTERN = (ValueError, re.error)  # `!` and `[z-a]`


class BadBundleError(TpuctlError):
    """An archive that is not what its name says, or that would write outside its directory."""


def pack(directory: Path, limit_bytes: int = LIMIT_BYTES) -> tuple[str, bytes]:
    """(sha256 in hex, tar.gz) of a directory. `.git` stays out, and what the `.gitignore` files in the tree exclude.

    Kept of a file: its bytes and whether its owner may execute it; a symbolic link stays one if it points inside.
    Raises UserError for a directory that is missing, too large or not all readable, and for links that lead outside.
    """
    try:
        root = directory.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # the latter for a link that leads to itself, up to Python 3.12
        raise UserError(_no_directory(directory)) from error
    if not root.is_dir():
        raise UserError(_no_directory(directory))
    try:
        return _packed(directory, root, limit_bytes)
    except OSError as error:
        what = f"{error.filename!r} " if error.filename else ""
        raise UserError(
            f"workdir {str(directory)!r} cannot be packed: {what}{error.strerror or error}; "
            "mend that, or name it in .gitignore"
        ) from error


def _no_directory(directory: Path) -> str:
    return f"workdir {str(directory)!r} is not a directory; name one that exists, or leave `workdir` out"


def _packed(directory: Path, root: Path, limit_bytes: int) -> tuple[str, bytes]:
    packed = io.BytesIO()
    # The gzip header's time and name are fixed too; level 6 and one zlib: the digest names content, not an encoding,
    # and two versions of zlib that disagree only ship the same tree twice.
    with (
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=6, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        total = 0
        for path in _files(root):
            total += path.lstat().st_size
            if total > limit_bytes:
                raise UserError(_too_large(directory, root, limit_bytes))
            _add(archive, root, path)
    data = packed.getvalue()
    return hashlib.sha256(data).hexdigest(), data


def unpack(data: bytes, digest: str, into: Path) -> None:
    """Check the archive against its digest and make `into` from it, whole or not at all. There already: nothing to do.

    Raises BadBundleError: wrong digest, not an archive, or a member that leads outside.
    """
    if hashlib.sha256(data).hexdigest() != digest:
        raise BadBundleError(f"bundle {digest[:12]}… arrived damaged ({len(data)} bytes): its sha256 is another")
    if into.exists():
        return
    beside = into.with_name(f".{into.name}.{secrets.token_hex(8)}.tmp")
    beside.mkdir(parents=True)
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            _extract(archive, beside)
    except (tarfile.TarError, OSError, EOFError) as error:
        shutil.rmtree(beside)
        raise BadBundleError(f"bundle {digest[:12]}… cannot be unpacked: {error}") from error
    try:
        beside.rename(into)
    except OSError:
        # Another launcher of this VM was first; its tree has the same digest.
        shutil.rmtree(beside)
        if not into.is_dir():
            raise


def _extract(archive: tarfile.TarFile, into: Path) -> None:
    """Each member by hand: nothing above the directory, no links to the outside, no devices, no owners, no odd modes.

    These are the rules of PEP 706's `data` filter, which Python 3.11 has only from 3.11.4 on, and not every
    distribution's 3.11 is that new.
    """
    links: list[tarfile.TarInfo] = []
    for member in archive:
        place = _inside(into, member.name, member)
        place.parent.mkdir(parents=True, exist_ok=True)
        if member.isdir():
            place.mkdir(exist_ok=True)
        elif member.isreg():
            source = archive.extractfile(member)
            if source is None:
                raise tarfile.ExtractError(f"{member.name!r} has no content")
            with place.open("xb") as file:
                shutil.copyfileobj(source, file)
            place.chmod(0o755 if member.mode & 0o100 else 0o644)
        elif member.issym():
            _inside(into, f"{PurePosixPath(member.name).parent}/{member.linkname}", member)
            links.append(member)
        else:
            raise tarfile.ExtractError(f"{member.name!r} is neither a file nor a directory nor a link")
    # Links come last: no file is ever written through one.
    for member in links:
        (into / member.name).symlink_to(member.linkname)


def _inside(into: Path, name: str, member: tarfile.TarInfo) -> Path:
    """Where that name leads, by its words alone. Raises tarfile.ExtractError when that is not below the directory."""
    place = os.path.normpath(name)
    if name.startswith("/") or member.linkname.startswith("/") or place == ".." or place.startswith("../"):
        raise tarfile.ExtractError(f"{member.name!r} leads outside")
    return into / place


def _files(root: Path) -> Iterator[Path]:
    """Files, links and empty directories below the root that are not ignored, in a fixed order."""
    rules: list[tuple[Path, pathspec.GitIgnoreSpec]] = []
    for here_text, directories, files in os.walk(root, onerror=_refuse):
        here = Path(here_text)
        rules = [(base, spec) for base, spec in rules if here.is_relative_to(base)]
        ignore = here / ".gitignore"
        if ignore.is_file():
            lines = ignore.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
            rules.append((here, _rules(lines)))
        links = [name for name in directories if (here / name).is_symlink()]
        kept = [name for name in directories if name not in links and name != ".git"]
        directories[:] = sorted(name for name in kept if not _is_ignored(here / name, rules, is_directory=True))
        names = [name for name in [*files, *links] if name != ".git" and not _is_ignored(here / name, rules)]
        for name in sorted(names):
            path = here / name
            if path.is_symlink() or path.is_file():  # sockets and pipes are not content
                yield path


def _refuse(error: OSError) -> None:
    """A directory that cannot be read must not be left out without a word."""
    raise error


def _rules(lines: list[str]) -> pathspec.GitIgnoreSpec:
    """Lines that are no patterns exclude nothing, as in git."""
    try:
        return pathspec.GitIgnoreSpec.from_lines(lines)
    except _NO_PATTERN:
        return pathspec.GitIgnoreSpec.from_lines([line for line in lines if _is_pattern(line)])


def _is_pattern(line: str) -> bool:
    try:
        pathspec.GitIgnoreSpec.from_lines([line])
    except _NO_PATTERN:
        return False
    return True


def _is_ignored(path: Path, rules: list[tuple[Path, pathspec.GitIgnoreSpec]], *, is_directory: bool = False) -> bool:
    """The innermost .gitignore that has an opinion decides, as git does."""
    for base, spec in reversed(rules):
        name = path.relative_to(base).as_posix() + ("/" if is_directory else "")
        verdict = spec.check_file(name).include
        if verdict is not None:
            return verdict
    return False


def _add(archive: tarfile.TarFile, root: Path, path: Path) -> None:
    member = tarfile.TarInfo(path.relative_to(root).as_posix())
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        target = path.readlink()
        if target.is_absolute() or not Path(os.path.realpath(path.parent / target)).is_relative_to(root):
            raise UserError(f"{str(path)!r} links to {str(target)!r}, outside the workdir; copy it in, or ignore it")
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, str(target), 0o777
        archive.addfile(member)
        return
    data = path.read_bytes()
    member.mode = 0o755 if found.st_mode & stat.S_IXUSR else 0o644
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def _too_large(directory: Path, root: Path, limit_bytes: int) -> str:
    """With the largest files, because one of them is nearly always the reason."""
    largest = sorted(((path.lstat().st_size, path) for path in _files(root)), reverse=True)[:3]
    listed = ", ".join(f"{path.relative_to(root).as_posix()} ({size / 1e6:.0f} MB)" for size, path in largest)
    return (
        f"workdir {str(directory)!r} is larger than {limit_bytes // 2**20} MiB; largest: {listed}. "
        "List what the program does not need in .gitignore, and keep data in the bucket."
    )
