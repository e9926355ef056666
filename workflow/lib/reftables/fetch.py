"""Fetch one file from the network: resumed, retried, verified, and in its place only when it is whole.

A file grows as `.NAME.part` beside its target; `.NAME.part.json` says which version of which URL it is. After
an interruption only the rest is asked for (`Range` with `If-Range`); a server that has another version by now,
or cannot do that, sends all of it again.

| what comes back | outcome |
|---|---|
| 408, 425, 429, 5xx; no, a reset or a cut connection; time-out | waited for as Retry-After says, tried again |
| other statuses; a web page; no bytes; another size or digest | the next mirror; nothing of it is kept |
| no space left on the disk | an error; what is there is kept |

Tries are counted from the last one that brought `PROGRESS` bytes. When no mirror is left, one error says of
each what was found and what was expected. Proxies are those of the environment (HTTPS_PROXY and so on).
"""

import errno
import hashlib
import json
import os
import random
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar

import requests
from tqdm import tqdm

from reftables.errors import DataError
from reftables.files import dump_json, write_atomically
from reftables.retry_after import retry_after_s

T = TypeVar("T")

CHUNK = 16 * 1024  # what a cut connection costs at most, beside what had not come
PROGRESS = 1024 * 1024
RETRIED = frozenset({408, 425, 429})  # and every 5xx
MOST_IN_MEMORY = 256 * 1024 * 1024  # of a file that is fetched without a place on disk
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})  # the last: of the file system, or of `ulimit -f`
_PAGE = re.compile(rb"(\xef\xbb\xbf)?\s*<(!doctype\s+html|html)", re.IGNORECASE)
_HEADERS = {"User-Agent": "reftables", "Accept-Encoding": "identity"}  # sizes and ranges are those of the file itself


class FetchError(Exception):
    """Why a URL gave no file; `again` where another try may help, `wait_s` the wait that the server asked for."""

    def __init__(self, reason: str, *, again: bool, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.again = again
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a file must be; None is not known. `origin` says in messages who says so."""

    size: int | None = None
    sha256: str | None = None
    md5: str | None = None
    origin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a server is waited for and how often it is asked."""

    connect_s: float = 15
    read_s: float = 60  # without a byte
    retries: int = 5
    backoff_s: float = 1  # before the first retry, doubled with each one
    longest_backoff_s: float = 60
    longest_wait_s: float = 600  # a server that asks for more is given up


class Found(NamedTuple):
    """What a file is."""

    bytes: int
    sha256: str


def new_session(connections: int = 1) -> requests.Session:
    """A session that so many threads may share."""
    session = requests.Session()
    session.headers.update(_HEADERS)
    for scheme in ("http://", "https://"):
        session.mount(scheme, requests.adapters.HTTPAdapter(pool_maxsize=connections))
    return session


def fetch(
    urls: Sequence[str], target: Path, expected: Expected, *, remedy: str, patience: Patience | None = None
) -> tuple[str, Found]:
    """Fetch `target`, and say from which of `urls`: the first that has what is expected.

    DataError, with `remedy`, where none has. The caller holds a lock: only one may fetch a target at a time.
    """
    patience = patience or Patience()
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Part(target)
    with new_session() as session:

        def get(url: str) -> tuple[str, Found]:
            return url, _fetch_from(session, url, part, expected, patience)

        try:
            fetched = first_that_works(urls, get)
        except FetchError as error:
            raise DataError(f"{target} could not be fetched:\n  {error}\n{remedy}") from error
    part.finish(target)
    return fetched


def fetch_bytes(session: requests.Session, url: str, patience: Patience) -> bytes:
    """The whole content of a small file; FetchError where the URL has none after all tries."""

    def once() -> bytes:
        with _reply(session, url, {}, patience) as reply:
            _refuse_page(reply)
            total = _length(reply)
            content = bytearray()
            try:
                for chunk in reply.iter_content(CHUNK):
                    content += chunk
                    if len(content) > MOST_IN_MEMORY:
                        raise FetchError(f"more than {MOST_IN_MEMORY:,} bytes", again=False)
            except requests.exceptions.ChunkedEncodingError as error:
                raise _cut(len(content), total) from error
        if total is not None and len(content) < total:
            raise _cut(len(content), total)
        if not content:
            raise FetchError("no bytes at all", again=False)
        return bytes(content)

    return _retried(once, patience)


def size_of(url: str, patience: Patience) -> int | None:
    """The size that a server tells of a file without sending it; None where it tells none."""
    try:
        with new_session() as session:
            reply = session.head(url, allow_redirects=True, timeout=(patience.connect_s, patience.read_s))
    except requests.RequestException:
        return None
    return _length(reply) if reply.status_code == 200 else None


def first_that_works(urls: Sequence[str], get: Callable[[str], T]) -> T:
    """The outcome of `get` for the first URL for which it does not fail; FetchError tells of all."""
    reasons = []
    for url in urls:
        try:
            return get(url)
        except FetchError as error:
            reasons.append(f"{url}: {error}")
            print(reasons[-1], file=sys.stderr, flush=True)
    raise FetchError("\n  ".join(reasons), again=False)


def verify(path: Path, expected: Expected) -> Found:
    """Size and sha256 of a file that is what it must be; FetchError names what was found and expected."""
    size = path.stat().st_size
    says = f" ({expected.origin})" if expected.origin else ""
    if size == 0:
        raise FetchError("no bytes at all", again=False)
    with path.open("rb") as file:
        if page := _PAGE.match(file.read(512)):
            raise FetchError(f"a web page, beginning with {page[0].decode().strip()!r}, not the file", again=False)
        if expected.size is not None and size != expected.size:
            raise FetchError(f"{size:,} bytes, expected {expected.size:,}{says}", again=False)
        found = {name: hashlib.new(name) for name in ("sha256", "md5") if name == "sha256" or expected.md5}
        file.seek(0)
        while chunk := file.read(1024 * 1024):
            for digest in found.values():
                digest.update(chunk)
    for name, wanted in (("sha256", expected.sha256), ("md5", expected.md5)):
        if wanted is not None and found[name].hexdigest() != wanted:
            raise FetchError(f"{name} {found[name].hexdigest()}, expected {wanted}{says}", again=False)
    return Found(size, found["sha256"].hexdigest())


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Part:
    """The unfinished file beside its target, and which version of which URL it is the beginning of."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(f".{target.name}.part")
        self._state = target.with_name(f".{target.name}.part.json")

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def version_of(self, url: str) -> str | None:
        """The version that can be continued from `url`; None where there is none."""
        try:
            state = json.loads(self._state.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        version = state.get("version") if isinstance(state, dict) and state.get("url") == url else None
        return version if isinstance(version, str) and self.size else None

    def begin(self, url: str, version: str | None) -> None:
        """Start anew. The old bytes go first, so that they are never taken for the new version's."""
        self.discard()
        write_atomically(self._state, dump_json({"url": url, "version": version}))

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self._state.unlink(missing_ok=True)

    def finish(self, target: Path) -> None:
        """Put the file in its place, on disk before its name is."""
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())
        self.path.replace(target)
        self._state.unlink(missing_ok=True)


