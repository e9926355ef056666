"""Boxes: the official Kosmos-2 scorer against a slow reference, and the robust reading of all notations."""

import re
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reftables.errors import ConfigError, DataError
from reftables.kosmos import write_answer
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Prediction, Status, TruthRow
from reftables.scoring.boxes import paired_iou, score
from reftables.scoring.scores import Ratio, Scores

METRICS = ("precision@1", "mean_box", "upper_bound", "mean_iou")
DELIMITER = "</delimiter_of_multi_objects/>"
RIGHT = [256, 192, 64, 48]  # x, y, width, height
NEAR = "[256, 192, 320, 240]"  # the same box, as a model writes it in pixels


def form(
    notation: str, coordinates: str | None = None, order: str | None = None, grid: int | None = 32
) -> AnswerFormat:
    return AnswerFormat(
        notation=Notation(notation),
        coordinates=Coordinates(coordinates) if coordinates else None,
        order=Order(order) if order else None,
        prompt="plain",
        grid=grid if notation == "kosmos" else None,
    )


def sample(
    bbox_xywh: Sequence[float] = RIGHT, size_wh: Sequence[int] = (640, 480), expression: str = "man"
) -> TruthRow:
    return {"bbox_xywh": bbox_xywh, "width": size_wh[0], "height": size_wh[1], "expression": expression}


def predictions(*answers: str | None, **fields: Any) -> list[Prediction]:
    return [Prediction(id=row, text=text, **{"status": Status.OK, **fields}) for row, text in enumerate(answers)]


def score_one(answer: str | None, answer_format: AnswerFormat, truth: TruthRow | None = None, **fields: Any) -> Scores:
    return score([truth or sample()], predictions(answer, **fields), answer_format, {})


def values(metrics: dict[str, Ratio] | None) -> dict[str, float | None]:
    return {name: ratio.value for name, ratio in (metrics or {}).items()}


def hits(metrics: dict[str, Ratio] | None) -> list[float | None]:
    return [values(metrics)[name] for name in METRICS[:3]]


# The cases that were agreed upon


def test_every_agreed_case_has_its_values_and_status(cases: Callable[[str], list[dict[str, Any]]]):
    wrong = {}
    for case in cases("boxes"):
        truth = sample(case["bbox_xywh"], case["image_size"], case.get("caption", ""))
        answer_format = form(**case.get("answer_format", {"notation": "kosmos"}))
        found = score_one(case["answer"], answer_format, truth, image_size=case.get("seen_size"))
        official = found.official and dict(zip(METRICS, hits(found.official), strict=False))
        robust = dict(zip(METRICS, hits(found.robust), strict=False))
        if (official, robust, found.statuses) != (case["official"], case["robust"], [case["status"]]):
            wrong[case["id"]] = (official, robust, found.statuses)
    assert wrong == {}


# Official


def reference_pairs(answer: str, caption: str) -> list[tuple[int, int]]:
    """The pairs of the caption, by hand: every `<object>` up to its end, the phrase right before it."""
    text = answer.split("</image>")[-1]
    kept = []
    pieces = text.split("<object>")
    for before, after in pairwise(pieces):
        inside, closed, _ = after.partition("</object>")
        pairs = [re.fullmatch(r"<patch_index_(\d+)><patch_index_(\d+)>", pair) for pair in inside.split(DELIMITER)]
        if not closed or None in pairs or not before.endswith("</phrase>"):
            continue
        _, opened, phrase = before.removesuffix("</phrase>").rpartition("<phrase>")
        if opened and phrase and "<" not in phrase and phrase.strip() == caption.strip():
            kept += [(int(pair[1]), int(pair[2])) for pair in pairs if pair]
    return kept


def reference_box(first: int, second: int, grid: int) -> list[float]:
    cell = 1.0 / grid
    x1, y1, x2, y2 = first % grid, first // grid, second % grid, second // grid
    if first == second or x1 == x2 or y1 == y2:
        return [x1 * cell, y1 * cell, x2 * cell + cell, y2 * cell + cell]
    return [x1 * cell + cell / 2, y1 * cell + cell / 2, x2 * cell + cell / 2, y2 * cell + cell / 2]


