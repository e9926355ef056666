"""What all tolerant answer parsers share: reasoning, answer tags, JSON in prose, numbers, coordinate systems."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from reftables.rows import Coordinates

Number = TypeVar("Number", float, NDArray[np.float64])

# As Python's float() reads it, but for underscores, infinity and NaN; no text matches it in two ways.
NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?"

# Neither tag may stand inside: with `.*?` a text of nothing but opening tags would cost quadratic time.
_ANSWER = re.compile(r"<answer>([^<]*(?:<(?!/?answer>)[^<]*)*)</answer>")
_JSON_START = re.compile(r"[\[{]")
_CUT_SCALAR = re.compile(r"[-+.\w]{0,5}")  # nothing, or the beginning of a number or of a literal
_NUMBER = re.compile(NUMBER)
_MOST_READINGS = 64  # how many times its length may be read of a text in search of JSON


def strip_reasoning(text: str) -> str | None:
    """What follows the last `</think>`; None where a `<think>` is never closed: the answer was cut."""
    _, closed, final = text.rpartition("</think>")
    if not closed:
        final = text
    return None if "<think>" in final else final


def answer_candidates(final: str) -> Iterator[str]:
    """Where the answer may stand in a final text, best first: its `<answer>`s from the last, then all of it."""
    yield from reversed(_ANSWER.findall(final))
    yield final


class JsonValue(NamedTuple):
    """One JSON value found in a text. `complete` is False for what was saved from a cut list."""

    value: Any
    complete: bool


class JsonScan(NamedTuple):
    """All JSON lists and objects of a text, and whether the text ends inside one that it never closes."""

    values: list[JsonValue]
    cut: bool


def _null(_constant: str) -> None:
    """What NaN and Infinity are read as: they are no JSON, and no coordinate."""


# Not strict: a line feed inside a label is no reason to lose the box beside it.
_DECODER = json.JSONDecoder(parse_constant=_null, strict=False)


def scan_json(text: str) -> JsonScan:
    """The JSON lists and objects of a text from left to right, prose and code fences between them skipped.

    Of a value that is broken, or that the end of the text cuts off, the lists and objects inside are
    given. Of a list that is cut off its complete items are given, as one incomplete value. NaN and
    Infinity are read as null. Never raises, and takes linear time: each level of nesting in what
    fails is read once more, up to `_MOST_READINGS` of the text, which no real answer comes near.
    """
    values: list[JsonValue] = []
    cut = False
    position = 0
    end = len(text.rstrip())
    budget = _MOST_READINGS * len(text)
    while budget > 0 and (match := _JSON_START.search(text, position)):
        start = match.start()
        try:
            value, position = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            position = start + 1
            if not _is_cut(text, end, error):
                budget -= error.pos - start + error.pos // 64  # the error itself counts the lines before it
                continue
            cut = True
            budget -= 2 * (len(text) - start)
            if text[start] == "[" and (items := _items_of_cut_list(text, start)):
                values.append(JsonValue(items, complete=False))
                break
        except (ValueError, RecursionError):  # a number of thousands of digits, thousands of brackets
            position = start + 1
            budget -= len(text) - start
        else:
            values.append(JsonValue(value, complete=True))
    return JsonScan(values, cut)


def _is_cut(text: str, end: int, error: json.JSONDecodeError) -> bool:
    """Whether the value failed because the text ends, at `end` but for blanks, not because it is broken."""
    if error.msg.startswith("Unterminated string") or error.pos >= end:
        return True
    return _CUT_SCALAR.fullmatch(text, error.pos, end) is not None


def _items_of_cut_list(text: str, start: int) -> list[Any]:
    """The complete items of the list at `start`, which the end of the text cuts off."""
    items: list[Any] = []
    position = start + 1
    while True:
        position = _skip_blanks(text, position)
        try:
            item, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            return items
        if position == len(text) and not isinstance(item, (list, dict, str)):
            return items  # more digits may have been to come
        items.append(item)
        position = _skip_blanks(text, position)
        if text[position : position + 1] != ",":
            return items
        position += 1


def _skip_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def number(value: object) -> float | None:
    """A finite number from JSON, written as a number or as a string of nothing else; None for all others."""
    if isinstance(value, str):
        value = float(value) if _NUMBER.fullmatch(value.strip()) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer beyond the floats
        return None


def to_pixels(values: Number, coordinates: Coordinates, extent: Number, seen_extent: Number | None = None) -> Number:
    """`values` along one axis to pixels of the original image, whose size on that axis is `extent`.

    `seen_extent` is the size of the image the model saw; only `resized_pixels` needs it. Divides
    first and multiplies then, as the authors of RefSpatial-Bench do: `v * extent / 1000` differs.
    """
    match coordinates:
        case Coordinates.UNIT:
            return values * extent
        case Coordinates.PERCENT:
            return values / 100 * extent
        case Coordinates.PER_MILLE:
            return values / 1000 * extent
        case Coordinates.PIXELS:
            return values
        case Coordinates.RESIZED_PIXELS:
            if seen_extent is None:
                raise ValueError("resized_pixels need the size of the image the model saw")
            return values / seen_extent * extent
