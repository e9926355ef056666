"""Fetch one entry of `downloads`, or take the user's own copy of it, verify it, and unpack what is wanted of it."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reftables.archives import unpack
from reftables.digests import Recorded, locked, read_ledger, record, write_digests
from reftables.errors import DataError, run
from reftables.fetch import Expected, FetchError, Found, fetch, sha256_of, verify


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--name", required=True, help="name of the entry, for messages")
    options.add_argument("--entry", type=json.loads, required=True, help="the entry, as JSON")
    options.add_argument("--ledger", type=Path, required=True, help="what was fetched before")
    options.add_argument("--digest", type=Path, required=True, help="digest file to write")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    entry, target = args.entry, Path(args.entry["to"])
    with locked(target):
        recorded = read_ledger(args.ledger).get(entry["to"])
        fetched = obtain(args.name, entry, target, recorded, args.ledger)
        record(args.ledger, entry["to"], fetched)
        digests = [(entry["to"], fetched.sha256)]
        if entry["unpack"]:
            unpack(target, entry["unpack"])
            files = [member for member in entry["unpack"].values() if not member.endswith("/")]
            digests += [(file, sha256_of(Path(file))) for file in files]
        write_digests(args.digest, digests)
        if entry["delete_archive"]:
            target.unlink()
    print(f"{entry['to']}: {fetched.bytes:,} bytes, sha256 {fetched.sha256}, from {fetched.url}")


def expected_of(name: str, entry: dict[str, Any], recorded: Recorded | None, ledger: Path) -> Expected:
    """What the file must be: as pinned in the config, else as it was when it was first fetched."""
    if entry["sha256"] or entry["md5"] or recorded is None:
        origin = f"downloads.{name}"
        return Expected(size=entry["size"], sha256=entry["sha256"], md5=entry["md5"], origin=origin)
    return Expected(
        size=entry["size"] or recorded.bytes,
        sha256=recorded.sha256,
        origin=f"recorded in {ledger} when it was first fetched",
    )


def obtain(name: str, entry: dict[str, Any], target: Path, recorded: Recorded | None, ledger: Path) -> Recorded:
    """Have the verified file at `target`: linked to the user's own copy, as it lies there already, or fetched."""
    expected = expected_of(name, entry, recorded, ledger)
    if entry["path"]:
        found = _verified_copy(name, Path(entry["path"]), expected)
        _link(target, Path(entry["path"]))
        return Recorded(*found, url=entry["path"])
    if target.is_symlink():
        target.unlink()
    if target.is_file():
        try:
            return Recorded(*verify(target, expected), url=recorded.url if recorded else entry["urls"][0])
        except FetchError as error:
            print(f"{target}: {error}; fetching it again", flush=True)
    remedy = f"Check downloads.{name}, or name your own copy as its path."
    if recorded is not None:
        remedy += f" If the source was changed on purpose, remove the line of {target} from {ledger}."
    url, found = fetch(entry["urls"], target, expected, remedy=remedy)
    return Recorded(*found, url=url)


def _verified_copy(name: str, own: Path, expected: Expected) -> Found:
    try:
        return verify(own, expected)
    except FetchError as error:
        raise DataError(f"downloads.{name}.path: {own}: {error}") from error


def _link(target: Path, own: Path) -> None:
    """Let `target` be a link to the user's copy, which is never written to."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.link")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(own.absolute())
    temporary.replace(target)


if __name__ == "__main__":
    run(main)
