"""Scoring of points: the case table, the metrics, the tolerant parser, and any text at all."""

import json
import os
import re
import subprocess
import sys
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from reftables.errors import ConfigError, DataError
from reftables.kosmos import write_answer
from reftables.rows import AnswerFormat, Prediction, Status, TruthRow
from reftables.scoring.point_parsers import Reading, axes_of, read_answer
from reftables.scoring.points import score
from reftables.scoring.scores import Scores
from tests.conftest import read_cases
from tests.unit.pointing import (
    BRACKETS,
    FORMATS,
    GEMINI,
    JSON,
    KOSMOS,
    MOLMO,
    MOLMO2,
    PIXELS,
    SIZE_WH,
    TUPLE_LISTS,
    TUPLE_TEXTS,
    UNIT,
    answer_format,
    encode,
)

CASES = read_cases("points")


def mask_by_rule(rule: str, size_wh: tuple[int, int]) -> NDArray[np.bool_]:
    """The mask of a case: `inside where x >= 320 and y >= 240`."""
    y, x = np.mgrid[: size_wh[1], : size_wh[0]]
    mask = np.ones(size_wh[::-1], dtype=bool)
    for axis, comparison, border in re.findall(r"([xy]) (>=|<) (\d+)", rule):
        values = {"x": x, "y": y}[axis]
        mask &= values >= int(border) if comparison == ">=" else values < int(border)
    return mask


LOWER_RIGHT = mask_by_rule("x >= 320 and y >= 240", SIZE_WH)


def truth_row(id_: int = 0, mask: NDArray[np.bool_] = LOWER_RIGHT, **more: Any) -> TruthRow:
    height, width = mask.shape
    return {"id": id_, "width": width, "height": height, "expression": "cup", "mask": encode(mask), "step": 1, **more}


def prediction(text: str | None, id_: int = 0, status: Status = Status.OK, **more: Any) -> Prediction:
    return Prediction(id=id_, text=text, status=status, **more)


def score_one(text: str | None, form: AnswerFormat, row: TruthRow | None = None, **more: Any) -> Scores:
    return score([row or truth_row()], [prediction(text, **more)], form, {})


def value(scores: Scores, scoring: str, metric: str = "accuracy") -> float | None:
    ratios = scores.official if scoring == "official" else scores.robust
    assert ratios is not None
    return ratios[metric].value


def read(text: str | None, form: AnswerFormat) -> Reading:
    return read_answer(text, form, axes_of(form), SIZE_WH, None)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case_has_its_official_and_robust_score_and_status(case: dict[str, Any]) -> None:
    form = answer_format(**case["answer_format"])
    mask = mask_by_rule(case["mask"], tuple(case["image_size"]))
    scores = score_one(case["answer"], form, truth_row(mask=mask))
    assert scores.official_undefined is not None
    found = {
        "official": None if scores.official_undefined[0] else value(scores, "official"),
        "robust": value(scores, "robust"),
        "status": scores.statuses[0],
    }
    assert found == {key: case[key] for key in found}


# What the three metrics are


def test_metrics_are_the_share_any_hit_and_the_first_point() -> None:
    scores = score_one("[(0.1, 0.1), (0.75, 0.75), (0.9, 0.9), (0.2, 0.9)]", UNIT)
    assert {name: ratio.value for name, ratio in (scores.robust or {}).items()} == {
        "accuracy": 0.5,
        "any_hit": 1.0,
        "first_point": 0.0,
    }


def test_repeated_points_count_each_time() -> None:
    assert value(score_one("(480, 360), (480, 360), (10, 10)", PIXELS), "robust") == pytest.approx(2 / 3)


def test_first_point_of_a_box_is_its_first_pixel() -> None:
    scores = score_one("(319, 240, 640, 480)", PIXELS)
    assert value(scores, "robust", "first_point") == 0
    assert value(scores, "robust", "any_hit") == 1


def test_points_beside_the_image_miss_and_are_never_clipped() -> None:
    whole = truth_row(mask=np.ones((480, 640), dtype=bool))
    assert value(score_one("(-1, 5), (640, 5), (5, 480), (5, 5)", PIXELS, whole), "robust") == 0.25


