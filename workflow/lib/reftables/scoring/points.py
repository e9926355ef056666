"""Pointing: a sample's score is the share of the given points that lie inside the mask.

All points count, also repeated ones and those outside the image; an answer without any scores 0. The
mean is over all samples, where the authors' script leaves out those at which its parser raises.
`any_hit` and `first_point` ask whether any point, or the first one, lies inside.

Source: Zhoues/RoboRefer, Evaluation/summarize_acc.py.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reftables.errors import DataError, preview
from reftables.rows import AnswerFormat, Coordinates, Notation, Prediction, Status, TruthRow
from reftables.scoring.mask_runs import MaskRuns
from reftables.scoring.official_points import AnswerDroppedError, Region, ScriptBrokenError, official_parser
from reftables.scoring.point_parsers import Axes, Reading, axes_of, coordinates_of, read_answer
from reftables.scoring.scores import Ratio, Scores

METRICS = ("accuracy", "any_hit", "first_point")
BREAKDOWNS = ("step", "scene")  # as far as the truth has them

_READABLE = frozenset({Status.OK, Status.TRUNCATED})
_LIMITS = {Coordinates.UNIT: 1.0, Coordinates.PERCENT: 100.0, Coordinates.PER_MILLE: 1000.0}

MaskOf = Callable[[Mapping[str, Any]], MaskRuns]


class Official(NamedTuple):
    """The authors' scoring: as in `Scores`."""

    ratios: Mapping[str, Ratio] | None = None
    undefined: NDArray[np.bool_] | None = None
    dropped: int | None = None


def score(
    truth: Sequence[TruthRow], predictions: Sequence[Prediction], form: AnswerFormat, options: Mapping[str, Any]
) -> Scores:
    """The scores of a split; row i of `truth` is what `predictions[i]` answers. Points have no options."""
    mask_of = _reader_of_masks()
    axes = axes_of(form)
    readings = _read_answers(truth, predictions, form, axes)
    robust = [_rates(reading.regions, mask_of(row["mask"])) for row, reading in zip(truth, readings, strict=True)]
    official = _score_officially(truth, predictions, form, mask_of)
    notes = _contradictions(truth, predictions, readings, axes)
    if form.notation == Notation.KOSMOS:
        notes.insert(0, "Kosmos answers with boxes; its points are the centres of the boxes.")
    return Scores(
        n=len(truth),
        requests=None,
        statuses=[
            reading.status if prediction.status == Status.OK else prediction.status
            for prediction, reading in zip(predictions, readings, strict=True)
        ],
        official=official.ratios,
        robust=_ratios(robust),
        official_undefined=official.undefined,
        official_dropped=official.dropped,
        groups={name: [row[name] for row in truth] for name in BREAKDOWNS if all(name in row for row in truth)},
        notes=notes,
    )


def _reader_of_masks() -> MaskOf:
    """Reads each distinct mask once, in whatever row and scoring it stands."""

    @cache
    def read(counts: str, height: int, width: int) -> MaskRuns:
        return MaskRuns(counts, height=height, width=width)

    return lambda rle: read(rle["counts"], *rle["size"])


def _read_answers(
    truth: Sequence[TruthRow], predictions: Sequence[Prediction], form: AnswerFormat, axes: Axes
) -> list[Reading]:
    """The tolerant reading of every answer; of a refusal or an error that of no text."""
    texts = [prediction.text if prediction.status in _READABLE else None for prediction in predictions]
    if axes.coordinates is Coordinates.RESIZED_PIXELS:
        unknown = [p.id for p, text in zip(predictions, texts, strict=True) if text and p.image_size is None]
        if unknown:
            raise DataError(
                f"{len(unknown):,} answers in resized pixels do not say how large the image was that the model saw: "
                f"sample ids {preview(unknown)}. Record image_size with each answer, or declare other "
                "coordinates (pixels: those of the original image)."
            )
    return [
        read_answer(text, form, axes, (row["width"], row["height"]), prediction.image_size)
        for text, row, prediction in zip(texts, truth, predictions, strict=True)
    ]


def _score_officially(
    truth: Sequence[TruthRow], predictions: Sequence[Prediction], form: AnswerFormat, mask_of: MaskOf
) -> Official:
    """The authors' parser and arithmetic; an answer that stops their parser or their script is wrong."""
    parse = official_parser(form)
    if parse is None:
        return Official()
    rates = [(0.0, 0.0, 0.0)] * len(truth)
    undefined = np.zeros(len(truth), dtype=bool)
    dropped = 0
    for place, (row, prediction) in enumerate(zip(truth, predictions, strict=True)):
        if prediction.text is None:
            dropped += 1
        elif prediction.status in _READABLE:
            try:
                regions = parse(prediction.text, row["width"], row["height"])
            except AnswerDroppedError:
                dropped += 1
            except ScriptBrokenError:
                undefined[place] = True
            else:
                rates[place] = _rates(regions, mask_of(row["mask_official" if "mask_official" in row else "mask"]))
    return Official(_ratios(rates), undefined, dropped)


def _rates(regions: Sequence[Region], mask: MaskRuns) -> tuple[float, float, float]:
    """The three metrics of one sample, whose regions have at least a pixel each."""
    if not regions:
        return 0.0, 0.0, 0.0
    hits = sum(mask.count(*region) for region in regions)
    points = sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in regions)
    x, y = regions[0][:2]  # the first pixel of a box, as the authors list them
    return hits / points, float(hits > 0), float(mask.count(x, y, x + 1, y + 1))


def _ratios(rates: Iterable[tuple[float, float, float]]) -> dict[str, Ratio]:
    columns = np.array(list(rates), dtype=np.float64).reshape(-1, len(METRICS)).T
    return {metric: Ratio.mean(values) for metric, values in zip(METRICS, columns, strict=True)}


def _contradictions(
    truth: Sequence[TruthRow], predictions: Sequence[Prediction], readings: Sequence[Reading], axes: Axes
) -> list[str]:
    """A note where most answers' first point or box cannot be what the format declares."""
    answered = beyond = within_one = 0
    for row, prediction, reading in zip(truth, predictions, readings, strict=True):
        if not reading.groups:
            continue
        group = reading.groups[0]
        coordinates = coordinates_of(group, axes)
        limits_xy = _limits_xy(coordinates, row, prediction)
        answered += 1
        beyond += any(value > limit for value, limit in zip(group.in_xy(axes), limits_xy * 2, strict=False))
        within_one += coordinates is not Coordinates.UNIT and max(group.numbers) <= 1
    start = f"Most answers contradict the declared coordinates ({axes.coordinates}):"
    if 2 * beyond > answered:
        limit = f"{_LIMITS[axes.coordinates]:g}" if axes.coordinates in _LIMITS else "the image"
        return [f"{start} {beyond:,} of {answered:,} points lie beyond {limit}."]
    if 2 * within_one > answered:
        return [f"{start} {within_one:,} of {answered:,} points hold no number above 1."]
    return []


def _limits_xy(coordinates: Coordinates, row: TruthRow, prediction: Prediction) -> tuple[float, float]:
    if coordinates in _LIMITS:
        return (_LIMITS[coordinates],) * 2
    if coordinates is Coordinates.RESIZED_PIXELS and prediction.image_size is not None:
        return prediction.image_size
    return row["width"], row["height"]
