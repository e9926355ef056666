"""The store: nothing that was paid for is lost, nothing is asked twice."""

import errno
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reftables.errors import DataError
from reftables.models.job import Job
from reftables.rows import AnswerFormat, Notation, Prediction, Request, Status, Task
from reftables.shards import WHOLE, Shard
from reftables.stages.infer import predict_through_store, refuse_errors
from reftables.store import Store, key_of, locked

FORM = AnswerFormat(notation=Notation.KOSMOS, coordinates=None, order=None, prompt="kosmos", grid=32)
JOB = Job(model="m", benchmark="b", split="val", task=Task.BOXES, form=FORM, identity={"backend": "fake"}, execution={})
REQUESTS = [
    Request(0, "a.jpg", "cat"),
    Request(1, "a.jpg", "dog"),
    Request(2, "a.jpg", "cat"),
    Request(3, "b.jpg", "cat"),
]
DIGESTS = {"a.jpg": "1-aa", "b.jpg": "2-bb"}


class Backend:
    """Answers with the request's text, counts what it is asked, and breaks off after `dies_after` answers."""

    def __init__(self, dies_after: int | None = None, fails_on: Sequence[int] = ()) -> None:
        self.asked: list[int] = []
        self._dies_after = dies_after
        self._fails_on = fails_on

    @staticmethod
    def decides(request: Request, job: Job, image_digest: str) -> dict[str, Any]:
        return {"text": request.text, "image": image_digest, "model": job.identity}

    def predict(self, requests: Sequence[Request], job: Job) -> Iterator[Prediction]:
        for request in requests:
            if len(self.asked) == self._dies_after:
                raise KeyboardInterrupt
            self.asked.append(request.id)
            if request.id in self._fails_on:
                yield Prediction(id=request.id, status=Status.ERROR, finish_reason="500")
            else:
                yield Prediction(id=request.id, status=Status.OK, text=f"{request.image} {request.text}")


def predict(backend: Backend, folder: Path, requests: Sequence[Request] = REQUESTS) -> list[Prediction]:
    module = SimpleNamespace(decides=backend.decides, predict=backend.predict)
    return predict_through_store(module, requests, JOB, DIGESTS, folder)  # type: ignore[arg-type]


def test_identical_requests_are_asked_once_and_answered_each(tmp_path: Path) -> None:
    backend = Backend()
    predictions = predict(backend, tmp_path)
    assert backend.asked == [0, 1, 3]
    assert [(p.id, p.text) for p in predictions] == [
        (0, "a.jpg cat"),
        (1, "a.jpg dog"),
        (2, "a.jpg cat"),
        (3, "b.jpg cat"),
    ]


def test_a_second_run_asks_nothing(tmp_path: Path) -> None:
    first = predict(Backend(), tmp_path)
    again = Backend()
    assert predict(again, tmp_path) == first
    assert again.asked == []