def test_a_box_counts_the_area_it_covers_outside_the_image() -> None:
    whole = truth_row(mask=np.ones((480, 640), dtype=bool))
    scores = score_one("(-640, 0, 640, 480)", PIXELS, whole)
    assert (value(scores, "official"), value(scores, "robust")) == (0.5, 0.5)


@pytest.mark.parametrize("form", [UNIT, PIXELS], ids=["unit", "pixels"])
def test_a_huge_box_costs_no_memory(form: AnswerFormat) -> None:
    tracemalloc.start()
    scores = score_one("(-1000000, -1000000, 1000000, 1000000)", form)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert value(scores, "robust") == 320 * 240 / 4e12
    assert peak < 2_000_000


def test_official_reads_the_authors_mask_where_the_two_differ() -> None:
    row = truth_row(mask_official=encode(~LOWER_RIGHT))
    scores = score_one("(0.75, 0.75)", UNIT, row)
    assert (value(scores, "official"), value(scores, "robust")) == (0, 1)


def test_mean_is_over_all_samples_also_those_the_authors_drop() -> None:
    texts = ["(0.75, 0.75)", "(1.0, 1.0, 0.5, 0.5)", None, "nothing"]
    scores = score([truth_row(i) for i in range(4)], [prediction(text, i) for i, text in enumerate(texts)], UNIT, {})
    assert value(scores, "official") == 0.25
    assert scores.official_dropped == 2
    assert scores.n == 4


def test_a_point_in_absolute_pixels_has_no_official_value() -> None:
    scores = score(
        [truth_row(0), truth_row(1)], [prediction("(480.5, 360.5)", 0), prediction("(480, 360)", 1)], PIXELS, {}
    )
    assert scores.official_undefined is not None
    assert scores.official_undefined.tolist() == [True, False]
    assert value(scores, "official") == 0.5


@pytest.mark.parametrize(
    "form",
    [BRACKETS, KOSMOS, answer_format("tuples", "per_mille"), answer_format("tuples", "resized_pixels")],
    ids=lambda form: f"{form.notation}-{form.coordinates}",
)
def test_formats_the_authors_never_parse_have_no_official_scores(form: AnswerFormat) -> None:
    scores = score_one("[480, 360]", form, image_size=SIZE_WH)
    assert (scores.official, scores.official_dropped, scores.official_undefined) == (None, None, None)


def test_breakdowns_are_the_steps_and_the_scenes_where_given() -> None:
    rows = [truth_row(i, step=i + 1, scene=scene) for i, scene in enumerate(("indoor", "outdoor"))]
    answers = [prediction("(0.75, 0.75)", i) for i in range(2)]
    assert score(rows, answers, UNIT, {}).groups == {"step": [1, 2], "scene": ["indoor", "outdoor"]}
    assert set(score([truth_row()], [prediction("x")], UNIT, {}).groups) == {"step"}


def test_scoring_loads_nothing_that_decodes_pictures() -> None:
    code = "import sys, reftables.scoring.points; print(sorted({'PIL', 'pandas', 'pycocotools'} & sys.modules.keys()))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout == "[]\n"


# Statuses


@pytest.mark.parametrize("status", [Status.REFUSED, Status.ERROR, Status.MISSING, Status.EMPTY])
def test_the_text_of_a_failed_prediction_is_not_read(status: Status) -> None:
    scores = score_one("(0.75, 0.75)", UNIT, status=status)
    assert (value(scores, "official"), value(scores, "robust"), scores.statuses) == (0, 0, [status])


def test_a_prediction_cut_by_its_backend_is_read_and_stays_truncated() -> None:
    scores = score_one("(0.75, 0.75)", UNIT, status=Status.TRUNCATED)
    assert (value(scores, "robust"), scores.statuses) == (1, [Status.TRUNCATED])


