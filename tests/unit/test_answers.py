"""Scoring of SURDS answers: both readings, units, statuses."""

import ast
import math
import re
import string
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reftables.rows import AnswerFormat, Notation, Prediction, Status
from reftables.scoring import answers
from reftables.scoring.scores import Scores

FORM = AnswerFormat(notation=Notation.SURDS, coordinates=None, order=None, prompt="surds", grid=None)
CARS = ["The white car", "The red car", "Almost the same"]
SIZE = (1600, 900)
BOX = [700, 400, 900, 500]


def row(**values: Any) -> dict[str, Any]:
    """A truth row of a distance question, unless `values` say otherwise."""
    common = {"id": 0, "width": SIZE[0], "height": SIZE[1], "unit": 0, "variant": "closer", "bbox": None}
    return common | {"question": "distance", "options": CARS, "answer": "The white car"} | values


def place(**values: Any) -> dict[str, Any]:
    return row(question="xy2d", options=None, answer="[800, 450]", bbox=BOX, variant=None, **values)


def score(truth: list[dict[str, Any]], texts: list[str | None], *statuses: Status) -> Scores:
    """The scores of `texts`; `statuses` of the predictions, all ok where none are given."""
    predictions = [
        Prediction(id=r["id"], status=status, text=text)
        for r, text, status in zip(truth, texts, statuses or [Status.OK] * len(truth), strict=True)
    ]
    return answers.score(truth, predictions, FORM, {})


def values(scores: Scores, metric: str) -> tuple[float | None, float | None]:
    """The official and the robust value of a metric."""
    return scores.official[metric].value, scores.robust[metric].value


def of_one(truth: dict[str, Any], text: str) -> tuple[float | None, float | None, str]:
    scores = score([truth], [text])
    return *values(scores, "request_accuracy"), str(scores.statuses[0])


def test_every_case_scores_as_written(cases):
    found, expected = {}, {}
    for case in cases("answers"):
        truth = row(question=case["surds_task"], options=case["options"], bbox=case["bbox"], answer=case["truth"])
        found[case["id"]] = of_one(truth, case["answer"])
        expected[case["id"]] = (case["official"], case["robust"], case["status"])
    assert found == expected


# Units


def paired(*marks: str) -> tuple[list[dict[str, Any]], list[str | None]]:
    """Truth and answers of paired units, one mark a unit: + right, - wrong, 0 missing, for each of its rows."""
    words = {"+": "<answer>The white car</answer>", "-": "<answer>The red car</answer>", "0": None}
    flat = [(unit, mark) for unit, marks_of_unit in enumerate(marks) for mark in marks_of_unit]
    return [row(id=i, unit=unit) for i, (unit, _) in enumerate(flat)], [words[mark] for _, mark in flat]


@pytest.mark.parametrize(
    ("units", "expected", "requests"),
    [
        (["++", "+-"], 1 / 2, 3 / 4),
        (["--", "-+", "+-"], 0, 2 / 6),
        (["++", "++", "--"], 2 / 3, 4 / 6),
        (["+0"], 0, 1 / 2),
        (["+"], 0, 1),
    ],
    ids=["one right", "halves only", "two of three", "half missing", "half not there"],
)
def test_a_paired_unit_counts_only_if_both_are_right(units, expected, requests):
    scores = score(*paired(*units))
    assert values(scores, "score") == (expected, expected)
    assert values(scores, "request_accuracy") == (requests, requests)


def test_pairs_are_joined_by_unit_not_by_position():
    truth, texts = paired("++", "+-", "--")
    order = [4, 0, 3, 5, 1, 2]
    scores = score([truth[i] for i in order], [texts[i] for i in order])
    assert values(scores, "score") == (1 / 3, 1 / 3)


def test_n_counts_units_and_requests_stand_beside_it():
    scores = score(*paired("++", "+-", "--"))
    assert (scores.n, scores.requests, scores.official["score"].hits) == (3, 6, 1)


def test_requests_are_left_out_where_every_unit_has_one():
    scores = score([place(id=0, unit=0), place(id=1, unit=1)], ["<answer>[800, 450]</answer>", None])
    assert (scores.n, scores.requests) == (2, None)
    assert values(scores, "score") == values(scores, "request_accuracy") == (0.5, 0.5)