def reference_iou(box: Sequence[np.float32], truth: Sequence[np.float32]) -> np.float32:
    area = (box[2] - box[0]) * (box[3] - box[1])
    truth_area = (truth[2] - truth[0]) * (truth[3] - truth[1])
    zero = np.float32(0)
    width = max(min(box[2], truth[2]) - max(box[0], truth[0]), zero)
    height = max(min(box[3], truth[3]) - max(box[1], truth[1]), zero)
    intersection = width * height
    union = area + truth_area - intersection
    return intersection / union if union != 0 else zero


def reference_score(answer: str, truth: TruthRow, grid: int) -> dict[str, float]:
    """The four values of one sample in the authors' order, one float32 number at a time."""
    x, y, w, h = truth["bbox_xywh"]
    true_box = [np.float32(value) for value in (x, y, x + w, y + h)]
    size = (truth["width"], truth["height"]) * 2
    boxes = [
        [np.float32(value * extent) for value, extent in zip(reference_box(*pair, grid), size, strict=True)]
        for pair in reference_pairs(answer, truth["expression"])
    ] or [[np.float32(0)] * 4]
    mean_box = []
    for corner in zip(*boxes, strict=True):
        total = np.float32(0)
        for value in corner:
            total = total + value
        mean_box.append(total / np.float32(len(boxes)))
    found = [reference_iou(box, true_box) for box in boxes]
    right = [value >= 0.5 for value in (found[0], reference_iou(mean_box, true_box), max(found))]
    return dict(zip(METRICS, [*map(float, right), float(found[0])], strict=True))


indices = st.one_of(st.integers(0, 1100), st.sampled_from([0, 31, 32, 33, 991, 992, 1022, 1023, 1024, 9999]))
pair_texts = st.builds("<patch_index_{:04d}><patch_index_{:04d}>".format, indices, indices)
objects = st.one_of(
    st.lists(pair_texts, min_size=1, max_size=6).map(DELIMITER.join),
    st.sampled_from(["", "<patch_index_0001>", DELIMITER, "<patch_index_0001> <patch_index_0002>"]),
)
phrases = st.sampled_from(["man", "man", " man\t", "woman", "m<n", "", " ", "the  man"])
segments = st.one_of(
    st.builds("<phrase>{}</phrase><object>{}</object>".format, phrases, objects),
    st.builds("<object>{}</object>".format, objects),
    st.sampled_from(["<phrase>", "<object>", "</phrase>", "</image>", "</s>", " and ", "man"]),
)
answers = st.lists(segments, max_size=5).map("".join)
hundredths = st.integers(0, 64_000).map(lambda value: value / 100)
truths = st.builds(
    sample,
    st.tuples(hundredths, hundredths, hundredths, hundredths),
    st.tuples(st.integers(1, 700), st.integers(1, 700)),
    st.sampled_from(["man", " man", "m<n", "", "the  man"]),
)


@settings(max_examples=100)
@given(st.lists(st.tuples(answers, truths), min_size=1, max_size=8), st.sampled_from([32, 32, 24]))
def test_official_scores_equal_the_reference_sample_by_sample(split: list[tuple[str, TruthRow]], grid: int):
    found = score([truth for _, truth in split], predictions(*[a for a, _ in split]), form("kosmos", grid=grid), {})
    expected = [reference_score(answer, truth, grid) for answer, truth in split]
    assert found.official is not None
    assert {name: found.official[name].numerator.tolist() for name in METRICS} == {
        name: [row[name] for row in expected] for name in METRICS
    }