@pytest.mark.parametrize(
    ("text", "form", "status"),
    [
        pytest.param(" \n", UNIT, Status.EMPTY, id="blank"),
        pytest.param("<think>perhaps (0.5, 0.5)", UNIT, Status.TRUNCATED, id="reasoning-cut"),
        pytest.param("[(0.75, 0.75), (0.1", UNIT, Status.TRUNCATED, id="list-cut-in-a-pair"),
        pytest.param("[(0.75, 0.75),", UNIT, Status.TRUNCATED, id="list-cut-between-pairs"),
        pytest.param("(0.75, 0.", UNIT, Status.TRUNCATED, id="first-pair-cut"),
        pytest.param("<answer>the cup", UNIT, Status.TRUNCATED, id="answer-tag-cut"),
        pytest.param("I cannot see it :(", UNIT, Status.UNPARSED, id="sad-face"),
        pytest.param("(1, 2, 3)", UNIT, Status.UNPARSED, id="three-numbers"),
        pytest.param("(0.1, 0.1), (0.9, 0.9, 0.2, 0.2)", UNIT, Status.UNPARSED, id="second-is-inverted"),
        pytest.param("(0.1, 0.9, 0.2, 0.2)", UNIT, Status.UNPARSED, id="inverted-in-y"),
        pytest.param("(0.2, 0.2, 0.2, 0.9)", UNIT, Status.OK, id="box-without-pixels"),
        pytest.param("(1e12, 5)", PIXELS, Status.UNPARSED, id="beyond-all-images"),
        pytest.param("```json\n[{", JSON, Status.TRUNCATED, id="fence-cut"),
        pytest.param('{"point_2d": [480, 360], "la', JSON, Status.TRUNCATED, id="object-cut-after-its-point"),
        pytest.param("Here:\n```json", JSON, Status.TRUNCATED, id="fence-cut-at-its-word"),
        pytest.param('{"point_2d": [480, 36', JSON, Status.TRUNCATED, id="point-cut"),
        pytest.param("[]", JSON, Status.UNPARSED, id="no-points"),
        pytest.param('<points x1="75" y1="75" x2="1', MOLMO, Status.TRUNCATED, id="tag-cut"),
        pytest.param("There are none.", MOLMO, Status.UNPARSED, id="no-tag"),
        pytest.param('<points coords="1 1 750 750 2 80', MOLMO2, Status.TRUNCATED, id="coords-cut"),
        pytest.param('<points coords="1">cup</points>', MOLMO2, Status.UNPARSED, id="coords-without-points"),
        pytest.param('<points coords="1 1 500 500">the cup</points>, the', MOLMO2, Status.OK, id="cut-after-coords"),
        pytest.param("<phrase>cup</phrase><object><patch_index_0000>", KOSMOS, Status.TRUNCATED, id="object-cut"),
        pytest.param(write_answer("cup", [(0, 2000)]), KOSMOS, Status.UNPARSED, id="cell-beyond-the-grid"),
        pytest.param(write_answer("cup", [(528, 0)]), KOSMOS, Status.UNPARSED, id="inverted-cells"),
    ],
)
def test_status_of_an_answer(text: str, form: AnswerFormat, status: Status) -> None:
    assert read(text, form).status == status


# The tolerant parser


