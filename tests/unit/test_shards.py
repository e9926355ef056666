"""Shards: together they are the whole, and nothing is in two of them."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reftables.errors import DataError
from reftables.files import canonical_json, write_predictions
from reftables.rows import Prediction, Request, Status
from reftables.shards import WHOLE, Shard
from reftables.stages import gather

FORM = canonical_json({"notation": "kosmos", "coordinates": None, "order": None, "prompt": "kosmos", "grid": 32})
REQUESTS = [Request(number, f"{number // 2}.jpg", "cat") for number in range(10)]


def image_of(request: Request) -> str:
    return request.image


def test_a_shard_reads_and_writes_as_in_file_names() -> None:
    assert Shard.parse("2-of-13") == Shard(2, 13)
    assert str(Shard(2, 13)) == "2-of-13"


@pytest.mark.parametrize("text", ["3-of-3", "0-of-0", "-1-of-2", "1", "1-of-", "0-of-1 "])
def test_what_names_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a shard reads 0-of-3"):
        Shard.parse(text)


def test_one_shard_is_the_whole() -> None:
    assert WHOLE.part_of(REQUESTS, image_of) == REQUESTS


def test_shards_take_turns_by_image() -> None:
    assert [request.id for request in Shard(1, 3).part_of(REQUESTS, image_of)] == [2, 3, 8, 9]


@given(images=st.lists(st.sampled_from("abcdefgh"), max_size=30), count=st.integers(1, 6))
@settings(max_examples=60)
def test_every_request_is_in_exactly_one_shard_and_no_image_in_two(images: list[str], count: int) -> None:
    requests = [Request(number, image, "cat") for number, image in enumerate(images)]
    parts = [Shard(number, count).part_of(requests, image_of) for number in range(count)]
    assert sorted(request.id for part in parts for request in part) == list(range(len(images)))
    assert sum(len({request.image for request in part}) for part in parts) == len(set(images))


def test_the_first_samples_are_cut_like_the_whole() -> None:
    first = Shard(1, 2).part_of(REQUESTS[:7], image_of)
    assert first == [request for request in Shard(1, 2).part_of(REQUESTS, image_of) if request.id < 7]


def gather_shards(folder: Path, *shards: list[int], limit: int | None = None) -> str:
    """The prediction file made of shards with these ids, of five requests."""
    (folder / "requests").write_text("".join(f"[image]{n}.jpg<tab>cat\n" for n in range(5)))
    (folder / "truth").write_text("".join(f'{{"id":{n}}}\n' for n in range(5)))
    for number, ids in enumerate(shards):
        path = folder / f"val.{number}-of-{len(shards)}.jsonl"
        write_predictions(path, [Prediction(id=i, status=Status.OK, text=f"{i}") for i in ids])
    limited = [] if limit is None else ["--limit", str(limit), "--truth", str(folder / "truth")]
    files = ["--requests", str(folder / "requests"), "--predictions", str(folder / "gathered")]
    shards_of = ["--shard", str(folder / "val.{shard}-of-{shards}.jsonl"), "--shards", str(len(shards))]
    gather.main(["--format", FORM, *limited, *files, *shards_of])
    return (folder / "gathered").read_text()


def test_gathered_predictions_are_complete_and_sorted(tmp_path: Path) -> None:
    lines = gather_shards(tmp_path, [0, 3], [1, 4], [2]).splitlines()
    assert lines == [f'{{"id":{n},"status":"ok","text":"{n}"}}' for n in range(5)]


def test_the_first_samples_are_gathered_alone(tmp_path: Path) -> None:
    assert gather_shards(tmp_path, [0], [1, 2], limit=3).count("\n") == 3


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ([[0, 2, 4], [1]], r"val\.0-of-2\.jsonl, .*val\.1-of-2\.jsonl: 4 of 5 samples are there, missing ids 3\."),
        ([[0, 2, 4], [1, 2, 3]], r"ids 2 stand more than once\."),
        ([[0, 2, 4], [1, 3, 5]], r"unknown ids 5\."),
    ],
    ids=["missing", "twice", "unknown"],
)
def test_shards_that_are_not_the_whole_are_refused(tmp_path: Path, shards: list[list[int]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        gather_shards(tmp_path, *shards)
    assert not (tmp_path / "gathered").exists()