HALF = [
    pytest.param((640, 640), [0, 0, 100, 20], (0, 9), 1, id="exactly-half"),
    pytest.param((640, 640), [0, 0, 99.99, 20], (0, 9), 0, id="just-below"),
    pytest.param((640, 427), [30.0, 206.83, 420.0, 106.75], (481, 1014), 0, id="half-only-in-float64"),
    pytest.param((640, 427), [110.0, 166.8, 220.0, 106.75], (389, 912), 0, id="exactly-half-only-in-float64"),
    pytest.param((500, 375), [70.31, 87.89, 328.12, 11.72], (228, 313), 1, id="half-only-in-float32"),
    pytest.param((333, 500), [46.83, 23.44, 166.5, 148.44], (36, 660), 1, id="above-half-only-in-float32"),
]


@pytest.mark.parametrize(("size_wh", "bbox_xywh", "pair", "hit"), HALF)
def test_at_one_half_float32_decides(size_wh: tuple[int, int], bbox_xywh: list[float], pair: tuple[int, int], hit: int):
    found = score_one(write_answer("man", [pair]), form("kosmos"), sample(bbox_xywh, size_wh))
    assert (hits(found.official), hits(found.robust)) == ([hit] * 3, [hit] * 3)


@pytest.mark.parametrize(
    ("pairs", "official", "robust", "status"),
    [
        pytest.param([(297, 0)], [0, 0, 0], [0, 0, 0], "unparsed", id="inverted"),
        pytest.param([(297, 0), (0, 297)], [0, 0, 1], [0, 0, 0], "unparsed", id="first-inverted"),
        pytest.param([(0, 297), (297, 0)], [1, 0, 1], [1, 1, 1], "ok", id="second-inverted-is-left-out"),
        pytest.param([(0, 297), (0, 1024)], [1, 0, 1], [0, 0, 0], "unparsed", id="beyond-the-grid"),
        pytest.param([(0, 297), (0, 297), (0, 297)], [1, 1, 1], [1, 1, 1], "ok", id="three-times-the-same"),
    ],
)
def test_official_computes_with_boxes_that_robust_refuses(
    pairs: list[tuple[int, int]], official: list[int], robust: list[int], status: str
):
    found = score_one(write_answer("man", pairs), form("kosmos"), sample([10, 10, 180, 180], (640, 640)))
    assert (hits(found.official), hits(found.robust), found.statuses) == (official, robust, [status])


def test_an_index_beyond_the_grid_counts_officially_where_it_decodes_to_the_right_box():
    below = sample([0, 640, 20, 20], (640, 640))  # row 32, under the image
    assert hits(score_one(write_answer("man", [(1024, 1024)]), form("kosmos"), below).official) == [1, 1, 1]


def test_a_truth_without_area_and_an_answer_without_box_have_iou_0():
    found = score_one("", form("kosmos"), sample([0, 0, 0, 0]))
    assert (values(found.official), found.statuses) == (dict.fromkeys(METRICS, 0), ["empty"])


@pytest.mark.parametrize(("phrase", "hit"), [("", 0), (" ", 1)])
def test_officially_an_empty_phrase_is_none_and_a_blank_one_is_empty(phrase: str, hit: int):
    truth = sample([10, 10, 180, 180], (640, 640), expression="")
    assert hits(score_one(write_answer(phrase, [(0, 297)]), form("kosmos"), truth).official) == [hit] * 3


def test_the_grid_is_the_declared_one():
    answer = write_answer("man", [(0, 3)])  # all cells of a grid of 2
    assert hits(score_one(answer, form("kosmos", grid=2), sample([160, 120, 320, 480])).official) == [1, 1, 1]


@pytest.mark.parametrize(
    ("ending", "status"),
    [("<phrase>dog</phrase><object><patch_index_0", "truncated"), ("<phrase>dog</phrase>", "ok"), ("</s>", "ok")],
)
def test_a_complete_box_counts_in_a_cut_kosmos_answer(ending: str, status: str):
    answer = write_answer("man", [(0, 297)]) + ending
    found = score_one(answer, form("kosmos"), sample([10, 10, 180, 180], (640, 640)))
    assert (hits(found.robust), found.statuses) == ([1, 1, 1], [status])


