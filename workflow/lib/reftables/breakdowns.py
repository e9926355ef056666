"""What kinds of samples a model gets right: the lead metric by properties of the sample.

Object size is the share of the image that the true mask covers, or the true box where there is no mask:
COCO's bounds in pixels would call every object of RefCOCO large. Position words are those that place an
object in the image or beside another. SURDS rows also carry their camera and which of the two
complementary questions they are, points their step and scene where the files have them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reftables import rle
from reftables.results import Scoring
from reftables.rows import Task, TruthRow
from reftables.samples import Samples
from reftables.scoring.intervals import intervals
from reftables.scoring.scores import Ratio

# The metric a task is told by: the first of these that has a value.
LEAD_METRICS: Mapping[Task, Sequence[str]] = {
    Task.BOXES: ("precision@1",),
    Task.POINTS: ("accuracy",),
    Task.ANSWERS: ("score",),
    Task.MASKS: ("mean_iou", "gres_giou"),
}
SIZES = ((0.01, "under 1 %"), (0.05, "1-5 %"), (0.2, "5-20 %"), (np.inf, "20 % and more"))
LENGTHS = ((2, "1-2 words"), (5, "3-5 words"), (9, "6-9 words"), (np.inf, "10 words or more"))
_POSITION = re.compile(
    r"\b(?:left|right|top|bottom|upper|lower|middle|cent(?:er|re)|front|back|behind|above|below|under|beside|"
    r"between|near(?:est)?|closest|far(?:thest)?|next to|corner|side|(?:left|right|bottom|top)most)\b",
    re.IGNORECASE,
)
_CAMERA = re.compile(r"(?:^|/)(CAM_[A-Z_]+?)/")
# Fields of a truth row that are breakdowns as they stand.
_FIELDS = ("step", "scene", "variant")


class Part(NamedTuple):
    """The lead metric over the rows of one group; value and interval are fractions."""

    breakdown: str
    group: str
    n: int
    value: float
    low: float | None
    high: float | None


def labels(truth: Sequence[TruthRow]) -> dict[str, list[str]]:
    """Name of a breakdown to the group of each row, empty where the row has none; only those with two groups."""
    found = {
        "object size": _sizes(truth),
        "expression length": [_first_above(len(row["expression"].split()), LENGTHS) for row in truth],
        "position words": ["with" if _POSITION.search(row["expression"]) else "without" for row in truth],
        "camera": [match[1] if (match := _CAMERA.search(row["image"])) else "" for row in truth],
        **{name: [f"{name} {row[name]}" if row.get(name) else "" for row in truth] for name in _FIELDS},
    }
    return {name: groups for name, groups in found.items() if len(set(groups) - {""}) > 1}


def _first_above(value: float, bounds: Sequence[tuple[float, str]]) -> str:
    return next(name for bound, name in bounds if value <= bound)


def _sizes(truth: Sequence[TruthRow]) -> list[str]:
    shares = _areas(truth) / [row["width"] * row["height"] for row in truth]
    return ["" if np.isnan(share) else next(name for bound, name in SIZES if share < bound) for share in shares]


def _areas(truth: Sequence[TruthRow]) -> NDArray[np.float64]:
    """(rows,): pixels of the true mask or box, NaN where a row has neither."""
    areas = np.full(len(truth), np.nan)
    masked = [i for i, row in enumerate(truth) if row.get("mask")]
    areas[masked] = rle.areas([truth[i]["mask"] for i in masked])
    for i, row in enumerate(truth):
        if not row.get("mask") and (box := row.get("bbox_xywh")):
            areas[i] = box[2] * box[3]
        elif not row.get("mask") and (box := row.get("bbox")):
            areas[i] = (box[2] - box[0]) * (box[3] - box[1])
    return areas


def lead_metric(task: Task, samples: Samples, scoring: Scoring) -> str | None:
    """The metric a task is told by; None where it has no value."""
    known = samples.metrics(scoring)
    return next(
        (
            metric
            for metric in LEAD_METRICS[task]
            if metric in known and not np.isnan(samples.values(scoring, metric)).all()
        ),
        None,
    )


class Told(NamedTuple):
    """What is broken down: the samples of one model under one metric."""

    samples: Samples
    scoring: Scoring
    metric: str


def break_down(told: Mapping[str, Told], groups: Mapping[str, Sequence[str]]) -> dict[str, list[Part]]:
    """The metric over every group, by the names of `told`: of one split, row by row the same samples.

    Intervals are made like those of a split's metrics: images are drawn, the same ones for all.
    """
    if not told:
        return {}
    masks = {
        (breakdown, group): np.array([member == group for member in members])
        for breakdown, members in groups.items()
        for group in _ordered(members)
    }
    ratios = {
        (name, key): Ratio(whole.numerator * rows, whole.denominator * rows)
        for name, whole in ((name, one.samples.ratio(one.scoring, one.metric)) for name, one in told.items())
        for key, rows in masks.items()
    }
    any_one = next(iter(told.values()))
    n = round(float(any_one.samples.weights(any_one.metric).sum()))
    bounds = intervals({str(key): ratio for key, ratio in ratios.items()}, any_one.samples.images, n=n)
    parts: dict[str, list[Part]] = {name: [] for name in told}
    for (name, key), ratio in ratios.items():
        if (value := ratio.value) is not None:
            weights = told[name].samples.weights(told[name].metric)
            size = round(float((weights * (ratio.denominator > 0)).sum()))
            parts[name].append(Part(*key, size, value, *(bounds[str((name, key))] or (None, None))))
    return parts


def _ordered(groups: Sequence[str]) -> list[str]:
    """The groups that occur: sizes and lengths as they grow, the others by name."""
    known = [name for _, name in (*SIZES, *LENGTHS)]
    return sorted(set(groups) - {""}, key=lambda name: (known.index(name) if name in known else len(known), name))