def test_a_crash_costs_only_what_was_not_answered(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        predict(Backend(dies_after=2), tmp_path)
    again = Backend()
    predict(again, tmp_path)
    assert again.asked == [3]


def test_a_torn_last_line_costs_that_answer_and_spoils_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predict(Backend(), tmp_path)
    path = tmp_path / "val.0-of-1.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    torn, after = Backend(), Backend()
    complete = predict(torn, tmp_path)
    assert torn.asked == [3]
    assert predict(after, tmp_path) == complete
    assert after.asked == []
    assert "1 torn line(s) passed over" in capsys.readouterr().err


def test_answers_of_all_shards_count(tmp_path: Path) -> None:
    predict(Backend(), tmp_path)
    (tmp_path / "val.0-of-1.jsonl").rename(tmp_path / "val.1-of-4.jsonl")
    again = Backend()
    predict(again, tmp_path)
    assert again.asked == []


def test_a_split_whose_name_begins_alike_has_its_own_answers(tmp_path: Path) -> None:
    predict(Backend(), tmp_path)
    (tmp_path / "val.0-of-1.jsonl").rename(tmp_path / "val2.0-of-1.jsonl")
    again = Backend()
    predict(again, tmp_path)
    assert again.asked == [0, 1, 3]


def test_errors_are_never_stored_and_asked_again(tmp_path: Path) -> None:
    predictions = predict(Backend(fails_on=[1]), tmp_path)
    assert [p.status for p in predictions] == [Status.OK, Status.ERROR, Status.OK, Status.OK]
    with pytest.raises(DataError, match=r"m on b/val: 1 of 4 requests failed \(500\), ids 1. Run again"):
        refuse_errors(predictions, JOB, stored=True)
    with pytest.raises(DataError, match="Mend the answers"):
        refuse_errors(predictions, JOB, stored=False)
    again = Backend()
    predict(again, tmp_path)
    assert again.asked == [1]


def test_an_error_cannot_be_appended(tmp_path: Path) -> None:
    with Store(tmp_path, "val") as store, pytest.raises(ValueError, match="never stored"):
        store.append("key", Prediction(id=0, status=Status.ERROR))


def test_an_answer_with_half_a_surrogate_pair_is_kept_without_it(tmp_path: Path) -> None:
    odd = Prediction(id=7, status=Status.OK, text="a\ud800b", finish_reason="\udfff", image_size=(4, 3), tokens_in=9)
    with Store(tmp_path, "val") as store:
        store.append("key", odd)
        kept = store.get("key", 7)
    with Store(tmp_path, "val") as again:
        again.read()
        assert again.get("key", 7) == kept
    assert kept == replace(odd, text="a?b", finish_reason="?")


def test_a_backend_is_told_whether_the_store_holds_answers_of_its_job(tmp_path: Path) -> None:
    told: list[bool] = []

    class Told(Backend):
        def predict(self, requests: Sequence[Request], job: Job) -> Iterator[Prediction]:
            told.append(job.answered)
            return super().predict(requests, job)

    predict(Told(fails_on=[1]), tmp_path)
    predict(Told(fails_on=[1]), tmp_path)
    predict(Told(fails_on=[3]), tmp_path, [Request(3, "b.jpg", "another")])
    assert told == [False, True, False]


def test_what_failed_most_is_named_first_and_the_rest_is_counted() -> None:
    reasons = ["a.tif: no image", "b.tif: no image", "c.tif: no image", "HTTP 400", "HTTP 400", None, None, None]
    predictions = [Prediction(id=i, status=Status.ERROR, finish_reason=reason) for i, reason in enumerate(reasons)]
    with pytest.raises(DataError, match=r"8 of 8 .* \(no reason given, HTTP 400, a\.tif: no image and 2 more\), ids 0"):
        refuse_errors(predictions, JOB, stored=True)


def test_a_second_job_waits_for_the_lock_and_then_answers_from_the_store(tmp_path: Path) -> None:
    started, second = threading.Event(), Backend()

    def other_job() -> None:
        started.set()
        predict(second, tmp_path)

    with locked(tmp_path, "val"):
        thread = threading.Thread(target=other_job)
        thread.start()
        started.wait()
        thread.join(timeout=0.3)
        assert thread.is_alive()
        with Store(tmp_path, "val") as store:
            for request in REQUESTS:
                key = key_of({"backend": "fake", **second.decides(request, JOB, DIGESTS[request.image])})
                store.append(key, Prediction(id=request.id, status=Status.OK, text="first"))
    thread.join(timeout=60)
    assert second.asked == []


@pytest.mark.parametrize(
    ("held", "wanted", "waits"),
    [
        (Shard(0, 3), Shard(1, 3), False),
        (Shard(0, 3), Shard(0, 3), True),
        (Shard(0, 3), WHOLE, True),
        (WHOLE, Shard(2, 3), True),
        (Shard(1, 2), Shard(2, 3), True),
    ],
    ids=["another part", "the same part", "the whole", "a part of the whole", "a part of another cut"],
)
def test_jobs_that_may_share_a_request_wait_for_each_other(
    tmp_path: Path, held: Shard, wanted: Shard, waits: bool
) -> None:
    entered = threading.Event()

    def other_job() -> None:
        with locked(tmp_path, "val", wanted):
            entered.set()

    thread = threading.Thread(target=other_job)
    with locked(tmp_path, "val", held):
        thread.start()
        assert entered.wait(0.3 if waits else 60) is not waits
    thread.join(timeout=60)
    assert entered.is_set()


def test_jobs_that_cut_a_split_in_three_ways_never_run_together_and_all_end(tmp_path: Path) -> None:
    inside: list[int] = []
    together: list[list[int]] = []

    def job(shard: Shard) -> None:
        for _ in range(5):
            with locked(tmp_path, "val", shard):
                inside.append(shard.count)
                together.append(inside.copy())
                time.sleep(0.002)
                inside.remove(shard.count)

    shards = [Shard(number, count) for count in (1, 2, 3) for number in range(count)]
    threads = [threading.Thread(target=job, args=(shard,)) for shard in shards]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(together) == 5 * len(shards)
    assert all(len(set(counts)) == 1 for counts in together)


def test_a_lock_file_that_a_killed_job_left_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "val.0-of-1.lock").write_text("4194305\n")
    (tmp_path / "val.1-of-2.lock").touch()
    again = Backend()
    predict(again, tmp_path)
    assert again.asked == [0, 1, 3]


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"key": "k", "prediction": "ok"}',
        '{"key": "k", "prediction": ["ok"]}',
        '{"key": "k", "prediction": {"id": 0, "status": "ok", "image_size": []}}',
        '{"key": ["k"], "prediction": {"id": 0, "status": "ok"}}',
        '["key"]',
        "1",
    ],
    ids=["deep", "text", "list", "size", "key", "no object", "number"],
)
def test_a_line_that_holds_no_answer_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    predict(Backend(), tmp_path)
    with (tmp_path / "val.0-of-1.jsonl").open("a") as file:
        file.write(f"{line}\n")
    again = Backend()
    predict(again, tmp_path)
    assert again.asked == []
    assert "1 torn line(s) passed over" in capsys.readouterr().err


def test_a_lock_file_of_somebody_else_stops_nobody(tmp_path: Path) -> None:
    for name in ("val.old.lock", "val.old.1-of-2.lock", "val..lock"):
        (tmp_path / name).touch()
    again = Backend()
    predict(again, tmp_path)
    assert again.asked == [0, 1, 3]


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP], ids=errno.errorcode.get)
def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Else the file that a killed job left would count as a lock for ever."""

    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(DataError, match=rf"^{re.escape(str(tmp_path))}: this file system has no locks .*-o flock"):
        predict(Backend(), tmp_path)