def _fetch_from(session: requests.Session, url: str, part: Part, expected: Expected, patience: Patience) -> Found:
    def once() -> Found:
        _transfer(session, url, part, expected, patience)
        try:
            return verify(part.path, expected)
        except FetchError:
            part.discard()
            raise

    return _retried(once, patience, size=lambda: part.size)


def _retried(once: Callable[[], T], patience: Patience, *, size: Callable[[], int] = lambda: 0) -> T:
    """Call `once` until it works; `size` is how much is there, and tells which tries brought the file on."""
    tries, before = 0, size()
    while True:
        try:
            return once()
        except FetchError as error:
            if size() - before >= PROGRESS:
                tries, before = 0, size()
            tries += 1
            if not error.again or tries > patience.retries:
                raise
            delay_s = _delay_s(error, tries, patience)
            print(f"{error}; trying again in {delay_s:.1f} s", file=sys.stderr, flush=True)
            time.sleep(delay_s)


def _delay_s(error: FetchError, tries: int, patience: Patience) -> float:
    """Exponential back-off, half of it random, and never less than the server asked for."""
    longest_s = min(patience.longest_backoff_s, patience.backoff_s * 2.0 ** (tries - 1))
    return (error.wait_s or 0) + longest_s * random.uniform(0.5, 1)


