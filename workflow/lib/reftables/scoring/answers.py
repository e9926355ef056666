"""Answers to SURDS questions: one of the options between `<answer>` tags, or a place in the photograph.

`official` is the arithmetic of the benchmark's own script, over all units. `robust` forgives how an
answer is written, not what it says: it reads the last `<answer>` after the reasoning, round and missing
brackets and boxes in unit coordinates, and it wants no option to the letter where case, articles and
punctuation differ.

Source: XiandaGuo/Drive-MLLM, evaluation/eval_from_json.py.
"""

import re
import string
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reftables.errors import preview
from reftables.rows import AnswerFormat, Prediction, Status, TruthRow
from reftables.scoring.parsing import NUMBER, answer_candidates, strip_reasoning
from reftables.scoring.scores import Ratio, Scores

PLACE = "xy2d"  # the one question answered by coordinates
PAIRED = frozenset({"yaw", "distance", "left_right", "front_behind"})  # two complementary questions a unit

Point = tuple[float, float]  # x, y in pixels
Reading = Point | bool | None  # a place, whether the right option is named, or neither: not an answer


def score(
    truth: Sequence[TruthRow], predictions: Sequence[Prediction], form: AnswerFormat, options: Mapping[str, Any]
) -> Scores:
    """Both scorings of one split; `form` and `options` change nothing here.

    `score` is a share of units: one of two complementary questions counts 1 only if both are right.
    `request_accuracy` is that of the questions themselves.
    """
    texts = [_text(prediction) for prediction in predictions]
    official = _values(truth, [read_official(text, row) for text, row in zip(texts, truth, strict=True)])
    read = [read_robust(text, row) for text, row in zip(texts, truth, strict=True)]
    robust = _values(truth, [reading for _, reading in read])
    units = len({row["unit"] for row in truth})
    return Scores(
        n=units,
        requests=len(truth) if len(truth) != units else None,
        statuses=[s if p.status is Status.OK else p.status for p, (s, _) in zip(predictions, read, strict=True)],
        official={"score": unit_ratio(truth, official), "request_accuracy": Ratio.mean(official)},
        robust={"score": unit_ratio(truth, robust), "request_accuracy": Ratio.mean(robust)},
        columns={"unit": [row["unit"] for row in truth], "variant": [row["variant"] for row in truth]},
        notes=_near_misses(truth, official, robust),
    )


def _text(prediction: Prediction) -> str:
    """The text that may hold an answer; empty where the status says there is none."""
    if prediction.status not in (Status.OK, Status.TRUNCATED):
        return ""
    return prediction.text or ""


def unit_ratio(truth: Sequence[TruthRow], values: NDArray[np.float64]) -> Ratio:
    """The share of units, from the `values` (rows,) of their questions; a unit's rows share its score evenly.

    A unit of two complementary questions has 1 if both have, else 0: so too where one is not there.
    """
    units, members = np.unique(np.array([row["unit"] for row in truth], dtype=np.int64), return_inverse=True)
    rows = np.bincount(members, minlength=len(units))
    sums = np.bincount(members, weights=values, minlength=len(units))
    paired = np.zeros(len(units), dtype=bool)
    paired[members] = [row["question"] in PAIRED for row in truth]
    scores = np.where(paired, sums == 2, sums)
    return Ratio((scores / rows)[members], (1 / rows)[members])


