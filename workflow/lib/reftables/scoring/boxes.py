"""Referring expression comprehension: an expression counts where the IoU of box and truth is at least 0.5.

Official scorer (notation `kosmos` only): microsoft/unilm, kosmos-2/evaluation: refcoco/refexp_evaluate.py,
refcoco/box_ops.py, flickr_entities/decode_string.py. The robust one keeps its arithmetic and differs in
what it reads: phrases as the tokenizer leaves them, and boxes in text in the declared notation and
coordinates; an answer that leaves the grid, or whose first box has inverted corners, is unparsed.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reftables.errors import ConfigError, DataError, preview
from reftables.kosmos import decode_pairs, find_groundings, is_cut, normalise_caption
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Prediction, Status, TruthRow
from reftables.scoring import parsing
from reftables.scoring.scores import Ratio, Scores

IOU_THRESHOLD = 0.5

_READABLE = frozenset({Status.OK, Status.TRUNCATED})
_FARTHEST = 1e9  # no coordinate lies beyond; keeps areas finite in float32

_BOX_KEYS = ("bbox_2d", "box_2d", "bbox", "box")
_NAMED_NUMBER = rf"\s*(?:[A-Za-z]\w{{0,15}}\s*[=:]\s*)?[\"']?({parsing.NUMBER})[\"']?\s*"
_TWO = f"{_NAMED_NUMBER},{_NAMED_NUMBER}"
_BRACKETS = re.compile(rf"\[{_TWO},{_TWO}\]")
_TUPLES = re.compile(rf"\({_TWO}(?:,|\)\s*(?:,\s*)?\(){_TWO}\)")
_OPEN_BRACKETS = re.compile(r"\[\s*(?:[-+.0-9\"'][^\[\]]*)?\Z")
_OPEN_TUPLES = re.compile(r"\(\s*(?:[-+.0-9\"'][^()]*)?\Z|\)\s*,\s*\Z")

Box = Sequence[float]  # four numbers as the model wrote them


class Found(NamedTuple):
    """The boxes in a text, in order, and whether the text is cut off inside one."""

    boxes: Sequence[Box]
    cut: bool


class Reading(NamedTuple):
    """What one answer says: its boxes in order, and its status by the robust parser."""

    boxes: Sequence[Box]
    status: Status


class Boxes(NamedTuple):
    """The boxes of a split, answer by answer: `xyxy[i]` of (m, 4) belongs to row `rows[i]`, ascending."""

    rows: NDArray[np.intp]
    xyxy: NDArray[np.float64]

    @property
    def firsts(self) -> NDArray[np.intp]:
        """Where the first box of each answer stands."""
        return np.flatnonzero(np.diff(self.rows, prepend=-1))

    def where(self, kept: NDArray[np.bool_]) -> "Boxes":
        return Boxes(self.rows[kept], self.xyxy[kept])


class Answers(NamedTuple):
    """What the answers of a split say, boxes in pixels of the original images."""

    boxes: Boxes  # as the robust parser reads them
    official: Boxes | None  # as the authors' parser reads them; None where the notation has none
    statuses: list[Status]  # the prediction's where it is not ok, else the robust parser's
    notes: list[str]


def score(
    truth: Sequence[TruthRow], predictions: Sequence[Prediction], form: AnswerFormat, options: Mapping[str, Any]
) -> Scores:
    """The scores of a split; row i of `truth` is what `predictions[i]` answers. Boxes have no options.

    `precision@1`: the first box; `mean_box`: the mean of all boxes; `upper_bound`: any box; `mean_iou`:
    the mean IoU of the first box. An answer without a box counts as the box 0, 0, 0, 0 of the authors.
    """
    answers = read_answers(truth, predictions, form)
    truth_xyxy = _truth_boxes(truth)
    return Scores(
        n=len(truth),
        requests=None,
        statuses=answers.statuses,
        official=None if answers.official is None else measure(answers.official, truth_xyxy),
        robust=measure(answers.boxes, truth_xyxy),
        columns=_columns(answers.boxes, len(truth)),
        notes=answers.notes,
    )


def read_answers(truth: Sequence[TruthRow], predictions: Sequence[Prediction], form: AnswerFormat) -> Answers:
    """The boxes in the answers to a split; of the truth it takes the sizes, for Kosmos also the captions."""
    if form.notation == Notation.KOSMOS:
        return _read_kosmos(truth, predictions, form)
    return _read_texts(truth, predictions, form)


def paired_iou(boxes: NDArray[np.float32], truth: NDArray[np.float32]) -> NDArray[np.float32]:
    """IoU of `boxes[i]` with `truth[i]`: (n, 4) and (n, 4) to (n,).

    xyxy in pixels of the original image, continuous (no +1). Float32 in the authors' order: at exactly
    one half float64 can decide otherwise. A union of 0 gives 0, and so do inverted boxes, whose
    negative area can make it negative.
    """
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    truth_areas = (truth[:, 2] - truth[:, 0]) * (truth[:, 3] - truth[:, 1])
    upper_left = np.maximum(boxes[:, :2], truth[:, :2])
    lower_right = np.minimum(boxes[:, 2:], truth[:, 2:])
    sides = np.maximum(lower_right - upper_left, 0)
    intersection = sides[:, 0] * sides[:, 1]
    union = areas + truth_areas - intersection
    iou: NDArray[np.float32] = np.divide(intersection, union, out=np.zeros_like(union), where=union > 0)
    return iou


def measure(boxes: Boxes, truth_xyxy: NDArray[np.float64]) -> dict[str, Ratio]:
    """The metrics of `boxes`, xyxy in pixels, against one true box a row, (n, 4)."""
    truth = truth_xyxy.astype(np.float32)
    xyxy = boxes.xyxy.astype(np.float32)
    iou = paired_iou(xyxy, truth[boxes.rows])
    answered = boxes.rows[boxes.firsts]
    first, mean, best = np.zeros((3, len(truth)), dtype=np.float32)
    if answered.size:
        first[answered] = iou[boxes.firsts]
        mean[answered] = paired_iou(_mean_boxes(xyxy, boxes.firsts), truth[answered])
        best[answered] = np.maximum.reduceat(iou, boxes.firsts)
    return {
        "precision@1": Ratio.mean(first >= IOU_THRESHOLD),
        "mean_box": Ratio.mean(mean >= IOU_THRESHOLD),
        "upper_bound": Ratio.mean(best >= IOU_THRESHOLD),
        "mean_iou": Ratio.mean(first),
    }


def _mean_boxes(xyxy: NDArray[np.float32], firsts: NDArray[np.intp]) -> NDArray[np.float32]:
    """The mean box of each answer: (m, 4) to (answers, 4), summed in float32 from the first box to the last."""
    counts = np.diff(firsts, append=len(xyxy))
    total = xyxy[firsts]
    for place in range(1, counts.max()):
        longer = counts > place
        total[longer] += xyxy[firsts[longer] + place]
    means: NDArray[np.float32] = np.divide(total, counts[:, None], dtype=np.float32)
    return means


def _read_kosmos(truth: Sequence[TruthRow], predictions: Sequence[Prediction], form: AnswerFormat) -> Answers:
    if form.grid is None:
        raise ConfigError("formats.boxes.grid is missing: the notation kosmos needs the side of its grid")
    parsed: list[Status] = []
    found: list[tuple[int, int, int, bool, bool]] = []
    for row, (sample, prediction) in enumerate(zip(truth, predictions, strict=True)):
        text = _readable_text(prediction)
        groundings = find_groundings(text)
        parsed.append(_status(text, found=bool(groundings), cut=is_cut(text)))
        for phrase, pairs in groundings:
            official, robust = _is_caption(phrase, sample["expression"])
            found.extend((row, first, second, official, robust) for first, second in pairs)
    table = np.array(found, dtype=np.int64).reshape(-1, 5)
    rows, cells, is_official, is_robust = table[:, 0], table[:, 1:3], table[:, 3] == 1, table[:, 4] == 1
    boxes = Boxes(rows, decode_pairs(cells, form.grid) * np.tile(_sizes(truth)[rows], 2))
    outside = rows[np.any(cells >= form.grid * form.grid, axis=1)]
    counted, inverted = _drop_inverted(boxes.where(is_robust & ~np.isin(rows, outside)))
    statuses = _statuses(predictions, parsed, np.union1d(outside, inverted))
    return Answers(counted, boxes.where(is_official), statuses, notes=[])


def _readable_text(prediction: Prediction) -> str:
    """The text to parse: none of a refusal or an error."""
    return prediction.text or "" if prediction.status in _READABLE else ""


def _is_caption(phrase: str, caption: str) -> tuple[bool, bool]:
    """Whether a phrase is the caption, officially and robustly.

    The authors strip both, and their pattern reads no phrase that is empty or holds `<`.
    """
    official = phrase != "" and "<" not in phrase and phrase.strip() == caption.strip()
    return official, official or normalise_caption(phrase) == normalise_caption(caption)


def _status(text: str, *, found: bool, cut: bool) -> Status:
    """What the robust parser makes of a text, `found` being whether it holds a box."""
    if not text.strip():
        return Status.EMPTY
    if cut:
        return Status.TRUNCATED
    return Status.OK if found else Status.UNPARSED


def _read_texts(truth: Sequence[TruthRow], predictions: Sequence[Prediction], form: AnswerFormat) -> Answers:
    if form.notation not in _FINDERS:
        raise ConfigError(
            f"formats.boxes.notation: {form.notation} has no boxes. "
            f"Choose one of {', '.join([Notation.KOSMOS, *_FINDERS])}."
        )
    coordinates, order = form.coordinates, form.order
    if form.notation == Notation.GEMINI:
        coordinates, order = Coordinates.PER_MILLE, Order.YX
    if coordinates is None:
        raise ConfigError(f"formats.boxes.coordinates is missing: the notation {form.notation} leaves them open")
    readings = [_read_text(_readable_text(prediction), _FINDERS[form.notation]) for prediction in predictions]
    rows = np.repeat(np.arange(len(readings)), [len(reading.boxes) for reading in readings])
    values = np.array([box for reading in readings for box in reading.boxes], dtype=np.float64).reshape(-1, 4)
    values = np.clip(values, -_FARTHEST, _FARTHEST)
    if order == Order.YX:
        values = values[:, [1, 0, 3, 2]]
    written = Boxes(rows, values)
    extents = np.tile(_sizes(truth)[rows], 2)
    seen = np.tile(_seen_sizes(predictions, rows), 2) if coordinates == Coordinates.RESIZED_PIXELS else None
    found, inverted = _drop_inverted(Boxes(rows, parsing.to_pixels(values, coordinates, extents, seen)))
    statuses = _statuses(predictions, [reading.status for reading in readings], inverted)
    return Answers(found, None, statuses, _contradictions(written, coordinates, extents if seen is None else seen))


def _read_text(text: str, find_boxes: Callable[[str], Found]) -> Reading:
    """The boxes of the final answer: of the last `<answer>` that holds any, else of all of it."""
    final = parsing.strip_reasoning(text)
    if final is None:
        return Reading([], Status.TRUNCATED)
    for candidate in parsing.answer_candidates(final):
        boxes, cut = find_boxes(candidate)
        if boxes:
            return Reading(boxes, _status(text, found=True, cut=cut))
    cut = cut or final.rfind("<answer>") > final.rfind("</answer>")
    return Reading([], _status(text, found=False, cut=cut))


def _find_in_json(text: str) -> Found:
    """The boxes under box keys; where there is none, every list of four numbers, be it in a string."""
    values, cut = parsing.scan_json(text)
    boxes = [box for found in values for entry in _objects(found.value) for box in _boxes_of_object(entry)]
    return Found(boxes or _find_in_brackets(text).boxes, cut)


def _objects(value: object) -> Iterator[Mapping[str, Any]]:
    """The objects in a JSON value, in order; none within one that has a box key.

    Without recursion: a value may be nested as deep as the JSON parser allows.
    """
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting.extend(reversed(item))
        elif isinstance(item, dict):
            if any(key in item for key in _BOX_KEYS):
                yield item
            else:
                waiting.extend(reversed(item.values()))


def _boxes_of_object(entry: Mapping[str, Any]) -> list[Box]:
    """The box, or the list of boxes, under the first box key that holds any."""
    for key in _BOX_KEYS:
        value = entry.get(key)
        if isinstance(value, list):
            boxes: list[Box] = [box for item in (value, *value) if (box := _four_numbers(item))]
            if boxes:
                return boxes
    return []


def _four_numbers(value: object) -> list[float] | None:
    if not isinstance(value, list) or len(value) != 4:
        return None
    numbers = [number for item in value if (number := parsing.number(item)) is not None]
    return numbers if len(numbers) == 4 else None


def _find_in_brackets(text: str) -> Found:
    return _find_by_pattern(text, _BRACKETS, _OPEN_BRACKETS)


def _find_in_tuples(text: str) -> Found:
    return _find_by_pattern(text, _TUPLES, _OPEN_TUPLES)


def _find_by_pattern(text: str, pattern: re.Pattern[str], open_end: re.Pattern[str]) -> Found:
    text = unicodedata.normalize("NFKC", text)
    boxes = [[float(number) for number in numbers] for numbers in pattern.findall(text)]
    return Found(boxes, open_end.search(text) is not None)


_FINDERS: Mapping[Notation, Callable[[str], Found]] = {
    Notation.JSON: _find_in_json,
    Notation.BRACKETS: _find_in_brackets,
    Notation.TUPLES: _find_in_tuples,
    Notation.GEMINI: _find_in_json,
}


def _sizes(truth: Sequence[TruthRow]) -> NDArray[np.float64]:
    """(n, 2): width and height of the original images."""
    return np.array([(row["width"], row["height"]) for row in truth], dtype=np.float64).reshape(-1, 2)


def _truth_boxes(truth: Sequence[TruthRow]) -> NDArray[np.float64]:
    """(n, 4): the true boxes, xyxy in pixels."""
    boxes = np.array([row["bbox_xywh"] for row in truth], dtype=np.float64).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    return boxes


def _seen_sizes(predictions: Sequence[Prediction], rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """(m, 2): for each box, width and height of the image the model saw; DataError where an answer lacks it."""
    sizes_wh = {row: predictions[row].image_size for row in np.unique(rows).tolist()}
    if unknown := [predictions[row].id for row, size in sizes_wh.items() if size is None or min(size) <= 0]:
        raise DataError(
            f"{len(unknown):,} answers in resized pixels do not say how large the image was that the model saw: "
            f"sample ids {preview(unknown)}. Record image_size with each answer, or declare other "
            "coordinates (pixels: those of the original image)."
        )
    return np.array([sizes_wh[row] for row in rows.tolist()], dtype=np.float64).reshape(-1, 2)


def _drop_inverted(boxes: Boxes) -> tuple[Boxes, NDArray[np.intp]]:
    """The boxes that count, and the rows that are unparsed because their first box is inverted.

    Corners are never reordered. An inverted box after the first is left out, its answer stands.
    """
    inverted = np.any(boxes.xyxy[:, 2:] < boxes.xyxy[:, :2], axis=1)
    unparsed = boxes.rows[boxes.firsts][inverted[boxes.firsts]]
    return boxes.where(~inverted & ~np.isin(boxes.rows, unparsed)), unparsed


def _statuses(predictions: Sequence[Prediction], parsed: Sequence[Status], unparsed: NDArray[np.intp]) -> list[Status]:
    """The prediction's status where it is not ok, else the parser's; `unparsed` are rows it gave up later."""
    statuses = list(parsed)
    for row in unparsed:
        statuses[row] = Status.UNPARSED
    return [
        status if prediction.status == Status.OK else prediction.status
        for prediction, status in zip(predictions, statuses, strict=True)
    ]


def _columns(boxes: Boxes, n: int) -> dict[str, list[float | None]]:
    """The first box of each row as the robust parser reads it, in pixels, for those who look at samples."""
    columns: dict[str, list[float | None]] = {}
    for name, values in zip(("x1", "y1", "x2", "y2"), boxes.xyxy[boxes.firsts].T.round(2).tolist(), strict=True):
        columns[name] = [None] * n
        for row, value in zip(boxes.rows[boxes.firsts].tolist(), values, strict=True):
            columns[name][row] = value
    return columns


def _contradictions(written: Boxes, coordinates: Coordinates, extents: NDArray[np.float64]) -> list[str]:
    """A note where most first boxes cannot be what the format declares; `extents` (m, 4) for pixels."""
    firsts = written.firsts
    if not firsts.size:
        return []
    values = written.xyxy[firsts]
    most = {Coordinates.UNIT: 1.0, Coordinates.PERCENT: 100.0, Coordinates.PER_MILLE: 1000.0}.get(coordinates)
    beyond = np.count_nonzero((values > (extents[firsts] if most is None else most)).any(axis=1))
    within_one = np.count_nonzero((values <= 1).all(axis=1)) if coordinates != Coordinates.UNIT else 0
    start = f"Most answers contradict the declared coordinates ({coordinates}):"
    if 2 * beyond > firsts.size:
        limit = "the image" if most is None else f"{most:g}"
        return [f"{start} {beyond:,} of {firsts.size:,} boxes reach beyond {limit}."]
    if 2 * within_one > firsts.size:
        return [f"{start} {within_one:,} of {firsts.size:,} boxes hold no number above 1."]
    return []