@pytest.mark.parametrize(
    ("text", "form", "points_xy"),
    [
        pytest.param("( 0.5 ,\n0.25 )", UNIT, [(320, 120)], id="blanks"),
        pytest.param("(.5, 5e-1)", UNIT, [(320, 240)], id="no-leading-zero-and-exponent"),
        pytest.param("(x=0.5, y: 0.25)", UNIT, [(320, 120)], id="names"),
        pytest.param("[[0.5, 0.25], [0.1, 0.5]]", UNIT, [(320, 120), (64, 240)], id="square-pairs-for-want-of-round"),
        pytest.param("[[0.1, 0.1]] or (0.5, 0.25)", UNIT, [(320, 120)], id="round-groups-first"),
        pytest.param("(1, 1)", UNIT, [(640, 480)], id="integers-up-to-one-are-shares"),
        pytest.param("(300, 1)", UNIT, [(300, 1)], id="integers-above-one-are-pixels"),
        pytest.param("(300.0, 1)", UNIT, [(192000, 480)], id="a-decimal-point-makes-shares"),
        pytest.param("(-0.001, 0.5)", UNIT, [(-1, 240)], id="floor"),
        pytest.param("(7, 9, 8, 10)", UNIT, [(7, 9)], id="boxes-of-integers-are-pixels"),
        pytest.param("<answer>(1, 2)</answer><answer>none</answer>", PIXELS, [(1, 2)], id="last-answer-with-a-point"),
        pytest.param("(480.9, 3)", answer_format("tuples", "pixels", "yx"), [(3, 480)], id="declared-order"),
        pytest.param("[480, 360] [1, 2, 3, 4]", BRACKETS, [(480, 360)], id="brackets"),
        pytest.param('{"point": ["480", " 360 "]}', JSON, [(480, 360)], id="numeric-texts"),
        pytest.param('[{"point_2d": [1, 2]}, {"point": [3, 4]}]', JSON, [(1, 2), (3, 4)], id="both-keys"),
        pytest.param('{"points": [{"point_2d": [1, 2]}]}', JSON, [(1, 2)], id="nested"),
        pytest.param("[[1, 2], [3, 4]]", JSON, [(1, 2), (3, 4)], id="bare-pairs"),
        pytest.param("[1, 2]", JSON, [(1, 2)], id="one-bare-pair"),
        pytest.param("[[1, 2], [3, 4", JSON, [(1, 2)], id="complete-items-of-a-cut-list"),
        pytest.param("[1, 2,", JSON, [], id="more-numbers-were-to-come"),
        pytest.param("From [9, 9]:\n```json\n[[1, 2]]\n```", JSON, [(1, 2)], id="fence-before-prose"),
        pytest.param("From [9, 9]:\n```json\n[[1", JSON, [], id="cut-fence-hides-prose"),
        pytest.param("[[1, 2]]\n```", JSON, [(1, 2)], id="closing-fence-alone"),
        pytest.param("```python\nx = 1\n```\n[[1, 2]]", JSON, [(1, 2)], id="other-fence"),
        pytest.param('{"label": [1, 2]}', JSON, [], id="pair-under-another-key"),
        pytest.param('{"point": [true, 1]}', JSON, [], id="truth-value"),
        pytest.param("[[250, 500]]", GEMINI, [(320, 120)], id="gemini-bare-pair-is-y-x"),
        pytest.param('{"point_2d": [250, 500]}', GEMINI, [(320, 120)], id="gemini-other-key"),
        pytest.param("<point x='50' y='25'/><point x=\"10.0\" y=\"50\">", MOLMO, [(320, 120), (64, 240)], id="tags"),
        pytest.param('<points x1="50" y1="25" x2="9" y3="9">', MOLMO, [(320, 120)], id="numbers-agree"),
        pytest.param('<box x1="50" y1="25">', MOLMO, [], id="another-tag"),
        pytest.param('<points coords="1 1 073 160 2 500 1000">', MOLMO2, [(46, 76), (320, 480)], id="coords"),
        pytest.param("<points alt='1 2 333 333' coords='1 12 500 250'/>", MOLMO2, [(320, 120)], id="coords-alone"),
        pytest.param('<points coords="1 1 500 250;2 1 100 500">', MOLMO2, [(320, 120), (64, 240)], id="two-images"),
        pytest.param('<points coords="1 1 500 250 2 100 500', MOLMO2, [(320, 120)], id="last-triple-may-be-cut"),
        pytest.param('<points x1="50" y1="25">', MOLMO2, [], id="no-coords"),
        pytest.param(write_answer("cup", [(0, 33), (0, 0)]), KOSMOS, [(20, 15), (10, 7)], id="kosmos"),
    ],
)
def test_first_pixels_of_what_an_answer_points_at(
    text: str, form: AnswerFormat, points_xy: list[tuple[int, int]]
) -> None:
    assert [region[:2] for region in read(text, form).regions] == points_xy


def test_resized_pixels_are_those_of_the_image_the_model_saw() -> None:
    form = answer_format("json", "resized_pixels")
    scores = score_one("[240, 180]", form, image_size=(320, 240))
    assert value(scores, "robust") == 1