def test_two_boxes_of_two_phrases_with_the_caption_are_both_its_boxes():
    answer = write_answer("man", [(0, 297)]) + write_answer("man", [(660, 957)]).removeprefix("<image></image>")
    found = score_one(answer, form("kosmos"), sample([10, 10, 180, 180], (640, 640)))
    assert hits(found.official) == [1, 0, 1]


# Robust: boxes in text

GOOD = [
    pytest.param("json", f'[{{"bbox_2d": {NEAR}, "label": "cup"}}]', id="json-list"),
    pytest.param("json", f'{{"box_2d": {NEAR}}}', id="json-box_2d"),
    pytest.param("json", f'```json\n{{"bbox": {NEAR}}}\n```', id="json-fence"),
    pytest.param("json", f'Here: {{"box": {NEAR}}}.', id="json-prose"),
    pytest.param("json", f"The box is {NEAR}", id="json-bare"),
    pytest.param("json", f"[{NEAR}]", id="json-list-of-lists"),
    pytest.param("json", f'{{"bbox_2d": [{NEAR}]}}', id="json-list-under-the-key"),
    pytest.param("json", f'{{"objects": [{{"label": "cup", "bbox_2d": {NEAR}}}]}}', id="json-nested"),
    pytest.param("json", f'{{"size": [0, 0, 640, 480], "bbox": {NEAR}}}', id="json-key-before-bare-list"),
    pytest.param("json", f'{{"box": [0, 0, 9, 9], "bbox_2d": {NEAR}}}', id="json-first-key-by-rank"),
    pytest.param("json", f'{{"bbox_2d": null, "bbox": {NEAR}}}', id="json-first-key-that-holds-a-box"),
    pytest.param("json", f'{{"bounding_box": {NEAR}}}', id="json-unknown-key"),
    pytest.param("json", f'[{{"thinking": "left", "answer": "{NEAR}"}}]', id="json-box-in-a-string"),
    pytest.param("json", '{"bbox_2d": ["256", "192", " 320", "240.0"]}', id="json-numbers-as-strings"),
    pytest.param("json", "{'bbox_2d': [256, 192, 320, 240]}", id="json-single-quotes"),
    pytest.param("json", f'{{"bbox_2d": {NEAR}, "score": NaN}}', id="json-nan-beside-the-box"),
    pytest.param("brackets", f"at {NEAR}.", id="brackets"),
    pytest.param("brackets", "[ 256.0 ,192 , 3.2e2,240]", id="brackets-decimals"),
    pytest.param("brackets", "[x1=256, y1=192, x2=320, y2=240]", id="brackets-names"),
    pytest.param("brackets", "［２５６，１９２，３２０，２４０］", id="brackets-full-width"),
    pytest.param("tuples", "(256, 192, 320, 240)", id="tuples-four"),
    pytest.param("tuples", "<box>(256,192),(320,240)</box>", id="tuples-corners"),
    pytest.param("tuples", "(256, 192) (320, 240)", id="tuples-corners-apart"),
]


@pytest.mark.parametrize(("notation", "answer"), GOOD)
def test_a_box_is_read_in_every_shape_of_its_notation(notation: str, answer: str):
    found = score_one(answer, form(notation, "pixels"))
    assert (found.official, hits(found.robust), found.statuses) == (None, [1, 1, 1], ["ok"])


