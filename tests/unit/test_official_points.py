"""The authors' parsers of points, against a slow reference."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reftables.scoring.official_points import (
    AnswerDroppedError,
    Region,
    ScriptBrokenError,
    official_parser,
    parse_fenced_json,
    parse_pixel_tuples,
    parse_tags,
    parse_unit_tuples,
)
from reftables.scoring.point_parsers import axes_of, read_answer
from tests.unit.pointing import (
    GEMINI,
    JSON,
    MOLMO,
    PIXELS,
    SIZE_WH,
    TUPLE_LISTS,
    TUPLE_TEXTS,
    UNIT,
    answer_format,
)


def test_official_parsers_are_chosen_by_notation_and_coordinates() -> None:
    assert [official_parser(form) for form in (UNIT, PIXELS, JSON, answer_format("json", "per_mille"))] == [
        parse_unit_tuples,
        parse_pixel_tuples,
        parse_pixel_tuples,
        parse_pixel_tuples,
    ]
    assert [official_parser(form) for form in (MOLMO, GEMINI)] == [parse_tags, parse_fenced_json]


@pytest.mark.parametrize(
    ("text", "regions"),
    [
        pytest.param("(0.5, 0.25)", [(320, 120, 321, 121)], id="pair"),
        pytest.param("(1, 0.25)", [(640, 120, 641, 121)], id="one-point-scales-both"),
        pytest.param("(5,6)", [(5, 6, 6, 7)], id="integers-are-pixels"),
        pytest.param("(0, 0, 1, 1)", [(0, 0, 640, 480)], id="box-of-integers-is-scaled"),
        pytest.param("(0.5, 0.5, 0.5, 0.9)", [], id="empty-box"),
        pytest.param("( 0.5, 0.5) (0.5 , 0.5) (0.5, 0.5 )", [], id="blanks-in-other-places"),
        pytest.param("(.5, 0.5) (1e-3, 0.5)", [], id="other-numbers"),
        pytest.param("(1, 2, 3) (4)", [], id="other-lengths"),
        pytest.param("(+0.5, -.5) (-0.001,+1.)", [(0, 480, 1, 481)], id="signs"),
    ],
)
def test_official_reading_of_tuples_from_unit_models(text: str, regions: list[Region]) -> None:
    assert parse_unit_tuples(text, *SIZE_WH) == regions


@pytest.mark.parametrize(
    ("text", "regions"),
    [
        pytest.param("(5, 6) (1, 2, 3, 4)", [(5, 6, 6, 7), (1, 2, 3, 4)], id="never-scaled"),
        pytest.param("(1, 2, 1, 9)", [], id="empty-box"),
    ],
)
def test_official_reading_of_tuples_as_pixels(text: str, regions: list[Region]) -> None:
    assert parse_pixel_tuples(text, *SIZE_WH) == regions


@pytest.mark.parametrize(
    ("text", "points_xy"),
    [
        pytest.param('x1="50" y1="25"', [(320, 120)], id="plain"),
        pytest.param('x1="50"\ny7="25."', [(320, 120)], id="numbers-need-not-agree"),
        pytest.param('x="50" y="25"', [], id="single-tag"),
        pytest.param('x1="50"y1="25" x1="+5" y1="5"', [], id="no-blank-or-a-plus"),
        pytest.param('x1="-0.1" y1="-1"', [(0, -4)], id="cut-towards-zero"),
    ],
)
def test_official_reading_of_molmo_tags(text: str, points_xy: list[tuple[int, int]]) -> None:
    assert [region[:2] for region in parse_tags(text, *SIZE_WH)] == points_xy


@pytest.mark.parametrize(
    ("text", "points_xy"),
    [
        pytest.param('```json\n[{"point": [250, 500]}]\n```', [(320, 120)], id="fenced"),
        pytest.param('```\n[{"point": [250, 500]}]```', [(320, 120)], id="no-word"),
        pytest.param('```json \n[{"point": [250, 500]}]\n```', [], id="blank-after-the-word"),
        pytest.param('```json\r\n[{"point": [250, 500]}]\n```', [], id="carriage-return"),
        pytest.param('[{"point": [250, 500]}]', [], id="no-fence"),
        pytest.param('```json\n[{"point": [250, 500]}, {"poi\n```', [], id="invalid"),
        pytest.param('```\n[]\n```\n```\n[{"point": [250, 500]}]\n```', [], id="first-fence-only"),
        pytest.param('```\n[{"point_2d": [2, 5]}, {"point": [1]}, {"point": "ab"}, "x", [1]]\n```', [], id="skipped"),
        pytest.param('```\n[{"point": [-0.5, 999.9]}]\n```', [(639, 0)], id="cut-towards-zero"),
    ],
)
def test_official_reading_of_gemini_points(text: str, points_xy: list[tuple[int, int]]) -> None:
    assert [region[:2] for region in parse_fenced_json(text, *SIZE_WH)] == points_xy


def test_both_scorings_divide_first_and_multiply_then() -> None:
    # 35 * 700 / 100 is 245 and 205 * 1200 / 1000 is 246, but in floating point the quotients fall short.
    assert parse_tags('x1="35" y1="0"', 700, 700)[0][0] == 244
    answer = '```\n[{"point": [0, 205]}]\n```'
    assert parse_fenced_json(answer, 1200, 800)[0][0] == 245
    assert read_answer(answer, GEMINI, axes_of(GEMINI), (1200, 800), None).regions[0][0] == 245


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        pytest.param(parse_unit_tuples, "(0.9, 0.1, 0.2, 0.3)", id="inverted-in-x"),
        pytest.param(parse_unit_tuples, "(0.1, 0.9, 0.2, 0.3)", id="inverted-in-y"),
        pytest.param(parse_unit_tuples, f"({'9' * 5000}, 1)", id="thousands-of-digits"),
        pytest.param(parse_unit_tuples, f"({'9' * 400}.0, 1)", id="infinite"),
        pytest.param(parse_pixel_tuples, "(1, 2, 3, 4.0)", id="fractional-box"),
        pytest.param(parse_pixel_tuples, "(1.5, 2) (9, 9, 1, 1)", id="raises-before-it-breaks"),
        pytest.param(parse_fenced_json, '```\n{"point": [1, 2]}\n```', id="single-object"),
        pytest.param(parse_fenced_json, '```\n[{"point": ["1", "2"]}]\n```', id="numbers-as-texts"),
        pytest.param(parse_fenced_json, "```\n[5]\n```", id="number-as-item"),
        pytest.param(parse_fenced_json, "```\n5\n```", id="number-alone"),
        pytest.param(parse_fenced_json, '```\n["a point"]\n```', id="text-that-holds-point"),
        pytest.param(parse_fenced_json, '```\n[{"point": [NaN, 1]}]\n```', id="nan"),
        pytest.param(parse_fenced_json, f"```\n{'[' * 100_000}\n```", id="thousands-of-brackets"),
    ],
)
def test_answers_at_which_the_authors_parser_raises(parse: Any, text: str) -> None:
    with pytest.raises(AnswerDroppedError):
        parse(text, *SIZE_WH)


def test_fractional_pixels_break_the_authors_script() -> None:
    with pytest.raises(ScriptBrokenError):
        parse_pixel_tuples("(1, 2) (3.0, 4)", *SIZE_WH)


def slow_groups(text: str) -> list[list[str]]:
    """The number groups of the authors' parser, read character by character."""

    def number_end(start: int) -> int | None:
        place = start + (text[start : start + 1] in ("+", "-"))
        first = place
        while text[place : place + 1].isdecimal():
            place += 1
        if place == first:
            return None
        place += text[place : place + 1] == "."
        while text[place : place + 1].isdecimal():
            place += 1
        return place

    groups, place = [], 0
    while place < len(text):
        if text[place] != "(":
            place += 1
            continue
        words, at = [], place + 1
        while (end := number_end(at)) is not None:
            words.append(text[at:end])
            if text[end : end + 1] == ")":
                groups.append(words)
                place = end
                break
            if text[end : end + 1] != ",":
                break
            at = end + 1
            while text[at : at + 1].isspace():
                at += 1
        place += 1
    return groups


