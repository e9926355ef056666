"""Unpack members of zip and tar archives, trusting neither their names nor their sizes.

Nothing is written before the whole list of members has been looked at. Refused are archives with a member
whose name leads out of a folder (`..`, absolute, a drive, a backslash), with links or devices, with two wanted
members for one place, and those whose wanted members claim more than `MOST_RATIO` times the archive's own size.
Members are written one by one under a temporary name; a member that is shorter or other than the archive says
never gets its name.
"""

import fnmatch
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Self

from reftables.errors import DataError, preview, shown
from reftables.names import unsafe

MOST_RATIO = 100  # annotation files shrink to a tenth, images not at all
MOST_MEMBERS = 500_000  # COCO's images are 123,000
MOST_HEADER = 64 * 1024  # bytes of a tar's long name or of its further attributes, which are read into memory
ALWAYS_ALLOWED = 1024 * 1024  # bytes, so that tiny archives of zeros are no bombs
CHUNK = 1024 * 1024

# What the readers raise for damaged, encrypted or unknown content.
_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError)


@dataclass(frozen=True, slots=True)
class Member:
    """A file inside an archive."""

    name: str
    size: int
    crc32: int | None  # of zips
    open: Callable[[], IO[bytes]]


def unpack(archive: Path, plan: Mapping[str, str]) -> list[Path]:
    """Write the members that `plan` names, to the files or into the folders it says; the paths written.

    A key of `plan` is a member's name or a pattern with `*`; its value a file, or a folder with its slash,
    below which members keep their whole path. DataError for an archive that is not to be trusted or lacks a
    member.
    """
    with _opened(archive) as opened:
        with _damage(archive):
            members = list(_members(archive, opened))
        chosen = [pair for pattern, target in plan.items() for pair in _choose(archive, members, pattern, target)]
        chosen = _without_clashes(archive, chosen)
        _refuse_bomb(archive, [member for member, _ in chosen])
        place = {id(member): position for position, member in enumerate(members)}
        for member, target in sorted(chosen, key=lambda pair: place[id(pair[0])]):  # a tar is read in one direction
            if not _is_there(target, member):
                _extract(archive, member, target)
    return [target for _, target in chosen]


@contextmanager
def _damage(archive: Path, member: str = "") -> Iterator[None]:
    try:
        yield
    except _DAMAGED as error:
        where = f"{archive}: {member}" if member else f"{archive}"
        why = " ".join(str(error).split())
        raise DataError(f"{where}: not a sound archive, or the disk failed: {why}. Get the archive anew.") from error


@contextmanager
def _opened(archive: Path) -> Iterator[zipfile.ZipFile | tarfile.TarFile]:
    with _damage(archive):
        opened = zipfile.ZipFile(archive) if zipfile.is_zipfile(archive) else _open_tar(archive)
    with opened:
        yield opened


class _HostileEntry(tarfile.TarError):
    """No `ReadError`, after which `tarfile` would try the other compressions."""


