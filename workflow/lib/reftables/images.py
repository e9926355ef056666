"""Images by need: those that a split names and no others, each fetched once, decoded, and entered in a ledger.

The ledger, `manifest.tsv` in the folder, has the size and crc32 of every image that was ever accepted, so a
later split reads an image and compares, and fetches nothing. It is appended to image by image: whatever ends a
run, the next one goes on. An image that the source replaced since is an error; one that was damaged on the disk
is fetched again, and must be the one in the ledger.
"""

import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import quote

import requests
from PIL import Image
from tqdm import tqdm

from reftables.digests import locked
from reftables.errors import DataError
from reftables.fetch import FetchError, Patience, fetch_bytes, first_that_works, new_session
from reftables.manifest import HEADER, entry, refuse_strange
from reftables.pictures import PictureError, load_picture

LEDGER = "manifest.tsv"
HOPELESS = 10  # failed images after which no further one is tried
_JPEG, _START_OF_SCAN, _END_OF_IMAGE = b"\xff\xd8", b"\xff\xda", b"\xff\xd9"


class Collected(NamedTuple):
    """What the images of a split came to."""

    lines: list[str]  # of its manifest
    fetched: int  # images
    bytes: int  # of those


def collect(
    folder: Path,
    names: Sequence[str],
    *,
    urls: Sequence[str] = (),
    copies: Path | None = None,
    connections: int = 8,
    patience: Patience | None = None,
) -> Collected:
    """Have the images `names` in `folder`, from `urls` (with `{name}`) or linked to the user's own `copies`.

    With neither, they must lie there. DataError tells of those that could not be had; the others are kept.
    """
    refuse_strange(folder, names)
    Image.init()  # before the threads do it, each of them
    interval_s = 0.5 if sys.stderr.isatty() else 15
    with (
        locked(folder / LEDGER),
        Ledger(folder / LEDGER) as ledger,
        new_session(connections) as session,
        ThreadPoolExecutor(connections) as pool,
    ):
        collector = _Collector(folder, ledger, urls, copies, session, patience or Patience())
        images = pool.map(collector.have, names)
        lines = list(tqdm(images, total=len(names), desc=str(folder), unit="image", mininterval=interval_s))
    if failures := collector.failures:
        rest = ", and no others were tried" if len(failures) >= HOPELESS else ""
        listed = ",".join(f"\n  {failure}" for failure in failures[:3])
        listed += f" and {len(failures) - 3:,} more" if len(failures) > 3 else ""
        raise DataError(
            f"{folder}: {len(failures):,} of {len(names):,} images could not be had{rest}: {listed}\n"
            "Those that could are kept: mend this and run again."
        )
    return Collected([line for line in lines if line is not None], collector.fetched, collector.bytes)


def fault_of(content: bytes) -> str | None:
    """Why this is no whole image; None where it decodes to the last pixel."""
    try:
        load_picture(BytesIO(content))
    except PictureError as error:
        return f"no image that can be decoded: {error}"
    # The decoder does not miss the last bytes of a JPEG. Neither marker can occur inside a scan.
    if content.startswith(_JPEG) and content.rfind(_END_OF_IMAGE) < content.rfind(_START_OF_SCAN):
        return "a JPEG without its end"
    return None


class Ledger:
    """The lines of all images accepted so far, by name; appended to as they come. For the holder of its lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
        # A line torn by a crash is passed over; the last one about an image holds.
        whole = [line for line in lines[:-1] if line.count("\t") == 2 and line != HEADER]
        self._lines = {line.partition("\t")[0]: line for line in whole}
        self._file = path.open("a", encoding="utf-8", newline="")
        if not lines:
            self._file.write(f"{HEADER}\n")
        elif lines[-1]:
            self._file.write("\n")
        self._lock = threading.Lock()

    def get(self, name: str) -> str | None:
        return self._lines.get(name)

    def append(self, line: str) -> None:
        with self._lock:
            self._file.write(f"{line}\n")
            self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


class _Collector:
    """What the threads of one call of `collect` share."""

    def __init__(
        self,
        folder: Path,
        ledger: Ledger,
        urls: Sequence[str],
        copies: Path | None,
        session: requests.Session,
        patience: Patience,
    ) -> None:
        self.failures: list[str] = []
        self.fetched = self.bytes = 0
        self._folder = folder
        self._ledger = ledger
        self._urls = urls
        self._copies = copies
        self._patience = patience
        self._session = session
        self._lock = threading.Lock()

    def have(self, name: str) -> str | None:
        """The manifest's line about an image, which lies in the folder then; None for a failure."""
        if len(self.failures) >= HOPELESS:
            return None
        try:
            return self._there(name) or self._get(name)
        except (FetchError, OSError) as error:  # a full disk, no permission
            with self._lock:
                self.failures.append(f"{name}: {error}")
            return None

    def _there(self, name: str) -> str | None:
        """The line of an image that lies in the folder already, sound and unchanged."""
        path = self._folder / name
        if not path.is_file():
            return None
        content = path.read_bytes()
        line, known = entry(name, content), self._ledger.get(name)
        if known is None and fault_of(content) is None:
            self._ledger.append(line)
            return line
        return line if line == known else None

    def _get(self, name: str) -> str:
        content = self._fetch(name) if self._copies is None else _read_copy(self._copies / name)
        line, known = entry(name, content), self._ledger.get(name)
        if known is not None and line != known:
            raise FetchError(
                f"has become another image since it was first had ({line!r}, in the ledger {known!r}). If that is "
                f"meant, remove its line from {self._folder / LEDGER}",
                again=False,
            )
        self._place(name, content)
        if known is None:
            self._ledger.append(line)
        return line

    def _fetch(self, name: str) -> bytes:
        if not self._urls:
            raise FetchError("missing or damaged; to unpack it again, remove the .digest of its archive", again=False)

        def get(url: str) -> bytes:
            content = fetch_bytes(self._session, url, self._patience)
            if fault := fault_of(content):
                raise FetchError(f"{fault} ({len(content):,} bytes)", again=False)
            return content

        content = first_that_works([url.replace("{name}", quote(name)) for url in self._urls], get)
        with self._lock:
            self.fetched += 1
            self.bytes += len(content)
        return content

    def _place(self, name: str, content: bytes) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.part")
        temporary.unlink(missing_ok=True)
        if self._copies:
            temporary.symlink_to((self._copies / name).absolute())
        else:
            temporary.write_bytes(content)  # not synced: what a power cut takes, the ledger tells
        temporary.replace(path)


def _read_copy(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FetchError(f"there is no {path}", again=False) from error
    if fault := fault_of(content):
        raise FetchError(f"{path}: {fault}", again=False)
    return content