BAD = [
    pytest.param("json", '{"bbox_2d": [256, 192, 320]}', "unparsed", id="json-three-numbers"),
    pytest.param("json", '{"bbox_2d": [256, 192, 320, 240, 1]}', "unparsed", id="json-five-numbers"),
    pytest.param("json", '{"bbox_2d": [256, 192, 320, null]}', "unparsed", id="json-null"),
    pytest.param("json", '{"bbox_2d": [256, 192, 320, NaN]}', "unparsed", id="json-nan"),
    pytest.param("json", '{"bbox_2d": [256, 192, 320, true]}', "unparsed", id="json-true"),
    pytest.param("json", '{"bbox_2d": []}', "unparsed", id="json-empty-list"),
    pytest.param("json", "There is no cup.", "unparsed", id="json-prose"),
    pytest.param("json", "(256, 192, 320, 240)", "unparsed", id="json-tuple"),
    pytest.param("brackets", "(256, 192, 320, 240)", "unparsed", id="brackets-tuple"),
    pytest.param("brackets", "[256, 192, 320", "truncated", id="brackets-cut"),
    pytest.param("tuples", "[256, 192, 320, 240]", "unparsed", id="tuples-brackets"),
    pytest.param("tuples", "(256, 192)", "unparsed", id="tuples-one-corner"),
    pytest.param("tuples", "(256, 192), (320, 24", "truncated", id="tuples-cut"),
    pytest.param("tuples", "(256, 192),", "truncated", id="tuples-cut-between"),
    pytest.param("json", '[{"bbox_2d": [256, 192, 320, 240', "truncated", id="json-cut-before-the-bracket"),
    pytest.param("json", '{"bbox_2d"', "truncated", id="json-cut-in-the-key"),
    pytest.param("json", "<answer>The cup is", "truncated", id="answer-never-closed"),
    pytest.param("json", f"<think>maybe {NEAR}", "truncated", id="reasoning-never-closed"),
    pytest.param("json", f"<think>{NEAR}</think> none", "unparsed", id="box-only-in-the-reasoning"),
    pytest.param("json", '{"bbox_2d": [320, 192, 256, 240]}', "unparsed", id="inverted-x"),
    pytest.param("json", '{"bbox_2d": [256, 240, 320, 192]}', "unparsed", id="inverted-y"),
    pytest.param("json", "", "empty", id="empty"),
    pytest.param("json", " \n", "empty", id="blank"),
    pytest.param("json", None, "empty", id="null"),
]


@pytest.mark.parametrize(("notation", "answer", "status"), BAD)
def test_an_answer_without_a_usable_box_is_wrong_and_says_why(notation: str, answer: str | None, status: str):
    found = score_one(answer, form(notation, "pixels"))
    assert (values(found.robust), found.statuses) == (dict.fromkeys(METRICS, 0), [status])


MANY = [
    pytest.param("[0, 0, 64, 48] [256, 192, 320, 240]", [0, 0, 1], "ok", id="right-one-second"),
    pytest.param("[246, 192, 320, 240] [266, 192, 320, 240]", [1, 1, 1], "ok", id="mean-of-two"),
    pytest.param("[256, 192, 320, 240] [9, 9, 0, 0]", [1, 1, 1], "ok", id="second-inverted-is-left-out"),
    pytest.param("[9, 9, 0, 0] [256, 192, 320, 240]", [0, 0, 0], "unparsed", id="first-inverted"),
    pytest.param("<answer>[0, 0, 9, 9]</answer><answer>[256, 192, 320, 240]</answer>", [1, 1, 1], "ok", id="last-tag"),
    pytest.param(
        "<answer>[256, 192, 320, 240]</answer><answer>yes</answer>", [1, 1, 1], "ok", id="last-tag-with-a-box"
    ),
    pytest.param("[0, 0, 9, 9] <answer>[256, 192, 320, 240]</answer>", [1, 1, 1], "ok", id="tag-before-text"),
    pytest.param("[256, 192, 320, 240], [0, 0", [1, 1, 1], "truncated", id="complete-box-of-a-cut-answer"),
]


@pytest.mark.parametrize("notation", ["json", "brackets"])
@pytest.mark.parametrize(("answer", "robust", "status"), MANY)
def test_the_first_box_of_the_final_answer_counts(notation: str, answer: str, robust: list[int], status: str):
    found = score_one(answer, form(notation, "pixels"))
    assert (hits(found.robust), found.statuses) == (robust, [status])


def test_complete_items_of_a_cut_json_list_count():
    found = score_one(f'[{{"bbox_2d": {NEAR}}}, {{"bbox_2d": [0, 0,', form("json", "pixels"))
    assert (hits(found.robust), found.statuses) == ([1, 1, 1], ["truncated"])


