"""The rows that pass between the stages, and the closed sets of words in them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

# A line of a truth file: id, source_id, image, width, height, expression and the truth of its task.
TruthRow = dict[str, Any]


class Task(StrEnum):
    """What a benchmark asks for."""

    BOXES = "boxes"
    POINTS = "points"
    ANSWERS = "answers"
    MASKS = "masks"


class Status(StrEnum):
    """What became of one sample; every status but `ok` and `truncated` counts as a wrong answer."""

    OK = "ok"
    UNPARSED = "unparsed"
    TRUNCATED = "truncated"
    REFUSED = "refused"
    EMPTY = "empty"
    ERROR = "error"
    MISSING = "missing"


class Notation(StrEnum):
    """How a model writes its answer."""

    KOSMOS = "kosmos"
    JSON = "json"
    BRACKETS = "brackets"
    TUPLES = "tuples"
    MOLMO = "molmo"
    MOLMO2 = "molmo2"
    GEMINI = "gemini"
    SURDS = "surds"
    RLE = "rle"


class Coordinates(StrEnum):
    """The unit of a model's numbers; `resized_pixels` are those of the image the model saw."""

    UNIT = "unit"
    PERCENT = "percent"
    PER_MILLE = "per_mille"
    PIXELS = "pixels"
    RESIZED_PIXELS = "resized_pixels"


class Order(StrEnum):
    """Which axis a model writes first."""

    XY = "xy"
    YX = "yx"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFormat:
    """How a model answers one task, as its config declares; nothing here is ever guessed.

    `coordinates` and `order` are None where the notation has no free coordinates (`kosmos`, `surds`,
    `rle`); `grid` is the side of the Kosmos patch grid, None elsewhere.
    """

    notation: Notation
    coordinates: Coordinates | None
    order: Order | None
    prompt: str
    grid: int | None


def parse_answer_format(text: str) -> AnswerFormat:
    """The answer format whose fields are the JSON object `text`."""
    entry = json.loads(text)
    return AnswerFormat(
        notation=Notation(entry["notation"]),
        coordinates=Coordinates(entry["coordinates"]) if entry["coordinates"] else None,
        order=Order(entry["order"]) if entry["order"] else None,
        prompt=entry["prompt"],
        grid=entry["grid"],
    )


@dataclass(frozen=True, slots=True)
class Request:
    """One line of a request file: what a model is asked about which image."""

    id: int  # line of the request file, from 0
    image: str  # path, relative to the working directory or absolute
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One answer. `status` is what the backend saw: ok, truncated, refused, empty, error or missing."""

    id: int
    status: Status
    text: str | None = None
    rle: Mapping[str, Any] | None = None  # masks: {"size": [height, width], "counts": str or list}
    no_target: bool | None = None  # masks: the model's explicit word; None where it has none
    image_size: tuple[int, int] | None = None  # (width, height) of the image the model saw
    finish_reason: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    weights: str | None = None  # which weights answered: commit or digest, where a model ran on this machine


def limited(rows: Sequence[TruthRow], limit: int | None) -> Sequence[TruthRow]:
    """The first `limit` rows; a unit of paired questions is never cut in two, so it may be one more."""
    if limit is None or limit >= len(rows):
        return rows
    end = limit
    while end < len(rows) and "unit" in rows[end] and rows[end]["unit"] == rows[end - 1]["unit"]:
        end += 1
    return rows[:end]