def slow_points(text: str, *, absolute: bool) -> list[tuple[float, float]]:
    """Every point the authors' parser lists; ValueError where it raises."""
    width, height = 8, 6
    points: list[tuple[float, float]] = []
    for words in slow_groups(text):
        numbers = [float(word) if "." in word else int(word) for word in words]
        scaled = [int(n * side) for n, side in zip(numbers, [width, height] * len(numbers), strict=False)]
        if len(words) == 2:
            fractional = any("." in word for word in words)
            points.append(tuple(scaled if fractional and not absolute else numbers))  # type: ignore[arg-type]
        if len(words) == 4:
            if absolute and any("." in word for word in words):
                raise ValueError("numpy refuses a fractional number of pixels")
            x0, y0, x1, y1 = numbers if absolute else scaled
            if x1 < x0 or y1 < y0:
                raise ValueError("numpy refuses a negative number of pixels")
            points += [(x, y) for y in range(int(y0), int(y1)) for x in range(int(x0), int(x1))]
    return points


@settings(max_examples=100, deadline=None)
@given(text=st.one_of(TUPLE_TEXTS, TUPLE_LISTS), absolute=st.booleans())
def test_official_tuples_are_those_of_the_slow_reference(text: str, absolute: bool) -> None:
    try:
        expected: object = slow_points(text, absolute=absolute)
        if absolute and any(
            not isinstance(number, int) for point in slow_points(text, absolute=True) for number in point
        ):
            expected = ScriptBrokenError
    except ValueError:
        expected = AnswerDroppedError
    try:
        regions = (parse_pixel_tuples if absolute else parse_unit_tuples)(text, 8, 6)
        found: object = [(x, y) for x0, y0, x1, y1 in regions for y in range(y0, y1) for x in range(x0, x1)]
    except (AnswerDroppedError, ScriptBrokenError) as error:
        found = type(error)
    assert found == expected
