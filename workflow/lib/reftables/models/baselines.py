"""Answers that need no model: the truth itself, the middle, the whole image, chance.

oracle       the truth, written in the declared format: what the format and the scorer lose on the way
center       a box of half the width and height in the middle, the middle itself, the first option
whole-image  the whole image; boxes and masks only
random       a box with corners, a point or an option drawn evenly; the draw of a sample depends on
             `seed`, benchmark, split and id alone, never on the order, the shards or the limit

They read truth rows for sizes, options and, the oracle alone, for answers; they open no image.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from reftables.errors import ConfigError
from reftables.models.job import Job
from reftables.models.writing import (
    box_mask,
    empty_mask,
    expand_counts,
    seen_size,
    write_box,
    write_choice,
    write_place,
    write_points,
)
from reftables.rows import Prediction, Request, Status, Task, TruthRow

READS_TRUTH = True
LOOKS = False
STORED = False
WRITES_FORMAT = True
TASKS = frozenset(Task)
REQUIRED = frozenset({"strategy"})
OPTIONAL = frozenset({"seed"})
EXECUTION: frozenset[str] = frozenset()

Box = tuple[float, float, float, float]  # xyxy in pixels
Point = tuple[float, float]


class Strategy(StrEnum):
    """Where the answers come from."""

    ORACLE = "oracle"
    CENTER = "center"
    WHOLE_IMAGE = "whole-image"
    RANDOM = "random"


def answer_files(identity: Mapping[str, Any], *, model: str, benchmark: str, split: str) -> list[str]:
    """None: the answers are made here."""
    return []


def predict(requests: Sequence[Request], job: Job) -> Iterator[Prediction]:
    """One answer a request; ConfigError where the identity makes no baseline of this task."""
    strategy = _strategy(job)
    if job.truth is None:
        raise ValueError("the baselines read the truth file, for sizes and options")
    answer = _ANSWERS[job.task]
    for request in requests:
        yield answer(request.id, job.truth[request.id], strategy, job)


def check(job: Job) -> None:
    """ConfigError where the identity makes no baseline of this task."""
    _strategy(job)


def _strategy(job: Job) -> Strategy:
    key = f"models.{job.model}.identity"
    try:
        strategy = Strategy(job.identity["strategy"])
    except ValueError as error:
        raise ConfigError(
            f"{key}.strategy: {job.identity['strategy']!r} is unknown; strategies: {', '.join(Strategy)}"
        ) from error
    if ("seed" in job.identity) != (strategy is Strategy.RANDOM):
        raise ConfigError(f"{key}.seed: strategy random needs a seed, and no other strategy has one")
    if strategy is Strategy.WHOLE_IMAGE and job.task not in (Task.BOXES, Task.MASKS):
        raise ConfigError(f"models.{job.model}.formats.{job.task}: strategy whole-image answers boxes and masks only")
    return strategy


def _box_answer(id_: int, row: TruthRow, strategy: Strategy, job: Job) -> Prediction:
    size_wh = row["width"], row["height"]
    box = _true_box(row["bbox_xywh"]) if strategy is Strategy.ORACLE else _box(id_, size_wh, strategy, job)
    text = write_box(box, job.form, size_wh, phrase=row["expression"])
    return Prediction(id=id_, status=Status.OK, text=text, image_size=seen_size(job.form, size_wh))


def _point_answer(id_: int, row: TruthRow, strategy: Strategy, job: Job) -> Prediction:
    size_wh = row["width"], row["height"]
    point = inner_point(row["mask"]) if strategy is Strategy.ORACLE else _point(id_, size_wh, strategy, job)
    text = write_points([point], job.form, size_wh, phrase=row["expression"])
    return Prediction(id=id_, status=Status.OK, text=text, image_size=seen_size(job.form, size_wh))


def _mask_answer(id_: int, row: TruthRow, strategy: Strategy, job: Job) -> Prediction:
    size_wh = row["width"], row["height"]
    if strategy is not Strategy.ORACLE:
        return Prediction(id=id_, status=Status.OK, rle=box_mask(_box(id_, size_wh, strategy, job), size_wh))
    if row.get("no_target"):
        return Prediction(id=id_, status=Status.OK, rle=empty_mask(size_wh), no_target=True)
    return Prediction(id=id_, status=Status.OK, rle=row["mask"])


def _question_answer(id_: int, row: TruthRow, strategy: Strategy, job: Job) -> Prediction:
    options: Sequence[str] | None = row["options"]
    if options is None:
        x0, y0, x1, y1 = row["bbox"]
        size_wh = row["width"], row["height"]
        oracle = strategy is Strategy.ORACLE
        text = write_place(((x0 + x1) / 2, (y0 + y1) / 2) if oracle else _point(id_, size_wh, strategy, job))
    elif strategy is Strategy.ORACLE:
        text = write_choice(row["answer"])
    elif strategy is Strategy.RANDOM:
        text = write_choice(options[int(_draws(id_, job)[0] * len(options))])
    else:
        text = write_choice(options[0])
    return Prediction(id=id_, status=Status.OK, text=text)


_ANSWERS = {
    Task.BOXES: _box_answer,
    Task.POINTS: _point_answer,
    Task.MASKS: _mask_answer,
    Task.ANSWERS: _question_answer,
}


def _true_box(bbox_xywh: Sequence[float]) -> Box:
    x, y, width, height = bbox_xywh
    return x, y, x + width, y + height


def _box(id_: int, size_wh: tuple[int, int], strategy: Strategy, job: Job) -> Box:
    width, height = size_wh
    if strategy is Strategy.CENTER:
        return width / 4, height / 4, width * 3 / 4, height * 3 / 4
    if strategy is Strategy.WHOLE_IMAGE:
        return 0, 0, width, height
    draws = _draws(id_, job)
    (x0, x1), (y0, y1) = sorted(draws[:2]), sorted(draws[2:])
    return x0 * width, y0 * height, x1 * width, y1 * height


def _point(id_: int, size_wh: tuple[int, int], strategy: Strategy, job: Job) -> Point:
    x, y = (0.5, 0.5) if strategy is Strategy.CENTER else _draws(id_, job)[:2]
    return x * size_wh[0], y * size_wh[1]


def _draws(id_: int, job: Job) -> list[float]:
    """Four even draws from [0, 1), the same on every machine."""
    name = f"{job.identity['seed']}\n{job.benchmark}\n{job.split}\n{id_}"
    digest = blake2b(name.encode(), digest_size=28).digest()
    return [int.from_bytes(digest[i : i + 7]) / 2**56 for i in range(0, 28, 7)]


def inner_point(rle: Mapping[str, Any]) -> Point:
    """The centre of a pixel inside a mask that is not empty: the middle of its longest run down a column."""
    height = rle["size"][0]
    longest, middle = 0, 0
    start = 0
    for number, count in enumerate(expand_counts(rle["counts"])):
        if number % 2 and count > longest:
            longest, middle = count, start + count // 2
        start += count
    return middle // height + 0.5, middle % height + 0.5
