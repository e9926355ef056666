"""What all tolerant answer parsers share: reasoning, answer tags, JSON in prose, coordinate systems."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from reftables.rows import Coordinates

Number = TypeVar("Number", float, NDArray[np.float64])

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_JSON_START = re.compile(r"[\[{]")


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


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def find_json(text: str) -> Iterator[JsonValue]:
    """The JSON lists and objects of a text from left to right, prose and code fences between them skipped.

    Of a list that breaks off at the end of the text its complete items are given, as one incomplete
    value; an object that breaks off gives nothing. Never raises.
    """
    position = 0
    while match := _JSON_START.search(text, position):
        start = match.start()
        try:
            value, position = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            if text[start] == "[" and (items := _items_of_cut_list(text, start)):
                yield JsonValue(items, complete=False)
                return
            position = start + 1
            continue
        yield JsonValue(value, complete=True)


def _items_of_cut_list(text: str, start: int) -> list[Any]:
    """The complete items of a list that the end of the text cuts off; empty where it ends otherwise."""
    items: list[Any] = []
    position = start + 1
    while True:
        position = _skip_blanks(text, position)
        if position == len(text):
            return items
        try:
            item, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            # An item begun and never finished: only then was the list cut, not simply broken.
            return items if text[position] in '[{"' else []
        items.append(item)
        position = _skip_blanks(text, position)
        if position == len(text):
            return items
        if text[position] != ",":
            return []
        position += 1


def _skip_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


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
