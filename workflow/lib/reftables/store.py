"""The append-only store of predictions that cost something.

One folder a (model, benchmark), one file a (split, shard): `{split}.{shard}-of-{shards}.jsonl`, a
line an answer: `{"key", "prediction"}`. The key is the sha256 of what decides the answer, so neither
the id, the order, the shard nor a change of code matters; identical requests are asked once. Answers
are appended as they come, synced to disk; errors never. A line torn by a crash is passed over.
"""

import errno
import hashlib
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock

from reftables.errors import DataError
from reftables.files import canonical_json, dump_json, parse_prediction, prediction_row
from reftables.locks import acquire, file_lock
from reftables.rows import Prediction, Status
from reftables.shards import WHOLE, Shard

# What reading a line raises that holds no answer: torn, nested beyond reading, or of another shape.
_NO_ANSWER = (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError)


def key_of(decides: Mapping[str, Any]) -> str:
    """The key of an answer: sha256 of what decides it."""
    return hashlib.sha256(canonical_json(decides).encode()).hexdigest()


class Store:
    """The answers of one (model, benchmark, split), read from all shards' files, appended to this shard's."""

    def __init__(self, folder: Path, split: str, shard: Shard = WHOLE) -> None:
        self._folder = folder
        self._split = split
        self._path = folder / f"{split}.{shard}.jsonl"
        self._answers: dict[str, Prediction] = {}
        self._file: FileIO | None = None

    def read(self) -> None:
        """Read every shard's answers; the first answer to a request stands."""
        for path in sorted(self._folder.glob(f"{self._split}.*.jsonl")):
            passed_over = 0
            for line in path.read_bytes().split(b"\n"):
                if not line:
                    continue
                try:
                    row = json.loads(line)
                    self._answers.setdefault(row["key"], parse_prediction(row["prediction"]))
                except _NO_ANSWER:
                    passed_over += 1
            if passed_over:
                print(
                    f"warning: {path}: {passed_over} torn line(s) passed over; their requests are asked again",
                    file=sys.stderr,
                )

    def __len__(self) -> int:
        return len(self._answers)

    def __contains__(self, key: str) -> bool:
        return key in self._answers

    def get(self, key: str, request_id: int) -> Prediction:
        """The stored answer to a request, under the request's own id."""
        return replace(self._answers[key], id=request_id)

    def append(self, key: str, prediction: Prediction) -> None:
        """Keep an answer: on disk before this returns, and read from now on as the disk has it."""
        if prediction.status in {Status.ERROR, Status.MISSING}:
            raise ValueError(f"a {prediction.status} is no answer and never stored")
        # An answer is paid for: half of a surrogate pair, which UTF-8 cannot hold, costs itself and not the answer.
        line = f"{dump_json({'key': key, 'prediction': prediction_row(prediction)})}\n".encode("utf-8", "replace")
        try:
            file = self._opened()
            if file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError as error:
            raise DataError(
                f"{self._path}: an answer cannot be kept: {error.strerror}. Mend that and run again: those before "
                "it are safe."
            ) from error
        self._answers[key] = parse_prediction(json.loads(line)["prediction"])

    def _opened(self) -> FileIO:
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            # Unbuffered: closing a buffered file would try again to write what a full disk refused.
            self._file = self._path.open("ab", buffering=0)
            if self._file.tell() and not _ends_in_line_feed(self._path):
                self._file.write(b"\n")  # ends the torn line of an earlier crash, so it spoils no new one
        return self._file

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


def _ends_in_line_feed(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


@contextmanager
def locked(folder: Path, split: str, shard: Shard = WHOLE) -> Iterator[None]:
    """Hold the lock of a shard beside the store; another job for the same requests waits, and says so.

    Shards of one count share no request and run side by side. A job that cut the split otherwise, left
    behind by an earlier run, may: this one waits for it as well, and lets its own lock go meanwhile, for
    two that hold on would wait for each other for ever.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = file_lock(folder / f"{split}.{shard}.lock")
    _acquire(own)
    while busy := _held_otherwise(folder, split, shard):
        own.release()
        _acquire(busy)
        busy.release()
        time.sleep(random.uniform(0, 0.2))  # two that step back for each other do not do so in step
        _acquire(own)
    try:
        yield
    finally:
        own.release()


def _acquire(lock: FileLock) -> None:
    if not acquire(lock, wait=False):
        print(f"waiting for another job that holds {lock.lock_file}", file=sys.stderr)
        acquire(lock, wait=True)


def _held_otherwise(folder: Path, split: str, shard: Shard) -> FileLock | None:
    """A held lock of a shard of another count, if there is one."""
    for path in folder.glob(f"{split}.*.lock"):
        try:
            other = Shard.parse(path.name.removeprefix(f"{split}.").removesuffix(".lock"))
        except ValueError:
            continue  # a file that somebody else put there
        if other.count == shard.count:
            continue
        lock = file_lock(path)
        if not acquire(lock, wait=False):
            return lock
        lock.release()
    return None
