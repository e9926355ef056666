"""Manifests: the name, size and crc32 of images, so that a digest costs no reading of the image."""

import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from reftables.errors import DataError, preview, shown
from reftables.files import read_lines, write_atomically
from reftables.names import unsafe

HEADER = "name\tbytes\tcrc32"


def entry(name: str, content: bytes) -> str:
    """The line of one image; `name` is its path relative to the manifest's root."""
    return f"{name}\t{len(content)}\t{zlib.crc32(content):08x}"


def write_manifest(path: str | Path, lines: Iterable[str]) -> None:
    """Write `lines` (of `entry`), sorted by name, below the header."""
    write_atomically(path, "".join(f"{line}\n" for line in [HEADER, *sorted(lines)]))


def read_manifest(path: str | Path) -> dict[str, str]:
    """Name to digest, `bytes-crc32`."""
    header, *lines = read_lines(path) or [""]
    if header != HEADER:
        raise DataError(f"{path}: a manifest begins with {HEADER!r}, this file with {header[:60]!r}. Make it anew.")
    digests = {}
    for number, line in enumerate(lines, start=2):
        try:
            name, size, crc32 = line.split("\t")
        except ValueError as error:
            raise DataError(f"{path}: line {number:,} has not three fields. Make the manifest anew.") from error
        digests[name] = f"{size}-{crc32}"
    return digests


def image_digests(path: str | Path, root: str | Path, images: Iterable[str]) -> dict[str, str]:
    """Image path, as requests name it, to its digest; `root` is the folder the manifest's names are relative to."""
    known = read_manifest(path)
    digests, absent = {}, []
    for image in images:
        try:
            digests[image] = known[Path(image).relative_to(root).as_posix()]
        except (KeyError, ValueError):
            absent.append(image)
    if absent:
        raise DataError(f"{path}: {len(absent):,} images are not in the manifest: {preview(absent)}. Make it anew.")
    return digests


def refuse_strange(root: str | Path, names: Sequence[str]) -> None:
    """DataError for names that lead out of `root`, or that no line can carry."""
    if strange := [f"{shown(name)} ({why})" for name in names if (why := unsafe(name))]:
        raise DataError(f"{root}: no image can have the name {preview(strange)}. Mend the annotations.")


def make_manifest(root: str | Path, names: Sequence[str]) -> list[str]:
    """The lines of the images `names` below `root`; one error names all that are absent."""
    refuse_strange(root, names)
    lines, absent = [], []
    for name in names:
        try:
            lines.append(entry(name, (Path(root) / name).read_bytes()))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            absent.append(name)
    if absent:
        raise DataError(f"{root}: {len(absent):,} images are missing: {preview(absent)}")
    return lines