def centerness(
    points_xy: NDArray[np.float64], boxes_xyxy: NDArray[np.float64], sizes_wh: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How central `points_xy[i]` is in `boxes_xyxy[i]`: (n, 2), (n, 4) and (n, 2) to (n,), all in pixels.

    sqrt(min(l, r) / max(l, r) * min(t, b) / max(t, b)) of the distances to the four sides; 0 outside the
    box or the image, and a side pair of no extent has ratio 1.
    """
    low, high = boxes_xyxy[:, :2], boxes_xyxy[:, 2:]
    inside = ((points_xy >= low) & (points_xy <= high) & (points_xy >= 0) & (points_xy < sizes_wh)).all(axis=1)
    before, after = (points_xy - low)[inside], (high - points_xy)[inside]
    near, far = np.minimum(before, after), np.maximum(before, after)
    ratios = np.divide(near, far, out=np.ones_like(far), where=far > 0)
    values = np.zeros(len(points_xy))
    values[inside] = np.sqrt(ratios[:, 0] * ratios[:, 1])
    return values


def _values(truth: Sequence[TruthRow], readings: Sequence[Reading]) -> NDArray[np.float64]:
    """The score of every question, (rows,)."""
    values = np.array([reading is True for reading in readings], dtype=np.float64)
    places = [i for i, reading in enumerate(readings) if isinstance(reading, tuple)]
    values[places] = centerness(
        np.array([readings[i] for i in places], dtype=np.float64).reshape(-1, 2),
        np.array([truth[i]["bbox"] for i in places], dtype=np.float64).reshape(-1, 4),
        np.array([(truth[i]["width"], truth[i]["height"]) for i in places], dtype=np.float64).reshape(-1, 2),
    )
    return values


def _near_misses(truth: Sequence[TruthRow], official: NDArray[np.float64], robust: NDArray[np.float64]) -> list[str]:
    """How many answers only the robust reading finds right, and which."""
    missed = ((official == 0) & (robust > 0)).tolist()
    ids = [row["id"] for row, near in zip(truth, missed, strict=True) if near]
    if not ids:
        return []
    return [f"Answers wrong officially but right in the robust reading: {len(ids):,} (ids {preview(ids)})."]


# Official reading


def read_official(text: str, row: TruthRow) -> Reading:
    """What the first `<answer>` of `text` says, to the benchmark's own script."""
    _, _, rest = text.partition("<answer>")
    answer, closed, _ = rest.partition("</answer>")
    if not closed:
        return None
    answer = answer.strip()
    if row["question"] == PLACE:
        return official_place(answer, (row["width"], row["height"]))
    return official_choice(answer, row["options"], row["answer"])


def official_choice(answer: str, options: Iterable[str], right: str) -> bool:
    """Whether `answer` is `right` after normalisation, and any option stands in it as written.

    Equality comes first: it is far the cheaper of the two conditions.
    """
    if normalised(answer) != normalised(right):
        return False
    lowered = answer.lower()
    return any(stands_as_words(option.strip().lower(), lowered) for option in options)


@lru_cache(maxsize=4096)
def normalised(text: str) -> str:
    """`text` in lower case, without ASCII punctuation, articles and superfluous blanks."""
    return " ".join(_ARTICLE.sub("", text.strip().lower().translate(_NO_PUNCTUATION)).split())


_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def stands_as_words(phrase: str, text: str) -> bool:
    r"""Whether the regular expression `\b` + escaped phrase + `\b` matches somewhere in `text`.

    By hand, for a split has thousands of different phrases and compiling costs more than searching.
    """
    start = text.find(phrase)
    while start >= 0:
        if _is_word_boundary(text, start) and _is_word_boundary(text, start + len(phrase)):
            return True
        start = text.find(phrase, start + 1)
    return False


def _is_word_boundary(text: str, position: int) -> bool:
    before = position > 0 and _is_word_character(text[position - 1])
    after = position < len(text) and _is_word_character(text[position])
    return before != after


def _is_word_character(character: str) -> bool:
    return character.isalnum() or character == "_"


_OFFICIAL_BRACKET = re.compile(r"\[[-\d.,\s]+\]")
# A Python list literal of one to four numbers, as far as those characters can write one.
_BLANK = r"[ \t\f\r\n]*"
_LITERAL = rf"(?:-{_BLANK})?(?:[0-9]+\.[0-9]*|\.[0-9]+|0+|[1-9][0-9]*)"
_LITERAL_LIST = re.compile(rf"\[{_BLANK}{_LITERAL}(?:{_BLANK},{_BLANK}{_LITERAL}){{1,3}}{_BLANK}(?:,{_BLANK})?\]")


def official_place(answer: str, size_wh: tuple[int, int]) -> Point | None:
    """The place that the first bracket of `answer` names, in pixels; None where it names none.

    Two numbers are a point, four a box, whose centre is taken by floor division: so a box in unit
    coordinates collapses to 0, 0. A value below 1 is then scaled by the image size.
    """
    bracket = _OFFICIAL_BRACKET.search(answer)
    if not bracket or not _LITERAL_LIST.fullmatch(bracket[0]):
        return None
    numbers = ["".join(item.split()) for item in bracket[0][1:-1].split(",")]
    try:
        values = [float(number) if "." in number else int(number) for number in numbers if number]
        if len(values) not in (2, 4):
            return None
        x, y = values if len(values) == 2 else ((values[0] + values[2]) // 2, (values[1] + values[3]) // 2)
        return _to_pixels(x, y, size_wh)
    except (OverflowError, ValueError):
        return None  # hundreds of digits: beyond every image


def _to_pixels(x: float, y: float, size_wh: tuple[int, int]) -> Point:
    return float(x * size_wh[0] if x < 1 else x), float(y * size_wh[1] if y < 1 else y)


# Robust reading


def read_robust(text: str, row: TruthRow) -> tuple[Status, Reading]:
    """What the last `<answer>` after the reasoning says, of those that say anything, and the text's status."""
    if not text.strip():
        return Status.EMPTY, None
    final = strip_reasoning(text)
    if final is None:
        return Status.TRUNCATED, None
    # The last candidate is the whole text, which is no answer here: the benchmark asks for the tag.
    *tagged, _ = answer_candidates(final)
    for candidate in tagged:
        reading = _robust_reading(candidate, row)
        if reading is not None:
            return Status.OK, reading
    cut = final.rfind("<answer>") > final.rfind("</answer>")
    return Status.TRUNCATED if cut else Status.UNPARSED, None


def _robust_reading(answer: str, row: TruthRow) -> Reading:
    if row["question"] == PLACE:
        return robust_place(answer, (row["width"], row["height"]))
    return robust_choice(answer, row["options"], row["answer"])


def robust_choice(answer: str, options: Iterable[str], right: str) -> bool | None:
    """Whether `answer` is `right` after normalisation; None where no option stands in it, so normalised."""
    given = normalised(answer)
    if not given:
        return None
    if given == normalised(right):
        return True
    return False if any(f" {normalised(option)} " in f" {given} " for option in options) else None


_BRACKETED = re.compile(rf"[\[(]\s*{NUMBER}(?:(?:\s*,\s*|\s+){NUMBER}){{1,3}}(?:\s*,)?\s*[\])]")
_LISTED = re.compile(rf"(?<![\w.]){NUMBER}(?:\s*,\s*{NUMBER})+")  # tried once in a run of digits, however long
_NUMBERS = re.compile(NUMBER)


def robust_place(answer: str, size_wh: tuple[int, int]) -> Point | None:
    """The place that `answer` names, in pixels: its first list of two or four numbers in brackets, square
    or round, else its first without, separated by commas. None where there is none.

    A box in unit coordinates (no value above 1) is centred before it is scaled; all else is as in
    `official_place`.
    """
    for pattern in (_BRACKETED, _LISTED):
        for match in pattern.finditer(answer):
            values = [float(number) for number in _NUMBERS.findall(match[0])]
            if len(values) == 2:
                return _to_pixels(values[0], values[1], size_wh)
            if len(values) == 4:
                return _to_pixels(*_robust_centre(values), size_wh)
    return None


def _robust_centre(box_xyxy: Sequence[float]) -> Point:
    x0, y0, x1, y1 = box_xyxy
    if max(box_xyxy) <= 1:
        return (x0 + x1) / 2, (y0 + y1) / 2
    return (x0 + x1) // 2, (y0 + y1) // 2
