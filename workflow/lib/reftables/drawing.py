"""What is drawn over a sample's picture: its truth, and what the robust parser reads in an answer.

All shapes are in pixels of the original image. A drawing is text in an SVG whose view box is the image.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pycocotools import mask as coco_mask

from reftables import rle
from reftables.rows import AnswerFormat, Notation, Prediction, Status, Task, TruthRow
from reftables.scoring import answers, boxes, masks, point_parsers

OUTLINE_SIDE = 160  # pixels of the longer side that an outline is traced at
MOST_SHAPES = 50  # of one answer; the rest is counted in words


@dataclass(frozen=True, slots=True)
class Shape:
    """One SVG element: its name and its attributes."""

    element: str
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Drawing:
    """The shapes of a sample, and in words what its truth is and what was read in the answer."""

    truth: Sequence[Shape]
    predicted: Sequence[Shape]
    asked: str
    read: str


def box(xyxy: Sequence[float]) -> Shape:
    x0, y0, x1, y1 = xyxy
    sides = {"x": x0, "y": y0, "width": max(0, x1 - x0), "height": max(0, y1 - y0)}
    return Shape("rect", {name: f"{value:g}" for name, value in sides.items()})


def dot(x: float, y: float, size_wh: tuple[int, int]) -> Shape:
    return Shape("circle", {"cx": f"{x:g}", "cy": f"{y:g}", "r": f"{max(size_wh) / 90:.1f}", "class": "dot"})


def outline(encoded: Mapping[str, Any]) -> Shape:
    """The border of a mask, traced between pixels at OUTLINE_SIDE or at the mask's own size if that is smaller."""
    decoded = coco_mask.decode(encoded)
    height, width = decoded.shape
    shrink = max(1.0, max(height, width) / OUTLINE_SIDE)
    rows, columns = (
        np.minimum(((np.arange(int(side / shrink)) + 0.5) * shrink).astype(np.int64), side - 1)
        for side in (height, width)
    )
    small = np.pad(decoded[np.ix_(rows, columns)], 1)
    across = _segments(np.diff(small, axis=0) != 0, "h")
    down = _segments((np.diff(small, axis=1) != 0).T, "v")
    scale = f"scale({width / len(columns):g} {height / len(rows):g})"
    return Shape("path", {"d": "".join([*across, *down]), "transform": scale})


def _segments(edges: NDArray[np.bool_], direction: str) -> Iterator[str]:
    """Runs of edges as path commands; row i of `edges` lies on line i, its first column one before the image."""
    padded = np.pad(edges.astype(np.int8), ((0, 0), (1, 1)))
    steps = np.diff(padded, axis=1)
    lines, starts = np.nonzero(steps == 1)
    _, ends = np.nonzero(steps == -1)
    for line, start, end in zip(lines.tolist(), (starts - 1).tolist(), (ends - 1).tolist(), strict=True):
        x, y = (start, line) if direction == "h" else (line, start)
        yield f"M{x} {y}{direction}{end - start}"


def draw(task: Task, truth: Sequence[TruthRow], predictions: Sequence[Prediction], form: AnswerFormat) -> list[Drawing]:
    """The drawings of some samples of a split; row i of `truth` is what `predictions[i]` answers."""
    drawers = {Task.BOXES: _boxes, Task.POINTS: _points, Task.ANSWERS: _answers, Task.MASKS: _masks}
    return list(drawers[task](truth, predictions, form))


def _boxes(truth: Sequence[TruthRow], predictions: Sequence[Prediction], form: AnswerFormat) -> Iterator[Drawing]:
    found = boxes.read_answers(truth, predictions, form).boxes
    for i, row in enumerate(truth):
        x, y, width, height = row["bbox_xywh"]
        true_xyxy = [x, y, x + width, y + height]
        read = found.xyxy[found.rows == i].tolist()
        words = f"box {_numbers(read[0])}" if read else ""
        yield Drawing(
            [box(true_xyxy)], [box(b) for b in read[:MOST_SHAPES]], f"box {_numbers(true_xyxy)}", _more(words, read)
        )


def _more(words: str, found: Sequence[object]) -> str:
    return f"{words}, the first of {len(found):,}" if len(found) > 1 else words


def _numbers(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.1f}".removesuffix(".0") for value in values)


def _points(truth: Sequence[TruthRow], predictions: Sequence[Prediction], form: AnswerFormat) -> Iterator[Drawing]:
    axes = point_parsers.axes_of(form)
    for row, prediction in zip(truth, predictions, strict=True):
        size_wh = row["width"], row["height"]
        regions = point_parsers.read_answer(_readable(prediction), form, axes, size_wh, prediction.image_size).regions
        shapes = [
            dot(x0 + 0.5, y0 + 0.5, size_wh) if (x1 - x0, y1 - y0) == (1, 1) else box((x0, y0, x1, y1))
            for x0, y0, x1, y1 in regions[:MOST_SHAPES]
        ]
        words = f"point {_numbers(regions[0][:2])}" if regions else ""
        yield Drawing([outline(row["mask"])], shapes, "the outlined region", _more(words, regions))


def _answers(truth: Sequence[TruthRow], predictions: Sequence[Prediction], form: AnswerFormat) -> Iterator[Drawing]:
    for row, prediction in zip(truth, predictions, strict=True):
        _, reading = answers.read_robust(_readable(prediction) or "", row)
        size_wh = row["width"], row["height"]
        yield Drawing(
            [box(row["bbox"])] if row.get("bbox") else [],
            [dot(*reading, size_wh)] if isinstance(reading, tuple) else [],
            str(row["answer"]) if row.get("answer") else f"inside the box {_numbers(row['bbox'])}",
            _said(reading),
        )


def _said(reading: answers.Reading) -> str:
    if reading is None:
        return ""
    if isinstance(reading, bool):
        return "the right option" if reading else "another option"
    return f"point {_numbers(reading)}"


def _readable(prediction: Prediction) -> str | None:
    """The text to read: none of a refusal or an error."""
    return prediction.text if prediction.status in (Status.OK, Status.TRUNCATED) else None


def _masks(truth: Sequence[TruthRow], predictions: Sequence[Prediction], form: AnswerFormat) -> Iterator[Drawing]:
    read = (
        masks.read_masks(predictions) if form.notation is Notation.RLE else masks.fill_boxes(truth, predictions, form)
    )
    checked = masks.check(truth, read.masks)
    for row, mask, says_none in zip(truth, checked, read.says_none, strict=True):
        area = int(rle.areas([mask])[0]) if mask is not None else 0
        yield Drawing(
            [] if row.get("no_target") else [outline(row["mask"])],
            [outline(mask)] if mask is not None and area and not says_none else [],
            "no target" if row.get("no_target") else "the outlined region",
            "no target" if says_none else "" if mask is None else f"a mask of {area:,} pixels",
        )