def test_the_samples_file_gets_unit_and_variant():
    columns = score([row(variant="closer"), row(id=1, variant="farther")], [None, None]).columns
    assert columns == {"unit": [0, 0], "variant": ["closer", "farther"]}


def test_an_empty_split_has_no_value():
    scores = score([], [])
    assert (scores.n, values(scores, "score")) == (0, (None, None))


# Statuses


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (Status.OK, None, Status.EMPTY),
        (Status.OK, " \n", Status.EMPTY),
        (Status.OK, "The white car", Status.UNPARSED),
        (Status.OK, "<answer></answer>", Status.UNPARSED),
        (Status.OK, "<answer>a blue lorry</answer>", Status.UNPARSED),
        (Status.OK, "<answer>The red car</answer>", Status.OK),
        (Status.OK, "<think>it is <answer>The white car</answer>", Status.TRUNCATED),
        (Status.OK, "<think>..</think><answer>The white c", Status.TRUNCATED),
        (Status.TRUNCATED, "no answer", Status.TRUNCATED),
        (Status.REFUSED, "<answer>The white car</answer>", Status.REFUSED),
        (Status.ERROR, None, Status.ERROR),
        (Status.MISSING, None, Status.MISSING),
    ],
)
def test_status_is_the_predictions_unless_that_is_ok(status, text, expected):
    assert score([row()], [text], status).statuses == [expected]


def test_only_ok_and_truncated_texts_are_read():
    truth = [row(id=i, unit=i) for i in range(4)]
    statuses = (Status.OK, Status.TRUNCATED, Status.REFUSED, Status.ERROR)
    scores = score(truth, ["<answer>The white car</answer>"] * 4, *statuses)
    assert scores.official["request_accuracy"].numerator.tolist() == [1, 1, 0, 0]
    assert scores.robust["request_accuracy"].numerator.tolist() == [1, 1, 0, 0]


# The official reading


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("[800, 450]", (800, 450)),
        ("at [ .5,5.] or [1, 2]", (800, 5)),
        ("[800,450,]", (800, 450)),
        ("[00, 01.5]", (0, 1.5)),
        ("[-0.25, 7]", (-400, 7)),
        ("[701, 400, 900, 501]", (800, 450)),
        ("[1.5, 2.5, 4.0, 5.0]", (2, 3)),
        ("[] [800, 450]", (800, 450)),
        ("[[800, 450], [1, 2]]", (800, 450)),
        ("[0, 1]", (0, 1)),
        ("[1.0, 1]", (1, 1)),
        ("[x] [-\n5, 3]", (-8000, 3)),
        ("[08, 450]", None),
        ("[800 450]", None),
        ("[800,, 450]", None),
        ("[1] [800, 450]", None),
        ("[1, 2, 3]", None),
        ("[--1, 2]", None),
        ("[3-2, 2]", None),
        ("[1.2.3, 4]", None),
        ("[8\u00a000, 450]", None),
        ("[\u00a0800, 450]", None),
        ("[٨, 450]", None),
        (f"[{'9' * 5_000}, 1]", None),
        (f"[{'9' * 400}, 1]", None),
        ("(800, 450)", None),
        ("800, 450", None),
    ],
)
def test_official_place(answer, expected):
    assert answers.official_place(answer, SIZE) == expected


def test_officially_the_first_tag_counts():
    text = "<answer>The white car</answer> no, <answer>The red car</answer>"
    assert of_one(row(), text) == (1, 0, "ok")


@pytest.mark.parametrize(
    ("option", "answer", "expected"),
    [
        ("The car (left)", "The car (left)", False),
        ("The car -", "The car -", False),
        ("The car", "the CAR!", True),
        ("The car", "car the", False),
        ("The car", "-the car-", True),
        ("The car", "the cars", False),
        ("The car", "the_car", False),
        ("The caf\u00e9", "the caf\u00e9.", True),
    ],
)
def test_official_choice_needs_an_option_between_word_boundaries(option, answer, expected):
    assert answers.official_choice(answer, [option, "Almost the same"], option) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a car", True), ("cars", False), ("scar", False), ("cars, a car", True), ("car_", False), ("\u00fccar", False)],
)
def test_a_phrase_stands_as_words_between_word_boundaries_only(text, expected):
    assert answers.stands_as_words("car", text) is expected