@pytest.mark.parametrize(
    ("coordinates", "order", "answer"),
    [
        ("unit", None, "[0.4, 0.4, 0.5, 0.5]"),
        ("unit", "yx", "[0.4, 0.4, 0.5, 0.5]"),
        ("percent", "xy", "[40, 40, 50, 50]"),
        ("per_mille", "xy", "[400, 400, 500, 500]"),
        ("pixels", "xy", "[256, 192, 320, 240]"),
        ("pixels", "yx", "[192, 256, 240, 320]"),
        ("resized_pixels", "xy", "[128, 384, 160, 480]"),
        ("resized_pixels", "yx", "[384, 128, 480, 160]"),
    ],
)
@pytest.mark.parametrize("notation", ["json", "brackets"])
def test_every_coordinate_system_and_order_reaches_the_same_box(
    notation: str, coordinates: str, order: str | None, answer: str
):
    found = score_one(answer, form(notation, coordinates, order), image_size=(320, 960))
    assert values(found.robust)["mean_iou"] == 1


def test_gemini_is_per_mille_and_yx_whatever_else_is_declared():
    found = score_one('[{"box_2d": [500, 250, 750, 500]}]', form("gemini"), sample([160, 240, 160, 120]))
    assert values(found.robust)["mean_iou"] == 1


def test_values_are_never_guessed_to_be_of_another_system():
    assert hits(score_one("[0.4, 0.4, 0.5, 0.5]", form("brackets", "pixels")).robust) == [0, 0, 0]


@pytest.mark.parametrize("answer", ["[0, 0, 1e999, 1e999]", "[-9e99, -9e99, 9e99, 9e99]", f"[0, 0, {'9' * 500}, 1]"])
@pytest.mark.filterwarnings("error")
def test_absurd_numbers_are_wrong_without_a_warning(answer: str):
    assert hits(score_one(answer, form("brackets", "unit")).robust) == [0, 0, 0]


@settings(max_examples=100)
@given(st.text(alphabet='[](){}",:<>/ 0189.-e\nabox_2d', max_size=80), st.sampled_from(["json", "brackets", "tuples"]))
def test_no_text_makes_the_robust_parser_raise(answer: str, notation: str):
    score_one(answer, form(notation, "pixels"))


