"""The config sections `downloads` and `images`: where files come from, where they go, what they must be."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from reftables.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """One file to fetch, or the user's own copy of it, and what is unpacked from it."""

    name: str
    urls: tuple[str, ...]  # mirrors, in the order in which they are tried; unused where there is a `path`
    path: str | None  # the user's own copy
    to: str
    size: int | None
    sha256: str | None
    md5: str | None
    unpack: Mapping[str, str]  # member, or a pattern of members, to a file or to a folder (with its slash)
    delete_archive: bool
    licence: str
    citation: str | None

    @property
    def targets(self) -> tuple[str, ...]:
        """What others read: the file itself, or what is unpacked from it; folders end in a slash."""
        return tuple(self.unpack.values()) or (self.to,)

    @property
    def digest(self) -> str:
        """The file, in sha256sum's format, with the digests of what was fetched and unpacked."""
        return f"{self.to}.digest"

    @property
    def files(self) -> list[str]:
        """The files a rule declares beside the digests. An archive is none: a rerun removes its outputs first."""
        return [target for target in self.targets if not target.endswith("/")]

    @property
    def outputs(self) -> list[str]:
        """All that a rule declares."""
        return [*self.files, self.digest]

    def known_by(self, digest_of: Callable[[str], str]) -> dict[str, Any]:
        """Target to what it is known by before anything is fetched: pin, content of the own copy, or URLs."""
        source: list[Any]
        if self.sha256 is not None:
            source = ["sha256", self.sha256]
        elif self.md5 is not None:
            source = ["md5", self.md5, self.size]
        elif self.path is not None:
            source = ["sha256", digest_of(self.path)]
        else:
            source = ["url", *self.urls]
        if not self.unpack:
            return {self.to: source}
        return {target: [*source, member] for member, target in self.unpack.items()}


class ImageMode(StrEnum):
    """How the images of a folder get there."""

    SINGLE = "single"  # one by one, as the splits name them
    ZIP = "zip"  # all of them, from an archive among the downloads


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFolder:
    """A folder whose images are fetched when a model opens them."""

    name: str
    folder: str
    urls: tuple[str, ...]  # `{name}` stands for an image's path below the folder
    path: str | None  # the user's own folder of the same layout
    archive: Download | None  # of mode zip
    connections: int
    average_size: int | None  # bytes of an image
    licence: str
    citation: str | None


def read_downloads(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Download]:
    """The entries of `downloads`, checked against each other."""
    downloads = {name: _download(name, entry) for name, entry in entries.items()}
    owners: dict[str, str] = {}
    for download in downloads.values():
        for target in {download.to, *download.targets}:
            if target in owners:
                raise ConfigError(f"downloads.{download.name}: {target} is a target of downloads.{owners[target]}, too")
            owners[target] = download.name
    return downloads


def read_images(entries: Mapping[str, Mapping[str, Any]], downloads: Mapping[str, Download]) -> dict[str, ImageFolder]:
    """The entries of `images`, checked against each other and against the downloads."""
    folders = {name: _image_folder(name, entry, downloads) for name, entry in entries.items()}
    owners: dict[str, str] = {}
    for images in folders.values():
        if images.folder in owners:
            raise ConfigError(f"images.{images.name}.folder: {images.folder} is that of images.{owners[images.folder]}")
        owners[images.folder] = images.name
    return folders


def _download(name: str, entry: Mapping[str, Any]) -> Download:
    key = f"downloads.{name}"
    path = _own_copy(key, entry, folder=False)
    for target in (entry["to"], *entry["unpack"].values()):
        _check_target(key, target)
    if len(set(entry["unpack"].values())) < len(entry["unpack"]):
        raise ConfigError(f"{key}.unpack: two members go to one target")
    if entry["delete_archive"] and not entry["unpack"]:
        raise ConfigError(f"{key}.delete_archive: nothing is unpacked, so nothing would be left")
    return Download(
        name=name,
        urls=() if path else _urls(entry),
        path=path,
        to=entry["to"],
        size=entry.get("size"),
        sha256=entry.get("sha256"),
        md5=entry.get("md5"),
        unpack=dict(entry["unpack"]),
        delete_archive=entry["delete_archive"],
        licence=entry["licence"],
        citation=entry.get("citation"),
    )


def _image_folder(name: str, entry: Mapping[str, Any], downloads: Mapping[str, Download]) -> ImageFolder:
    key = f"images.{name}"
    folder = entry["folder"].rstrip("/")
    _check_target(key, folder)
    path = archive = None
    if entry["mode"] == ImageMode.ZIP:
        archive = _archive(key, folder, entry, downloads)
    else:
        path = _own_copy(key, entry, folder=True)
        if strange := [url for url in _urls(entry) if "{name}" not in url]:
            raise ConfigError(f"{key}.url: {strange[0]} lacks {{name}}, the image's path below the folder")
    return ImageFolder(
        name=name,
        folder=folder,
        urls=() if path or archive else _urls(entry),
        path=path,
        archive=archive,
        connections=entry["connections"],
        average_size=entry.get("average_size"),
        licence=entry["licence"],
        citation=entry.get("citation"),
    )


def _archive(key: str, folder: str, entry: Mapping[str, Any], downloads: Mapping[str, Download]) -> Download:
    if "zip" not in entry:
        raise ConfigError(f"{key}.zip: mode zip needs the name of the archive's entry in downloads")
    if entry["zip"] not in downloads:
        raise ConfigError(f"{key}.zip: {entry['zip']!r} is not in downloads; it has {', '.join(sorted(downloads))}")
    archive = downloads[entry["zip"]]
    if f"{folder}/" not in archive.targets:
        raise ConfigError(f"{key}.zip: downloads.{archive.name}.unpack puts nothing into {folder}/")
    return archive


def _own_copy(key: str, entry: Mapping[str, Any], *, folder: bool) -> str | None:
    """The user's own copy, which goes before every URL: an overlay can add keys, but not take any away."""
    path: str | None = entry.get("path")
    if path is None:
        if not entry.get("url"):
            raise ConfigError(f"{key}: neither a url nor the path of your own copy")
        return None
    if not (Path(path).is_dir() if folder else Path(path).is_file()):
        raise ConfigError(f"{key}.path: there is no {'folder' if folder else 'file'} {path}")
    return path


def _urls(entry: Mapping[str, Any]) -> tuple[str, ...]:
    url = entry.get("url") or ()
    return (url,) if isinstance(url, str) else tuple(url)


def _check_target(key: str, target: str) -> None:
    if ".." in target.split("/"):
        raise ConfigError(f"{key}: {target} leads out of resources/")
