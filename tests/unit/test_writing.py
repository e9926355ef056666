"""Answers written by rule-based models are read back by the scorers as what they say."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools import mask as coco_mask

from reftables.models.writing import (
    box_mask,
    compress_counts,
    empty_mask,
    expand_counts,
    write_box,
    write_choice,
    write_place,
    write_points,
)
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Prediction, Status
from reftables.scoring import answers, boxes, points
from reftables.scoring.point_parsers import axes_of, read_answer


def form(notation: str, coordinates: str | None = None, order: str | None = None, grid: int | None = None):
    return AnswerFormat(
        notation=Notation(notation),
        coordinates=Coordinates(coordinates) if coordinates else None,
        order=Order(order) if order else None,
        prompt="plain",
        grid=grid,
    )


FREE = ["unit", "percent", "per_mille", "pixels", "resized_pixels"]
TEXT_FORMS = [
    *(form(n, c, o) for n in ("json", "brackets", "tuples") for c in FREE for o in ("xy", "yx")),
    form("gemini", "per_mille", "yx"),
]
POINT_FORMS = [*TEXT_FORMS, form("molmo", "percent", "xy")]
KOSMOS = form("kosmos", grid=32)


def name(value: object) -> str:
    if isinstance(value, AnswerFormat):
        return "-".join(str(part) for part in (value.notation, value.coordinates, value.order) if part)
    return repr(value)


# Points

SIZE_WH = (97, 61)


@pytest.mark.parametrize("answer_format", POINT_FORMS, ids=name)
@settings(max_examples=20, deadline=None)
@given(st.integers(1, 9000), st.integers(1, 9000), st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))
def test_a_point_is_read_back_in_its_own_pixel(answer_format, width, height, across, down):
    x, y = int(across * width), int(down * height)
    text = write_points([(x + 0.5, y + 0.5)], answer_format, (width, height), phrase="it")
    row = {
        "id": 0, "source_id": 0, "image": "a", "width": width, "height": height,
        "mask": box_mask((x, y, x + 1, y + 1), (width, height)),
    }  # fmt: skip
    prediction = Prediction(id=0, status=Status.OK, text=text, image_size=(width, height))
    scores = points.score([row], [prediction], answer_format, {})
    assert scores.robust["accuracy"].value == 1
    official = {"tuples-unit-xy", "tuples-pixels-xy", "molmo-percent-xy", "gemini-per_mille-yx"}
    if name(answer_format) in official:
        assert scores.official["accuracy"].value == 1


@given(st.integers(1, 9000), st.integers(1, 9000), st.floats(0, 1), st.floats(0, 1))
def test_a_point_in_whole_thousandths_moves_by_half_of_one_at_most(width, height, across, down):
    form_ = form("molmo2", "per_mille", "xy")
    text = write_points([(across * width, down * height)], form_, (width, height), phrase="it")
    (group,) = read_answer(text, form_, axes_of(form_), (width, height), None).groups
    assert group.numbers == pytest.approx([across * 1000, down * 1000], abs=0.5)


@pytest.mark.parametrize(
    ("answer_format", "expected"),
    [
        (form("tuples", "unit", "xy"), "[(0.0500, 0.5000), (1.0000, 0.0000)]"),
        (form("tuples", "pixels", "xy"), "[(10, 50), (200, 0)]"),
        (form("brackets", "percent", "xy"), "[[5, 50], [100, 0]]"),
        (form("json", "pixels", "yx"), '[{"point_2d": [50, 10]}, {"point_2d": [0, 200]}]'),
        (form("molmo", "percent", "xy"), '<points x1="5" y1="50" x2="100" y2="0">points</points>'),
        (form("molmo2", "per_mille", "xy"), '<points coords="1 1 050 500 2 1000 000">points</points>'),
        (form("gemini", "per_mille", "yx"), '```json\n[{"point": [500, 50]}, {"point": [0, 1000]}]\n```'),
        (
            KOSMOS,
            "<image></image><grounding><phrase>it</phrase><object><patch_index_0513><patch_index_0513>"
            "</delimiter_of_multi_objects/><patch_index_0031><patch_index_0031></object>",
        ),
    ],
    ids=name,
)
def test_points_in_every_notation(answer_format, expected):
    assert write_points([(10, 50), (200, 0)], answer_format, (200, 100), phrase="it") == expected


# Boxes

BOX_XYXY = (12.4, 7.25, 60.0, 50.1)


@pytest.mark.parametrize("answer_format", TEXT_FORMS, ids=name)
def test_a_box_in_text_is_read_back(answer_format):
    assert iou_read_back(BOX_XYXY, answer_format) > 0.99


def test_a_box_in_patch_indices_is_read_back_up_to_the_grid():
    assert 0.85 < iou_read_back(BOX_XYXY, KOSMOS) < 1


def test_the_whole_image_in_patch_indices_reaches_the_centres_of_the_corner_cells():
    assert iou_read_back((0, 0, *SIZE_WH), KOSMOS) == pytest.approx((31 / 32) ** 2, abs=1e-6)


def iou_read_back(box_xyxy, answer_format) -> float:
    x0, y0, x1, y1 = box_xyxy
    row = {
        "id": 0, "source_id": 0, "image": "a", "width": SIZE_WH[0], "height": SIZE_WH[1], "expression": "the thing",
        "bbox_xywh": [x0, y0, x1 - x0, y1 - y0],
    }  # fmt: skip
    text = write_box(box_xyxy, answer_format, SIZE_WH, phrase="the thing")
    prediction = Prediction(id=0, status=Status.OK, text=text, image_size=SIZE_WH)
    scores = boxes.score([row], [prediction], answer_format, {})
    assert scores.statuses == [Status.OK]
    return scores.robust["mean_iou"].value


@pytest.mark.parametrize(
    ("answer_format", "expected"),
    [
        (form("json", "pixels", "xy"), '[{"bbox_2d": [12.4, 7.25, 60, 50]}]'),
        (form("brackets", "unit", "xy"), "[0.0620, 0.0725, 0.3000, 0.5000]"),
        (form("tuples", "per_mille", "yx"), "(72.5, 62, 500, 300)"),
        (form("gemini", "per_mille", "yx"), '```json\n[{"box_2d": [72.5, 62, 500, 300]}]\n```'),
    ],
    ids=name,
)
def test_boxes_in_every_notation(answer_format, expected):
    assert write_box((12.4, 7.25, 60, 50), answer_format, (200, 100), phrase="it") == expected


@pytest.mark.parametrize(
    ("write", "answer_format", "message"),
    [
        (lambda f: write_box(BOX_XYXY, f, SIZE_WH, phrase=""), form("molmo", "percent", "xy"), "boxes have no molmo"),
        (lambda f: write_points([(1, 1)], f, SIZE_WH, phrase=""), form("surds", "unit", "xy"), "points have no surds"),
        (lambda f: write_box(BOX_XYXY, f, SIZE_WH, phrase=""), form("json"), "the json notation needs coordinates"),
        (lambda f: write_box(BOX_XYXY, f, SIZE_WH, phrase=""), form("kosmos"), "the kosmos notation needs a grid"),
    ],
    ids=["molmo-box", "surds-point", "no-coordinates", "no-grid"],
)
def test_a_format_that_cannot_hold_the_answer_is_refused(write, answer_format, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        write(answer_format)


# Answers to questions


def test_a_place_is_read_back_to_the_half_pixel():
    assert answers.official_place(write_place((800.5, 450))[8:-9], (1600, 900)) == (800.5, 450)


def test_a_choice_stands_between_the_tags():
    assert write_choice("The red car") == "<answer>The red car</answer>"


# Masks


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_mask_of_a_box_is_its_pixels(data):
    width, height = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    x0, x1 = sorted(data.draw(st.tuples(st.integers(-3, 43), st.integers(-3, 43))))
    y0, y1 = sorted(data.draw(st.tuples(st.integers(-3, 43), st.integers(-3, 43))))
    expected = np.zeros((height, width), dtype=np.uint8)
    expected[max(y0, 0) : max(y1, 0), max(x0, 0) : max(x1, 0)] = 1
    encoded = coco_mask.encode(np.asfortranarray(expected))
    assert box_mask((x0, y0, x1, y1), (width, height)) == {
        "size": [height, width],
        "counts": encoded["counts"].decode(),
    }


def test_a_pixel_belongs_to_a_box_that_holds_its_centre():
    assert coco_mask.toBbox(box_mask((2.4, 2.6, 7.4, 7.6), (10, 10))).tolist() == [2, 3, 5, 5]


def test_the_empty_mask_is_one_run():
    assert coco_mask.area(empty_mask((7, 5))) == 0
    assert expand_counts(empty_mask((7, 5))["counts"]) == [35]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=12))
def test_run_lengths_become_cocos_text_and_come_back(counts):
    theirs = coco_mask.frPyObjects({"size": [1, sum(counts)], "counts": counts}, 1, sum(counts))
    text = compress_counts(counts)
    assert text == theirs["counts"].decode()
    assert expand_counts(text) == counts