@pytest.mark.parametrize("notation", ["json", "brackets", "tuples", "gemini", "kosmos"])
@pytest.mark.parametrize("loop", ["[", "(", "(1,", "[1, ", f"(1, 2){' ' * 90_000}.", "<phrase>", "<object>", "[[1,2],"])
def test_a_long_loop_of_a_model_takes_linear_time(notation: str, loop: str):
    start = time.process_time()
    score_one(loop * (200_000 // len(loop)), form(notation, "pixels"))
    assert time.process_time() - start < 2  # a quadratic pattern takes minutes


# Statuses, columns, notes, errors


@pytest.mark.parametrize("status", [Status.REFUSED, Status.ERROR, Status.MISSING, Status.EMPTY])
@pytest.mark.parametrize("notation", ["kosmos", "json"])
def test_the_text_of_a_failed_answer_is_not_read(notation: str, status: Status):
    answer = write_answer("man", [(0, 297)]) if notation == "kosmos" else NEAR
    truth = sample([10, 10, 180, 180], (640, 640)) if notation == "kosmos" else sample()
    found = score_one(answer, form(notation, "pixels"), truth, status=status)
    assert (values(found.official), values(found.robust), found.statuses) == (
        dict.fromkeys(METRICS, 0) if notation == "kosmos" else {},
        dict.fromkeys(METRICS, 0),
        [status],
    )


@pytest.mark.parametrize("answer", [NEAR, "nothing"])
def test_a_truncated_answer_stays_truncated_and_is_read(answer: str):
    found = score_one(answer, form("json", "pixels"), status=Status.TRUNCATED)
    assert (hits(found.robust)[0], found.statuses) == (float(answer == NEAR), ["truncated"])


def test_samples_keep_their_rows_among_unanswered_ones():
    truth = [sample(), sample(), sample(), sample()]
    found = score(truth, predictions("none", NEAR, None, NEAR), form("json", "pixels"), {})
    assert found.robust is not None
    assert found.robust["precision@1"].numerator.tolist() == [0, 1, 0, 1]
    assert found.statuses == ["unparsed", "ok", "empty", "ok"]
    assert found.columns == {
        "x1": [None, 256, None, 256],
        "y1": [None, 192, None, 192],
        "x2": [None, 320, None, 320],
        "y2": [None, 240, None, 240],
    }


@pytest.mark.parametrize("notation", ["kosmos", "json"])
def test_a_split_without_samples_has_no_value(notation: str):
    found = score([], [], form(notation, "pixels"), {})
    assert (found.n, values(found.robust)) == (0, dict.fromkeys(METRICS))


CONTRADICTIONS = [
    ("unit", NEAR, "Most answers contradict the declared coordinates (unit): 3 of 3 boxes reach beyond 1."),
    ("percent", NEAR, "Most answers contradict the declared coordinates (percent): 3 of 3 boxes reach beyond 100."),
    (
        "per_mille",
        "[0, 0, 1200, 900]",
        "Most answers contradict the declared coordinates (per_mille): 3 of 3 boxes reach beyond 1000.",
    ),
    (
        "pixels",
        "[400, 400, 500, 500]",
        "Most answers contradict the declared coordinates (pixels): 3 of 3 boxes reach beyond the image.",
    ),
    (
        "resized_pixels",
        NEAR,
        "Most answers contradict the declared coordinates (resized_pixels): 3 of 3 boxes reach beyond the image.",
    ),
    (
        "per_mille",
        "[0.4, 0.4, 0.5, 0.5]",
        "Most answers contradict the declared coordinates (per_mille): 3 of 3 boxes hold no number above 1.",
    ),
]


@pytest.mark.parametrize(("coordinates", "answer", "note"), CONTRADICTIONS)
def test_a_note_says_where_most_answers_contradict_their_format(coordinates: str, answer: str, note: str):
    truth = [sample()] * 3
    found = score(truth, predictions(*[answer] * 3, image_size=(200, 200)), form("json", coordinates), {})
    assert found.notes == [note]


def test_half_of_the_answers_are_not_most():
    found = score([sample()] * 2, predictions(NEAR, "[0.4, 0.4, 0.5, 0.5]"), form("json", "unit"), {})
    assert found.notes == []


def test_resized_pixels_without_the_seen_size_are_an_error_that_names_the_samples():
    message = (
        "2 answers in resized pixels do not say how large the image was that the model saw: sample ids 0, 2. "
        "Record image_size with each answer, or declare other coordinates (pixels: those of the original image)."
    )
    with pytest.raises(DataError, match=re.escape(message)):
        score([sample()] * 3, predictions(NEAR, "no box", NEAR), form("json", "resized_pixels"), {})


@pytest.mark.parametrize(
    ("answer_format", "message"),
    [
        (form("molmo", "percent"), "molmo has no boxes. Choose one of kosmos, json, brackets, tuples, gemini."),
        (form("json"), "formats.boxes.coordinates is missing: the notation json leaves them open"),
        (form("kosmos", grid=None), "formats.boxes.grid is missing"),
    ],
)
def test_a_format_that_cannot_be_read_is_a_config_error(answer_format: AnswerFormat, message: str):
    with pytest.raises(ConfigError, match=re.escape(message)):
        score_one(NEAR, answer_format)


@settings(max_examples=100)
@given(st.lists(st.tuples(*[st.integers(0, 700)] * 8), min_size=1, max_size=8))
def test_iou_of_pairs_equals_the_reference(rows: list[tuple[int, ...]]):
    table = np.array(rows, dtype=np.float32) / np.float32(3)
    expected = [max(float(reference_iou(row[:4], row[4:])), 0) for row in table]
    assert paired_iou(table[:, :4], table[:, 4:]).tolist() == expected
