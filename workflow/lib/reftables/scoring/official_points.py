"""The four parsers of RefSpatial-Bench's authors, and what their script does where a parser fails.

They give regions: rectangles (x0, y0, x1, y1) of whole pixels of the image, half-open. A point is the one
pixel it lies in; a box of a tuple stands for all its pixels, which the authors list one by one.

Source: Zhoues/RoboRefer, Evaluation/summarize_acc.py.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from reftables.rows import AnswerFormat, Coordinates, Notation

Region = tuple[int, int, int, int]
OfficialParser = Callable[[str, int, int], list[Region]]  # text, width and height of the image


class AnswerDroppedError(Exception):
    """The authors' parser raises at the answer, and their script leaves the sample out of its mean."""


class ScriptBrokenError(Exception):
    """The authors' script itself breaks off at the answer: it has no value for the sample, or for any."""


# Their `\d+\.?\d*` costs quadratic time on a row of digits; this says the same.
_DIGITS = r"\d+(?:\.\d*)?"
_OFFICIAL_GROUP = re.compile(rf"\(([-+]?{_DIGITS}(?:,\s*[-+]?{_DIGITS})*)\)")
_OFFICIAL_TAGS = re.compile(rf'x\d+="(-?{_DIGITS})"\s+y\d+="(-?{_DIGITS})"')
_OFFICIAL_FENCE = re.compile(r"```\w*\n(.*?)```", re.DOTALL)


def pixel(x: int, y: int) -> Region:
    """The region of one point."""
    return x, y, x + 1, y + 1


def official_parser(form: AnswerFormat) -> OfficialParser | None:
    """The parser the authors choose for a model that answers like this; None where they have none."""
    match form.notation, form.coordinates:
        case Notation.TUPLES, Coordinates.UNIT:
            return parse_unit_tuples
        case (Notation.TUPLES, Coordinates.PIXELS) | (Notation.JSON, _):
            return parse_pixel_tuples
        case Notation.MOLMO, _:
            return parse_tags
        case Notation.GEMINI, _:
            return parse_fenced_json
    return None


def parse_unit_tuples(text: str, width: int, height: int) -> list[Region]:
    """Pairs with a decimal point are shares of the image, pairs of integers pixels; boxes are always shares."""
    regions = []
    for numbers in _official_groups(text):
        if len(numbers) == 2:
            x, y = numbers
            if isinstance(x, float) or isinstance(y, float):
                x, y = _truncate(x, 1, width), _truncate(y, 1, height)
            regions.append(pixel(int(x), int(y)))
        elif len(numbers) == 4:
            x0, y0, x1, y1 = (_truncate(v, 1, side) for v, side in zip(numbers, (width, height) * 2, strict=True))
            regions += _official_box(x0, y0, x1, y1)
    return regions


def parse_pixel_tuples(text: str, width: int, height: int) -> list[Region]:
    """The same groups as pixels; the script cannot count with decimal points."""
    regions: list[Region] = []
    fractional_pair = False
    for numbers in _official_groups(text):
        whole = [number for number in numbers if isinstance(number, int)]
        if len(numbers) == 2:
            fractional_pair |= len(whole) < 2
            regions += [pixel(*whole)] if len(whole) == 2 else []
        elif len(numbers) == 4:
            if len(whole) < 4:
                raise AnswerDroppedError
            regions += _official_box(*whole)
    if fractional_pair:
        raise ScriptBrokenError
    return regions


def parse_tags(text: str, width: int, height: int) -> list[Region]:
    """Numbered attributes `x1="…" y1="…"`, in percent; the two numbers need not agree."""
    return [
        pixel(_truncate(float(x), 100, width), _truncate(float(y), 100, height))
        for x, y in _OFFICIAL_TAGS.findall(text)
    ]


def parse_fenced_json(text: str, width: int, height: int) -> list[Region]:
    """A list of objects with `point` = [y, x], per mille, in the first code fence."""
    fence = _OFFICIAL_FENCE.search(text)
    if fence is None:
        return []
    try:
        items = json.loads(fence[1].strip())
    except json.JSONDecodeError:
        return []
    except (ValueError, RecursionError) as error:  # thousands of digits or of brackets
        raise AnswerDroppedError from error
    if not isinstance(items, (list, dict, str)):
        raise AnswerDroppedError
    points = filter(None, (_official_point(item) for item in items))
    return [pixel(_truncate(x, 1000, width), _truncate(y, 1000, height)) for y, x in points]


def _official_groups(text: str) -> Iterator[list[int | float]]:
    for group in _OFFICIAL_GROUP.findall(text):
        try:
            yield [float(number) if "." in number else int(number) for number in group.split(",")]
        except ValueError as error:  # thousands of digits
            raise AnswerDroppedError from error


def _official_box(x0: int, y0: int, x1: int, y1: int) -> list[Region]:
    if x1 < x0 or y1 < y0:
        raise AnswerDroppedError
    return [(x0, y0, x1, y1)] if x1 > x0 and y1 > y0 else []


def _official_point(item: Any) -> list[Any] | None:
    """The two values of `point`. The script asks `"point" in item`, so texts and lists may be passed over too."""
    if isinstance(item, dict):
        point = item.get("point")
        return point if isinstance(point, list) and len(point) == 2 else None
    if not isinstance(item, (str, list)) or "point" in item:
        raise AnswerDroppedError
    return None


def _truncate(value: Any, parts: int, side: int) -> int:
    """Divides first, multiplies then, and cuts towards 0: the authors' order, which decides at the borders."""
    try:
        return int(value / parts * side)
    except (TypeError, ValueError, OverflowError) as error:  # no number, NaN, infinity
        raise AnswerDroppedError from error