def _transfer(session: requests.Session, url: str, part: Part, expected: Expected, patience: Patience) -> None:
    """Bring the unfinished file to its full length."""
    version = part.version_of(url)
    have = part.size if version else 0
    headers = {"Range": f"bytes={have}-", "If-Range": version} if version else {}
    with _reply(session, url, headers, patience) as reply:
        if reply.status_code == 416 and _range_total(reply) == have:
            return  # the last run ended between the last byte and the new name
        if reply.status_code == 206:
            if _version(reply) != version or _range_start(reply) != have:
                part.discard()
                raise FetchError("the server continues with another file than it began", again=True)
            total = _range_total(reply)
        elif reply.status_code == 200:
            _refuse_page(reply)
            have, total = 0, _length(reply)
            part.begin(url, _version(reply))
        else:
            part.discard()
            raise FetchError(f"HTTP {reply.status_code} to a request for the rest", again=True)
        if None not in (total, expected.size) and total != expected.size:
            part.discard()
            says = f" ({expected.origin})" if expected.origin else ""
            raise FetchError(f"{total:,} bytes, expected {expected.size:,}{says}", again=False)
        _write(reply, part, have, total)
    if total is not None and part.size < total:
        raise _cut(part.size, total)


def _write(reply: requests.Response, part: Part, have: int, total: int | None) -> None:
    free = shutil.disk_usage(part.path.parent).free
    if total is not None and total - have > free:
        raise DataError(
            f"{part.path.parent}: {total - have:,} more bytes are needed, {free:,} are free. Make room, or let "
            "resources/ be a link to a larger disk, and run again."
        )
    interval_s = 0.5 if sys.stderr.isatty() else 15
    name = part.path.name.removeprefix(".").removesuffix(".part")
    with tqdm(desc=name, total=total, initial=have, unit="B", unit_scale=True, mininterval=interval_s) as progress:
        try:
            with part.path.open("ab") as file:
                for chunk in reply.iter_content(CHUNK):
                    file.write(chunk)
                    progress.update(len(chunk))
        except requests.exceptions.ChunkedEncodingError as error:
            raise _cut(part.size, total) from error
        except OSError as error:
            if error.errno in _FULL:
                raise DataError(
                    f"{part.path}: {error.strerror} after {part.size:,} bytes. Make room and run again: it goes on."
                ) from error
            raise


def _cut(size: int, total: int | None) -> FetchError:
    return FetchError(f"cut after {size:,} of {'unknown' if total is None else f'{total:,}'} bytes", again=True)


@contextmanager
def _reply(
    session: requests.Session, url: str, headers: Mapping[str, str], patience: Patience
) -> Iterator[requests.Response]:
    """The reply to a GET, unread, with a status that carries content; every failure until it is read a FetchError."""
    try:
        timeouts = (patience.connect_s, patience.read_s)
        with session.get(url, headers=dict(headers), stream=True, timeout=timeouts) as reply:
            if reply.status_code not in {200, 206, 416}:
                _refuse_status(reply, patience)
            if reply.headers.get("Content-Encoding", "identity") != "identity":
                raise FetchError(f"sent as {reply.headers['Content-Encoding']}, though asked not to", again=False)
            yield reply
    except requests.exceptions.SSLError as error:
        raise FetchError(f"no trust in the server's certificate: {error}", again=False) from error
    except requests.Timeout as error:
        raise FetchError(f"time-out: {error}", again=True) from error
    except requests.ConnectionError as error:
        raise FetchError(f"connection failed: {error}", again=True) from error
    except requests.RequestException as error:
        raise FetchError(str(error), again=False) from error


def _refuse_status(reply: requests.Response, patience: Patience) -> NoReturn:
    status = reply.status_code
    again = status in RETRIED or status >= 500
    wait_s = retry_after_s(reply.headers.get("Retry-After"), now=time.time())
    reason = f"HTTP {status} {reply.reason}"
    if again and wait_s is not None and wait_s > patience.longest_wait_s:
        raise FetchError(f"{reason}, and the server asks to wait {wait_s:,.0f} s", again=False)
    raise FetchError(reason, again=again, wait_s=wait_s)


def _refuse_page(reply: requests.Response) -> None:
    media_type = reply.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media_type in {"text/html", "application/xhtml+xml"}:
        raise FetchError(f"a web page ({media_type}), not the file", again=False)


def _version(reply: requests.Response) -> str | None:
    """What `If-Range` can name: a strong ETag, else the date of the last change."""
    etag = reply.headers.get("ETag")
    return etag if etag and not etag.startswith("W/") else reply.headers.get("Last-Modified")


def _length(reply: requests.Response) -> int | None:
    value = reply.headers.get("Content-Length", "")
    return int(value) if value.isdecimal() else None


def _range_start(reply: requests.Response) -> int | None:
    match = re.match(r"bytes (\d+)-", reply.headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _range_total(reply: requests.Response) -> int | None:
    match = re.search(r"/(\d+)$", reply.headers.get("Content-Range", ""))
    return int(match[1]) if match else None
