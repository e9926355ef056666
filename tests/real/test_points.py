"""Real answers of a Gemini model: lists of pairs, per mille, most of them fenced and after prose."""

import json
from pathlib import Path
from typing import Any

import pytest

from reftables.files import read_jsonl
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Status
from reftables.scoring.point_parsers import Reading, axes_of, read_answer

pytestmark = pytest.mark.real

FORM = AnswerFormat(notation=Notation.JSON, coordinates=Coordinates.PER_MILLE, order=Order.XY, prompt="qwen", grid=None)
SIZE_WH = (1000, 1000)
NO_ANSWER = {
    30: "ends in the reasoning before any number",
    74: "ends in the first sentence",
    75: "ends in the reasoning before any number",
    84: "ends within the first pair of its list; the pairs of its prose are not the answer",
}
FIRST_PAIR_ONLY = {
    15: "ends in a numbered list of its steps, a pair each: the first JSON value is one pair",
    42: "has no fence, and a pair in the prose before its list",
}


@pytest.fixture(scope="module")
def answers(real_data: Path) -> list[str]:
    return [row["model_prediction"] for _, row in read_jsonl(real_data / "points" / "Gemini3Pro_2D.jsonl")]


@pytest.fixture(scope="module")
def readings(answers: list[str]) -> list[Reading]:
    return [read_answer(answer, FORM, axes_of(FORM), SIZE_WH, None) for answer in answers]


def test_96_of_100_answers_are_read_and_the_others_are_cut_short(readings: list[Reading]) -> None:
    assert [number for number, reading in enumerate(readings) if not reading.regions] == list(NO_ANSWER)


def test_an_answer_cut_within_its_list_is_truncated(readings: list[Reading]) -> None:
    assert {number: readings[number].status for number in NO_ANSWER} == {
        30: Status.UNPARSED,
        74: Status.UNPARSED,
        75: Status.UNPARSED,
        84: Status.TRUNCATED,
    }


def test_fenced_lists_are_read_whole_whatever_the_prose_says(answers: list[str], readings: list[Reading]) -> None:
    for number, (answer, reading) in enumerate(zip(answers, readings, strict=True)):
        if number not in NO_ANSWER | FIRST_PAIR_ONLY:
            listed: list[Any] = json.loads(answer.partition("```json\n")[2].partition("```")[0])
            assert [list(group.numbers) for group in reading.groups] == listed, number


def test_without_a_fence_the_first_pair_is_the_answer(readings: list[Reading]) -> None:
    assert {number: len(readings[number].groups) for number in FIRST_PAIR_ONLY} == {15: 1, 42: 1}


def test_the_raw_row_of_the_benchmark_has_the_fields_that_are_read(real_data: Path) -> None:
    file = json.loads((real_data / "points" / "refspatial_record.json").read_text(encoding="utf-8"))
    record = file["records"][0]["raw_record"]
    assert {"id", "object", "prompt", "suffix", "rgb_path", "mask_path", "step", "scene"} <= record.keys()