def test_any_option_opens_the_official_gate():
    options = ["The car", "The car (left)"]
    assert answers.official_choice("The car (left)", options, "The car (left)")


def independent_place(answer: str) -> tuple[float, float] | None:
    """The official place by way of Python's own reader of literals; None outside the image, too."""
    match = re.search(r"\[\s*([-\d.,\s]+)\s*\]", answer)
    if match is None:
        return None
    try:
        numbers = ast.literal_eval(match.group(0))
    except (SyntaxError, ValueError):
        return None
    if len(numbers) not in (2, 4) or ... in numbers:
        return None
    if len(numbers) == 4:
        numbers = [(numbers[0] + numbers[2]) // 2, (numbers[1] + numbers[3]) // 2]
    x, y = (value * extent if value < 1 else value for value, extent in zip(numbers, SIZE, strict=True))
    return (x, y) if 0 <= x < 1600 and 0 <= y < 900 else None


def independent_centerness(point: tuple[float, float] | None, box: list[float]) -> float:
    if point is None or not (box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]):
        return 0
    product = 1.0
    for axis in (0, 1):
        sides = sorted([point[axis] - box[axis], box[axis + 2] - point[axis]])
        product *= sides[0] / sides[1] if sides[1] else 1
    return math.sqrt(product)


def independent_choice(answer: str, options: list[str], right: str) -> bool:
    def plain(text: str) -> str:
        kept = "".join(c for c in text.strip().lower() if c not in string.punctuation)
        return " ".join(re.sub(r"\b(a|an|the)\b", "", kept, flags=re.IGNORECASE).split())

    found = [re.search(rf"\b{re.escape(option.strip().lower())}\b", answer.strip().lower()) for option in options]
    return bool(answer) and any(found) and plain(answer) == plain(right)


NUMBERS = st.one_of(
    st.integers(-3, 1700).map(str),
    st.floats(-1, 2).map(lambda value: f"{value:.3f}"),
    st.text("0123456789.-", min_size=1, max_size=6),
)
PLACES = st.one_of(
    st.text("[](),.-0123456789 \t\n\r\f\v\u00a0\u2003٣x", max_size=30),
    st.lists(NUMBERS, min_size=1, max_size=5).map(lambda numbers: f"at [{', '.join(numbers)}] [800, 450]"),
)
EDGES = st.tuples(st.integers(0, 1700), st.integers(0, 950), st.integers(0, 200), st.integers(0, 200))
WORDS = st.sampled_from(["the", "The", "a ", "an", "white", "car", "(left)", "_", "-", " ", ".", "“", "é", "İ", "¼"])
PHRASES = st.lists(WORDS, max_size=6).map("".join)


@given(answer=PLACES, edges=EDGES)
def test_official_xy2d_equals_an_independent_reference(answer, edges):
    box = [edges[0], edges[1], edges[0] + edges[2], edges[1] + edges[3]]
    official, _, _ = of_one(place() | {"bbox": box}, f"<answer>{answer}</answer>")
    assert official == independent_centerness(independent_place(answer.strip()), box)


@given(answer=PHRASES, options=st.lists(PHRASES, min_size=1, max_size=3), right=st.integers(0, 2))
def test_official_choice_equals_an_independent_reference(answer, options, right):
    truth = options[right % len(options)]
    for text in (answer, truth):
        expected = independent_choice(text.strip(), options, truth)
        assert answers.read_official(f"<answer>{text}</answer>", row(options=options, answer=truth)) == expected


