"""The append-only store of predictions that cost something.

One folder a (model, benchmark), one file a (split, writer): `{split}.{writer}.jsonl`, a line an
answer: `{"key", "prediction"}`. The key is the sha256 of what decides the answer, so neither the
id, the order, the shard nor a change of code matters; identical requests are asked once. Answers
are appended as they come, synced to disk; errors never. A line torn by a crash is passed over.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from filelock import FileLock, Timeout

from reftables.files import canonical_json, dump_json, parse_prediction, prediction_row
from reftables.rows import Prediction, Status


def key_of(decides: Mapping[str, Any]) -> str:
    """The key of an answer: sha256 of what decides it."""
    return hashlib.sha256(canonical_json(decides).encode()).hexdigest()


class Store:
    """The answers of one (model, benchmark, split), read from all writers' files, appended to this writer's."""

    def __init__(self, folder: Path, split: str, writer: str) -> None:
        self._folder = folder
        self._split = split
        self._path = folder / f"{split}.{writer}.jsonl"
        self._answers: dict[str, Prediction] = {}
        self._file: BinaryIO | None = None

    def read(self) -> None:
        """Read every writer's answers; the first answer to a request stands."""
        for path in sorted(self._folder.glob(f"{self._split}.*.jsonl")):
            passed_over = 0
            for line in path.read_bytes().split(b"\n"):
                if not line:
                    continue
                try:
                    row = json.loads(line)
                    self._answers.setdefault(row["key"], parse_prediction(row["prediction"]))
                except (ValueError, KeyError, TypeError):
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
        """Keep an answer: on disk before this returns."""
        if prediction.status in {Status.ERROR, Status.MISSING}:
            raise ValueError(f"a {prediction.status} is no answer and never stored")
        file = self._opened()
        file.write(f"{dump_json({'key': key, 'prediction': prediction_row(prediction)})}\n".encode())
        file.flush()
        os.fsync(file.fileno())
        self._answers[key] = prediction

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("ab")
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
def locked(folder: Path, name: str) -> Iterator[None]:
    """Hold the lock beside the store; a second job waits, and says so."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f"{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"waiting for another job that holds {lock.lock_file}", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
