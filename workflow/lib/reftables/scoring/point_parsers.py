"""What an answer to a pointing question points at, in the declared notation and coordinates, whatever is around it.

Regions are rectangles (x0, y0, x1, y1) of whole pixels of the original image, half-open: a point is the one
pixel it lies in, a box all its pixels.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from reftables.errors import ConfigError
from reftables.kosmos import decode_pairs, find_groundings, is_cut
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Status
from reftables.scoring import parsing
from reftables.scoring.official_points import Region, pixel


class Axes(NamedTuple):
    """What the numbers of an answer mean."""

    coordinates: Coordinates
    order: Order


class Group(NamedTuple):
    """Two numbers (a point) or four (a box), as the model wrote them; `whole`: all of them integers."""

    numbers: Sequence[float]
    whole: bool

    def in_xy(self, axes: Axes) -> Sequence[float]:
        """x, y or x0, y0, x1, y1."""
        if axes.order is Order.XY:
            return self.numbers
        return [number for y, x in zip(self.numbers[::2], self.numbers[1::2], strict=True) for number in (x, y)]


class Reading(NamedTuple):
    """What one answer points at, and what it is if nothing else is wrong with it."""

    regions: Sequence[Region]
    status: Status
    groups: Sequence[Group] = ()  # what the regions were made of


class Found(NamedTuple):
    """The groups of a text, and whether the text ends within what could have been another."""

    groups: Sequence[Group]
    cut: bool


_FIXED_AXES = {
    Notation.KOSMOS: Axes(Coordinates.UNIT, Order.XY),
    Notation.MOLMO: Axes(Coordinates.PERCENT, Order.XY),
    Notation.MOLMO2: Axes(Coordinates.PER_MILLE, Order.XY),
    Notation.GEMINI: Axes(Coordinates.PER_MILLE, Order.YX),
}
_FARTHEST = 1e9  # no coordinate lies beyond
_NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?"
_NAMED = rf"\s*(?:[A-Za-z]\w{{0,15}}\s*[=:]\s*)?{_NUMBER}\s*"
_NAME_END = re.compile(r"[=:]")
_ROUND_GROUP = re.compile(rf"\(({_NAMED}(?:,{_NAMED})+)\)")
_SQUARE_PAIR = re.compile(rf"\[({_NAMED},{_NAMED})\]")
_OPEN_GROUP = re.compile(r"\(\s*[-+.0-9][^()]*\Z")  # with a number in it: ":(" opens none
_TAG = re.compile(r"<points?\b[^<>]*>?")
_TAG_PAIR = re.compile(rf"""\bx([0-9]*)\s*=\s*["']\s*({_NUMBER})\s*["']\s*y\1\s*=\s*["']\s*({_NUMBER})\s*["']""")
_COORDS = re.compile(r"""\bcoords\s*=\s*["'](.*)""", re.DOTALL)
# After the number of the point. One that nothing follows may be cut, and two digits are no coordinate.
_TRIPLE = re.compile(r"""\b[0-9]+\s+([0-9]{3,4})\s+([0-9]{3,4})(?=[\s,:;"'])""")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_JSON_KEYS = ("point_2d", "point")


def axes_of(form: AnswerFormat) -> Axes:
    """What the notation fixes, or what the format declares."""
    if form.notation in _FIXED_AXES:
        return _FIXED_AXES[form.notation]
    if form.notation not in _FINDERS:
        choices = ", ".join([Notation.KOSMOS, *_FINDERS])
        raise ConfigError(f"formats.points.notation: {form.notation} has no points. Choose one of {choices}.")
    if form.coordinates is None or form.order is None:
        raise ConfigError(f"formats.points: the notation {form.notation} needs coordinates and order")
    return Axes(form.coordinates, form.order)


def coordinates_of(group: Group, axes: Axes) -> Coordinates:
    """The declared ones; but a unit model's integers above 1 are pixels: the authors' rule, stated by the prompt."""
    if axes.coordinates is Coordinates.UNIT and group.whole and max(group.numbers) > 1:
        return Coordinates.PIXELS
    return axes.coordinates


