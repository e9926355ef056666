"""Reasoning, answer tags, JSON in prose, numbers and coordinate systems."""

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reftables.rows import Coordinates
from reftables.scoring.parsing import JsonValue, answer_candidates, number, scan_json, strip_reasoning, to_pixels


@pytest.mark.parametrize(
    ("text", "final"),
    [
        pytest.param("plain", "plain", id="none"),
        pytest.param("<think>a</think> b", " b", id="one"),
        pytest.param("<think>a</think> b <think>c</think> d", " d", id="two"),
        pytest.param("a</think> b", " b", id="opened-by-the-prompt"),
        pytest.param("<think>a", None, id="never-closed"),
        pytest.param("<think>a</think> b <think>c", None, id="second-never-closed"),
    ],
)
def test_reasoning_is_stripped(text: str, final: str | None):
    assert strip_reasoning(text) == final


@pytest.mark.parametrize(
    ("final", "candidates"),
    [
        pytest.param("a", ["a"], id="no-tag"),
        pytest.param("<answer>a</answer><answer>b</answer>", ["b", "a"], id="last-first"),
        pytest.param("<answer>a\n<b></answer>", ["a\n<b>"], id="other-tags-inside"),
        pytest.param("<answer>a <answer>b</answer>", ["b"], id="begun-twice"),
        pytest.param("<answer>a", [], id="never-closed"),
    ],
)
def test_answers_are_tried_from_the_last_and_then_the_whole_text(final: str, candidates: list[str]):
    expected = candidates if candidates == [final] else [*candidates, final]
    assert list(answer_candidates(final)) == expected


def complete(*values: Any) -> list[JsonValue]:
    return [JsonValue(value, complete=True) for value in values]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param('It is ```json\n{"a": [1]}\n``` and [2].', [{"a": [1]}, [2]], id="prose-and-fence"),
        pytest.param("see [fig. 1] and {x}: [3]", [[3]], id="brackets-in-prose"),
        pytest.param("{'bbox': [1, 2]}", [[1, 2]], id="single-quotes"),
        pytest.param('{"a": [1, 2,], "b": [3]}', [[3]], id="trailing-comma"),
        pytest.param('[{"a": 1}, {b: 2}, {"c": 3}]', [{"a": 1}, {"c": 3}], id="broken-item"),
        pytest.param('{"label": "5" nail", "box": [1, 2]}', [[1, 2]], id="stray-quote"),
        pytest.param('{"label": "two\nlines"}', [{"label": "two\nlines"}], id="line-feed-in-a-string"),
        pytest.param('{"score": NaN, "box": [Infinity, -Infinity]}', [{"score": None, "box": [None, None]}], id="nan"),
        pytest.param("no JSON at all", [], id="none"),
        pytest.param("[" + "9" * 5000 + ", [1]]", [[1]], id="endless-number"),
    ],
)
def test_json_is_found_in_prose(text: str, values: list[Any]):
    scan = scan_json(text)
    assert (scan.values, scan.cut) == (complete(*values), False)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param('[{"a": 1}, {"a": 2}, {"a"', [JsonValue([{"a": 1}, {"a": 2}], complete=False)], id="in-an-item"),
        pytest.param("[[1, 2], [3, 4", [JsonValue([[1, 2]], complete=False)], id="in-a-pair"),
        pytest.param("[1, 2, 3", [JsonValue([1, 2], complete=False)], id="in-a-number"),
        pytest.param("[1, 2, 3.", [JsonValue([1, 2, 3], complete=False)], id="after-a-point"),
        pytest.param("[1, 2, -", [JsonValue([1, 2], complete=False)], id="after-a-sign"),
        pytest.param("[1, tru", [JsonValue([1], complete=False)], id="in-a-literal"),
        pytest.param("[1, 2,\n", [JsonValue([1, 2], complete=False)], id="after-a-comma"),
        pytest.param('{"a": [1, 2], "label": "left ma', complete([1, 2]), id="in-a-string"),
        pytest.param('{"a": [{"b": 1}, {"b": 2', [JsonValue([{"b": 1}], complete=False)], id="in-an-object"),
        pytest.param('```json\n{"a"', [], id="in-a-key"),
        pytest.param("[", [], id="at-once"),
    ],
)
def test_complete_parts_of_cut_json_are_found_and_the_cut_told(text: str, values: list[JsonValue]):
    scan = scan_json(text)
    assert (scan.values, scan.cut) == (values, True)


@settings(max_examples=100)
@given(st.text(alphabet='[]{}",:\\ 1a\n-.', max_size=60))
def test_no_text_makes_the_search_raise(text: str):
    scan_json(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 200_000, id="open-brackets"),
        pytest.param('{"a":' * 50_000, id="open-objects"),
        pytest.param(('{"a":' * 900 + "x ") * 50, id="nests"),
        pytest.param('["' * 100_000, id="open-strings"),
        pytest.param("[[1,2]," * 40_000, id="open-lists"),
        pytest.param('[{"a":1},{"b":2} x ' * 8_000, id="broken-lists"),
        pytest.param("[" + " " * 100_000 + "[" + " " * 100_000, id="blanks"),
        pytest.param(("[" + "9" * 5_000 + ",") * 40, id="endless-numbers"),
        pytest.param("<answer>" * 30_000, id="answer-tags"),
    ],
)
def test_a_long_loop_of_a_model_takes_linear_time(text: str):
    start = time.process_time()
    scan_json(text)
    list(answer_candidates(text))
    assert time.process_time() - start < 2  # a quadratic search takes minutes


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3.0),
        (-0.5, -0.5),
        ("12.5", 12.5),
        (" 7 ", 7.0),
        (".5", 0.5),
        ("1e2", 100.0),
        (True, None),
        (None, None),
        ([1], None),
        ("12px", None),
        ("1_000", None),
        ("nan", None),
        ("1e999", None),
        (float("inf"), None),
        (float("nan"), None),
        (10**400, None),
    ],
)
def test_only_finite_numbers_are_numbers(value: object, expected: float | None):
    assert number(value) == expected


@pytest.mark.parametrize(
    ("coordinates", "value"),
    [
        (Coordinates.UNIT, 0.25),
        (Coordinates.PERCENT, 25),
        (Coordinates.PER_MILLE, 250),
        (Coordinates.PIXELS, 160),
        (Coordinates.RESIZED_PIXELS, 80),
    ],
)
def test_every_coordinate_system_reaches_pixels(coordinates: Coordinates, value: float):
    assert to_pixels(np.array([value]), coordinates, np.array([640.0]), np.array([320.0])).tolist() == [160]


def test_resized_pixels_need_the_size_the_model_saw():
    with pytest.raises(ValueError, match="need the size of the image the model saw"):
        to_pixels(1.0, Coordinates.RESIZED_PIXELS, 640.0)