# The robust reading


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("[800, 450]", (800, 450)),
        ("(800, 450)", (800, 450)),
        ("( 800 450 )", (800, 450)),
        ("800, 450", (800, 450)),
        ("the car is at 800,450.", (800, 450)),
        ("[1] car: [0800, +450.0,]", (800, 450)),
        ("in 2 views, 800, 450", (800, 450)),
        ("[0.5, 0.5]", (800, 450)),
        ("(0.4, 0.4, 0.6, 0.6)", (800, 450)),
        ("[0, 0, 1, 1]", (800, 450)),
        ("[701, 400, 900, 501]", (800, 450)),
        ("0.5, 5e-1", (800, 450)),
        ("(1, 1)", (1, 1)),
        ("[1600, 450]", (1600, 450)),
        ("[1, 2, 3]", None),
        ("800", None),
        ("800 and 450", None),
        ("v1.5, 3", None),
    ],
)
def test_robust_place(answer, expected):
    assert answers.robust_place(answer, SIZE) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think><answer>The red car</answer></think><answer>white car</answer>", (0, 1, "ok")),
        ("<answer>The white car</answer><answer>[Final answer]</answer>", (1, 1, "ok")),
        ("My <answer> follows. <answer>The white car</answer>", (0, 1, "ok")),
        ("<answer>The white car is closer</answer>", (0, 0, "ok")),
        ("<answer>a white car, an ... the</answer>", (0, 1, "ok")),
        ("<answer>“white car”</answer>", (0, 0, "unparsed")),
    ],
    ids=["after the reasoning", "last that parses", "tag in prose", "a sentence", "articles", "other quotes"],
)
def test_robust_choice(text, expected):
    assert of_one(row(), text) == expected


def test_an_answer_of_nothing_but_punctuation_is_unparsed():
    assert answers.robust_choice("!", ["The !", "Almost the same"], "The !") is None


def test_a_place_outside_the_image_is_read_but_wrong():
    truth = place() | {"bbox": [1500, 400, 1700, 500]}
    assert of_one(truth, "<answer>[1600, 450]</answer>") == (0, 0, "ok")


def test_near_misses_are_counted():
    truth = [row(id=i, unit=i) for i in range(4)]
    texts = [f"<answer>{answer}</answer>" for answer in ("white car", "The white car", "The red car", "a white car.")]
    assert score(truth, texts).notes == ["Answers wrong officially but right in the robust reading: 2 (ids 0, 3)."]


def test_a_better_place_is_no_near_miss():
    scores = score([place()], ["<answer>[750, 450]</answer><answer>[800, 450]</answer>"])
    assert values(scores, "score") == (math.sqrt(1 / 3), 1)
    assert scores.notes == []


@given(text=st.one_of(st.text(), PLACES, PHRASES), tags=st.sampled_from(["{}", "<answer>{}</answer>", "<think>{}"]))
def test_no_text_is_an_error(text, tags):
    for truth in (row(), place()):
        scores = score([truth], [tags.replace("{}", text)])
        assert 0 <= scores.official["score"].value <= 1
        assert 0 <= scores.robust["score"].value <= 1


@given(answer=PLACES)
def test_robust_reads_every_place_that_official_reads(answer):
    # A minus apart from its digits may be a bullet of a list; officially it can only make "- 0" a number.
    if independent_place(answer.strip()) is not None and not re.search(r"-\s", answer):
        assert answers.robust_place(answer.strip(), SIZE) is not None


@pytest.mark.parametrize("text", ["1" * 200_000, "[" + "1 " * 100_000, "(1," * 70_000, "[1" + " " * 200_000 + "x"])
def test_endless_answers_end(text):
    assert of_one(place(), f"<answer>{text}</answer>") == (0, 0, "unparsed")


# Centerness


@pytest.mark.parametrize(
    ("point", "box", "expected"),
    [
        ((800, 450), [700, 400, 900, 500], 1),
        ((750, 425), [700, 400, 900, 500], math.sqrt(1 / 3 * 1 / 3)),
        ((700, 450), [700, 400, 900, 500], 0),
        ((699, 450), [700, 400, 900, 500], 0),
        ((700, 450), [700, 400, 700, 500], 1),
        ((700, 400), [700, 400, 700, 400], 1),
        ((1600, 450), [1500, 400, 1700, 500], 0),
        ((math.nan, 450), [700, 400, 900, 500], 0),
        ((math.inf, 450), [700, 400, 900, 500], 0),
    ],
)
def test_centerness(point, box, expected):
    found = answers.centerness(np.array([point]), np.array([box], dtype=np.float64), np.array([SIZE], dtype=np.float64))
    assert found.tolist() == [expected]
