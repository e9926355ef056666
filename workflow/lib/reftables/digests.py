"""The ledger of what was fetched: `resources/digests.tsv`, a line a file, and the digest file beside each target.

A file without a pin in the config is recorded when it is first fetched and held to that ever after: a source
that changes is an error, not another number. The ledger is an output of no rule, so no rerun removes it.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from reftables.errors import DataError, shown
from reftables.files import read_lines, write_atomically
from reftables.locks import acquire, file_lock
from reftables.names import CONTROL

HEADER = "path\tbytes\tsha256\turl"


class Recorded(NamedTuple):
    """What was fetched, and from where."""

    bytes: int
    sha256: str
    url: str


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file (`.NAME.lock` beside it): another process waits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = file_lock(path.with_name(f".{path.name}.lock"))
    acquire(lock, wait=True)
    try:
        yield
    finally:
        lock.release()


def read_ledger(path: Path) -> dict[str, Recorded]:
    """Path to what was recorded for it; empty where nothing was fetched yet."""
    if not path.exists():
        return {}
    header, *lines = read_lines(path) or [""]
    if header != HEADER:
        raise DataError(f"{path}: begins with {header[:60]!r}, not with {HEADER!r}. Mend or remove it.")
    ledger = {}
    for number, line in enumerate(lines, start=2):
        try:
            target, size, sha256, url = line.split("\t")
            ledger[target] = Recorded(int(size), sha256, url)
        except ValueError as error:
            raise DataError(f"{path}: line {number:,} is not {HEADER!r}. Mend or remove it.") from error
    return ledger


def record(path: Path, target: str, recorded: Recorded) -> None:
    """Enter a file into the ledger, in place of an earlier line about it.

    DataError for a path or URL with a control character: in a table it would be a field or a line of its own.
    """
    for text in (target, recorded.url):
        if CONTROL.search(text):
            raise DataError(f"{path}: no line can carry {shown(text)}. Mend it in the configuration.")
    with locked(path):
        ledger = read_ledger(path) | {target: recorded}
        lines = [HEADER, *("\t".join([name, *map(str, entry)]) for name, entry in sorted(ledger.items()))]
        write_atomically(path, "".join(f"{line}\n" for line in lines))


def write_digests(path: Path, digests: Iterable[tuple[str, str]]) -> None:
    """Write (path, sha256) pairs as `sha256sum --check` reads them."""
    write_atomically(path, "".join(f"{sha256}  {target}\n" for target, sha256 in digests))


def read_digests(path: Path) -> dict[str, str]:
    """Path to sha256 of a digest file."""
    digests = {}
    for number, line in enumerate(read_lines(path), start=1):
        sha256, blanks, target = line.partition("  ")
        if not blanks or len(sha256) != 64:
            raise DataError(f"{path}: line {number:,} is no digest. Remove the file and run again.")
        digests[target] = sha256
    return digests