def read_answer(
    text: str | None, form: AnswerFormat, axes: Axes, size_wh: tuple[int, int], seen_wh: tuple[int, int] | None
) -> Reading:
    """The regions of the final answer: of the last `<answer>` that holds any, else of all of it.

    `axes` are those of `form`, `size_wh` is the size of the image, `seen_wh` that of the one the model
    saw, which only `resized_pixels` need. Corners are never reordered: an answer with an inverted box is
    unparsed. Never raises for any text.
    """
    if text is None or not text.strip():
        return Reading([], Status.EMPTY)
    final = parsing.strip_reasoning(unicodedata.normalize("NFKC", text))
    if final is None:
        return Reading([], Status.TRUNCATED)
    cut = False
    for candidate in parsing.answer_candidates(final):
        groups, cut = _find_groups(candidate, form)
        if groups and not any(_is_inverted(group) for group in groups):
            return Reading(_regions(groups, axes, size_wh, seen_wh), Status.TRUNCATED if cut else Status.OK, groups)
    cut = cut or final.rfind("<answer>") > final.rfind("</answer>")
    return Reading([], Status.TRUNCATED if cut else Status.UNPARSED)


def _find_groups(text: str, form: AnswerFormat) -> Found:
    if form.notation == Notation.KOSMOS:
        if form.grid is None:
            raise ConfigError(
                "formats.points.grid: the notation kosmos needs the side of its grid, 32 in the released model"
            )
        return _find_in_patches(text, form.grid)
    return _FINDERS[form.notation](text)


def _is_inverted(group: Group) -> bool:
    return len(group.numbers) == 4 and (group.numbers[0] > group.numbers[2] or group.numbers[1] > group.numbers[3])


def _regions(
    groups: Iterable[Group], axes: Axes, size_wh: tuple[int, int], seen_wh: tuple[int, int] | None
) -> list[Region]:
    """The pixels of `groups`; a box within one row or column of pixels has none."""
    regions = []
    for group in groups:
        coordinates = coordinates_of(group, axes)
        corners = [
            # Not int(): a point just left of the image would fall into its first column.
            math.floor(parsing.to_pixels(number, coordinates, size_wh[i % 2], seen_wh and seen_wh[i % 2]))
            for i, number in enumerate(group.in_xy(axes))
        ]
        region = pixel(*corners) if len(corners) == 2 else (corners[0], corners[1], corners[2], corners[3])
        if region[0] < region[2] and region[1] < region[3]:
            regions.append(region)
    return regions


def _find_in_tuples(text: str) -> Found:
    """Groups of two or four in round brackets; where there are none, pairs in square ones."""
    return Found(_text_groups(_ROUND_GROUP, text) or _text_groups(_SQUARE_PAIR, text), _ends_open(text))


def _find_in_brackets(text: str) -> Found:
    return Found(_text_groups(_SQUARE_PAIR, text), _ends_open(text))


def _text_groups(pattern: re.Pattern[str], text: str) -> list[Group]:
    groups = []
    for found in pattern.findall(text):
        words = [_NAME_END.split(word)[-1].strip() for word in found.split(",")]
        if len(words) in (2, 4):
            groups += _group(map(float, words), whole=all(map(_INTEGER.fullmatch, words)))
    return groups


def _group(numbers: Iterable[float | None], *, whole: bool) -> list[Group]:
    """One group, or none where a number is missing or farther than any image reaches."""
    written = list(numbers)
    known = [number for number in written if number is not None and abs(number) <= _FARTHEST]
    return [Group(known, whole)] if len(known) == len(written) else []


def _ends_open(text: str) -> bool:
    """Whether a list or a group of numbers is begun at the end and never closed."""
    return text.rfind("[") > text.rfind("]") or _OPEN_GROUP.search(text) is not None