class _BoundedTarInfo(tarfile.TarInfo):
    """An entry of a tar; `tarfile` itself would read headers of any size into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        entry = super().frombuf(buf, encoding, errors)
        if not entry.isfile() and entry.size > MOST_HEADER:
            raise _HostileEntry(f"an entry has a header of {entry.size:,} bytes, more than {MOST_HEADER:,}")
        if entry.type == tarfile.GNUTYPE_SPARSE:
            raise _HostileEntry(f"the entry {shown(entry.name)} is sparse; its map may be of any size")
        return entry


def _open_tar(archive: Path) -> tarfile.TarFile:
    return tarfile.TarFile.open(archive, tarinfo=_BoundedTarInfo)


def _members(archive: Path, opened: zipfile.ZipFile | tarfile.TarFile) -> Iterator[Member]:
    """The files of an archive, in its order; DataError for a name or a kind of member that is not to be trusted."""
    listed = _zip_members(archive, opened) if isinstance(opened, zipfile.ZipFile) else _tar_members(archive, opened)
    for number, member in enumerate(listed, start=1):
        if number > MOST_MEMBERS:
            raise DataError(f"{archive}: more than {MOST_MEMBERS:,} members. Nothing was unpacked.")
        yield member


def _zip_members(archive: Path, opened: zipfile.ZipFile) -> Iterator[Member]:
    for entry in opened.infolist():
        kind = stat.S_IFMT(entry.external_attr >> 16)
        plain = kind in {0, stat.S_IFREG, stat.S_IFDIR}
        name = _checked_name(archive, entry.filename, plain=plain, is_folder=entry.is_dir())
        if not entry.is_dir():
            yield Member(name, entry.file_size, entry.CRC, partial(opened.open, entry))


def _tar_members(archive: Path, opened: tarfile.TarFile) -> Iterator[Member]:
    for item in opened:
        name = _checked_name(archive, item.name, plain=item.isfile() or item.isdir(), is_folder=item.isdir())
        if item.isfile():
            yield Member(name, item.size, None, partial(_tar_stream, opened, item))


def _tar_stream(opened: tarfile.TarFile, item: tarfile.TarInfo) -> IO[bytes]:
    stream = opened.extractfile(item)
    if stream is None:
        raise tarfile.TarError(f"{item.name} has no content")
    return stream


def _checked_name(archive: Path, name: str, *, plain: bool, is_folder: bool) -> str:
    """The name that a member is unpacked by: without the `./` that tar is fond of, and then to be trusted."""
    final = name.removeprefix("./")
    if is_folder:
        final = final.removesuffix("/")
    is_top = is_folder and final in {"", "."}
    why = (None if is_top else unsafe(final)) or (None if plain else "is a link or a device")
    if why is not None:
        raise DataError(f"{archive}: the member {shown(name)} {why}. Nothing was unpacked; do not trust this archive.")
    return final


def _choose(archive: Path, members: Sequence[Member], pattern: str, target: str) -> list[tuple[Member, Path]]:
    found = [member for member in members if fnmatch.fnmatchcase(member.name, pattern)]
    if not found:
        names = preview(member.name for member in members)
        raise DataError(f"{archive}: no member is named {pattern}; it has {names or 'none'}")
    if target.endswith("/"):
        return [(member, _below(archive, target, member)) for member in found]
    if len(found) > 1:
        names = preview(member.name for member in found)
        raise DataError(f"{archive}: {len(found):,} members are named {pattern}, for the one file {target}: {names}")
    return [(found[0], Path(target))]


def _below(archive: Path, folder: str, member: Member) -> Path:
    """Where a member goes, which is below `folder` whatever its name: a link in there is the user's own."""
    target = Path(folder) / member.name
    if not Path(os.path.normpath(target)).is_relative_to(os.path.normpath(folder)):
        raise DataError(f"{archive}: the member {shown(member.name)} leads out of {folder}. Nothing was unpacked.")
    return target


def _without_clashes(archive: Path, chosen: Sequence[tuple[Member, Path]]) -> list[tuple[Member, Path]]:
    """`chosen`, exact copies once; DataError where one place is to be two files, or a file and a folder."""
    by_target: dict[Path, Member] = {}
    for member, target in chosen:
        other = by_target.setdefault(target, member)
        copied = member.crc32 is not None and (member.size, member.crc32) == (other.size, other.crc32)
        if member is not other and not copied:
            raise DataError(f"{archive}: two members are named {shown(member.name)}. Nothing was unpacked.")
    folders = {folder for target in by_target for folder in target.parents}
    if clashing := [member.name for target, member in by_target.items() if target in folders]:
        raise DataError(f"{archive}: {preview(clashing)} is a file and a folder at once. Nothing was unpacked.")
    return [(member, target) for target, member in by_target.items()]


def _refuse_bomb(archive: Path, members: Sequence[Member]) -> None:
    claimed, packed = sum(member.size for member in members), archive.stat().st_size
    if claimed > max(ALWAYS_ALLOWED, MOST_RATIO * packed):
        raise DataError(
            f"{archive}: {packed:,} bytes that claim to hold {claimed:,}, more than {MOST_RATIO} times as much. "
            "Nothing was unpacked; do not trust this archive."
        )


def _is_there(target: Path, member: Member) -> bool:
    """Whether an earlier run has unpacked a member of a zip already."""
    if member.crc32 is None or not target.is_file() or target.stat().st_size != member.size:
        return False
    crc32 = 0
    with target.open("rb") as file:
        while chunk := file.read(CHUNK):
            crc32 = zlib.crc32(chunk, crc32)
    return crc32 == member.crc32


def _extract(archive: Path, member: Member, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.part")
    try:
        with _damage(archive, member.name), member.open() as source, temporary.open("wb") as file:
            while chunk := source.read(CHUNK):
                file.write(chunk)
            file.flush()
            if member.crc32 is None:  # a zip's members are recognised by their content, so they need no sync
                os.fsync(file.fileno())
        if (size := temporary.stat().st_size) != member.size:
            raise DataError(f"{archive}: {member.name}: {size:,} bytes, its entry says {member.size:,}")
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