def test_resized_pixels_without_the_seen_size_are_an_error_that_names_the_samples() -> None:
    with pytest.raises(DataError, match=r"1 answers in resized pixels .* sample ids 7\. Record image_size"):
        score([truth_row(7)], [prediction("[1, 2]", 7)], answer_format("json", "resized_pixels"), {})


def test_kosmos_points_are_named_as_centres_of_boxes() -> None:
    scores = score_one(write_answer("cup", [(528, 1023)]), KOSMOS)
    assert scores.notes == ["Kosmos answers with boxes; its points are the centres of the boxes."]
    assert value(scores, "robust") == 1


def test_a_notation_without_points_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"formats\.points\.notation: surds has no points\. Choose one of kosmos, "):
        score_one("x", answer_format("surds"))


@pytest.mark.parametrize(
    ("text", "form", "note"),
    [
        pytest.param("(300.5, 200.5)", UNIT, r"\(unit\): 1 of 1 points lie beyond 1\.", id="pixels-for-unit"),
        pytest.param("(0.5, 0.5)", PIXELS, r"\(pixels\): 1 of 1 points hold no number above 1\.", id="unit-for-pixels"),
        pytest.param(
            "(300, 900)", PIXELS, r"\(pixels\): 1 of 1 points lie beyond the image\.", id="per-mille-for-pixels"
        ),
        pytest.param(
            "[[1200, 3]]", GEMINI, r"\(per_mille\): 1 of 1 points lie beyond 1000\.", id="pixels-for-per-mille"
        ),
    ],
)
def test_answers_that_contradict_the_declared_coordinates_are_noted(text: str, form: AnswerFormat, note: str) -> None:
    (found,) = score_one(text, form).notes
    assert re.fullmatch(rf"Most answers contradict the declared coordinates {note}", found)


@pytest.mark.parametrize("text", ["(300, 200)", "(0.5, 0.5)", "nothing"])
def test_answers_as_declared_are_not_noted(text: str) -> None:
    assert score_one(text, UNIT).notes == []


# Any text


HOSTILE = {
    "round-brackets": "(" * 200_000,
    "open-pairs": "(1," * 100_000,
    "digits": "(" + "1" * 200_000,
    "digits-in-a-tag": '<points x1="' + "1" * 200_000,
    "blanks": "(1," + " " * 200_000,
    "blanks-in-a-tag": '<points x1="1"' + " " * 200_000,
    "names": "(x=" * 100_000,
    "lists": "[[1," * 50_000,
    "objects": '{"point":' * 20_000,
    "tags": "<point " * 50_000,
    "fences": "```a" * 50_000,
    "backticks": "`" * 200_000,
    "answers": "<answer>(1" * 50_000,
    "thoughts": "<think>" * 50_000,
    "patches": "<phrase>a</phrase><object>" * 10_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_text_takes_quadratic_time(text: str) -> None:
    started = time.process_time()
    for form in FORMATS:
        score_one(text, form)
    assert time.process_time() - started < 10  # a quadratic parser takes minutes


@settings(max_examples=100, deadline=None)
@given(
    text=st.one_of(
        st.text(max_size=80), TUPLE_TEXTS, TUPLE_LISTS, st.text('`[]{}"point_2d:, 0123.e-<>xy=/', max_size=60)
    )
)
def test_no_text_raises(text: str) -> None:
    for form in FORMATS:
        assert score_one(text, form).statuses[0] in (Status.OK, Status.UNPARSED, Status.TRUNCATED, Status.EMPTY)


@settings(max_examples=50, deadline=None)
@given(points=st.lists(st.tuples(st.integers(0, 639), st.integers(0, 479)), min_size=1, max_size=8))
def test_every_notation_gives_back_the_points_written_in_it(points: list[tuple[int, int]]) -> None:
    spelled = {
        PIXELS: str(points),
        BRACKETS: str([list(point) for point in points]),
        JSON: json.dumps([{"point_2d": point} for point in points]),
        answer_format("json", "pixels", "yx"): json.dumps([[y, x] for x, y in points]),
    }
    for form, text in spelled.items():
        assert [region[:2] for region in read(text, form).regions] == points