def _find_in_json(text: str) -> Found:
    """The points of the first JSON value that has any, first in the code fences and then anywhere.

    Prose before a fence often names single points; so where the last fence is cut off, only fences count.
    """
    parts = text.split("```")
    cut_fence = len(parts) % 2 == 0 and parts[-1].strip() != ""
    cut = False
    for part in parts[1::2] if cut_fence else [*parts[1::2], text]:
        values, cut = parsing.scan_json(part)
        for value in values:
            if groups := _groups_in_json(value):
                return Found(groups, cut)
    return Found([], cut or cut_fence)


def _groups_in_json(found: parsing.JsonValue) -> list[Group]:
    """The points of a JSON value in order: under a point key, or bare lists of two in no object.

    Without recursion: a value may be nested as deep as the JSON parser allows.
    """
    groups: list[Group] = []
    # Two numbers of a list that was cut may be the first two of more.
    waiting = [(found.value, True)] if found.complete else [(item, True) for item in reversed(found.value)]
    while waiting:
        value, bare = waiting.pop()
        if isinstance(value, dict):
            points = _groups_of_object(value)
            groups += points
            waiting += [] if points else [(inner, False) for inner in reversed(value.values())]
        elif isinstance(value, list):
            point = _pair(value) if bare else []
            groups += point
            waiting += [] if point else [(item, bare) for item in reversed(value)]
    return groups


def _groups_of_object(entry: Mapping[str, Any]) -> list[Group]:
    """The point, or the list of points, under the first point key that holds any."""
    for key in _JSON_KEYS:
        value = entry.get(key)
        if isinstance(value, list) and (groups := [group for item in (value, *value) for group in _pair(item)]):
            return groups
    return []


def _pair(value: object) -> list[Group]:
    """The group of a list of two numbers or numeric texts; none for all else."""
    if not isinstance(value, list) or len(value) != 2:
        return []
    return _group(map(parsing.number, value), whole=all(_INTEGER.fullmatch(str(item).strip()) for item in value))


def _find_in_attributes(text: str) -> Found:
    """Pairs of attributes with equal numbers, or with none, of `<points>` and `<point>`."""
    return _find_in_tags(text, lambda tag: [(x, y) for _, x, y in _TAG_PAIR.findall(tag)])


def _find_in_coords(text: str) -> Found:
    """Triples in the attribute `coords` of `<points>`, each the point's number, x and y.

    Before the triples stands the number of the image that they are of. Source: the model card of allenai/Molmo2-8B.
    """
    return _find_in_tags(text, lambda tag: [xy for coords in _COORDS.findall(tag) for xy in _TRIPLE.findall(coords)])


def _find_in_tags(text: str, pairs_of: Callable[[str], Iterable[tuple[str, str]]]) -> Found:
    """The pairs of numbers that `pairs_of` finds in each tag `<points>` or `<point>`."""
    tags = _TAG.findall(text)
    groups = [group for tag in tags for x, y in pairs_of(tag) for group in _group([float(x), float(y)], whole=False)]
    return Found(groups, bool(tags) and text.endswith(tags[-1]) and not tags[-1].endswith(">"))


def _find_in_patches(text: str, grid: int) -> Found:
    """The centres of all boxes, in units of the image; none where a box is inverted or lies beyond the grid."""
    pairs = np.array([pair for _, pairs in find_groundings(text) for pair in pairs], dtype=np.int64).reshape(-1, 2)
    boxes = decode_pairs(pairs, grid)
    if (pairs >= grid * grid).any() or (boxes[:, :2] > boxes[:, 2:]).any():
        return Found([], is_cut(text))
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    return Found([Group(centre, whole=False) for centre in centres.tolist()], is_cut(text))


_FINDERS: Mapping[Notation, Callable[[str], Found]] = {
    Notation.TUPLES: _find_in_tuples,
    Notation.BRACKETS: _find_in_brackets,
    Notation.JSON: _find_in_json,
    Notation.GEMINI: _find_in_json,
    Notation.MOLMO: _find_in_attributes,
    Notation.MOLMO2: _find_in_coords,
}
