"""Which group a sample falls into, and what a group's value is made of."""

from typing import Any

import pandas as pd
import pytest

from reftables import rle
from reftables.breakdowns import Told, break_down, labels
from reftables.results import Scoring
from reftables.samples import Samples


def row(**fields: Any) -> dict[str, Any]:
    return {"id": 0, "image": "a.jpg", "width": 640, "height": 480, "expression": "the dog", **fields}


def groups_of(name: str, *rows: dict[str, Any]) -> list[str]:
    return labels(rows)[name]


def test_sizes_are_shares_of_the_image_and_their_bounds_belong_to_the_larger():
    widths = (0.9, 1, 4.9, 5, 19.9, 20)
    found = groups_of("object size", *(row(width=100, height=100, bbox_xywh=[0, 0, w, 100]) for w in widths))
    assert found == ["under 1 %", "1-5 %", "1-5 %", "5-20 %", "5-20 %", "20 % and more"]


def test_a_mask_counts_by_its_own_area_not_by_its_box():
    mask = rle.from_box([0, 0, 20, 20], (480, 640))
    rows = [row(mask=mask, bbox_xywh=[0, 0, 500, 400]), row(bbox_xywh=[0, 0, 99, 99])]
    assert labels(rows)["object size"] == ["under 1 %", "1-5 %"]


@pytest.mark.parametrize(
    ("expression", "group"),
    [
        ("left guy", "with"),
        ("leftmost guy", "with"),
        ("Cup BEHIND the plate", "with"),
        ("person near the car", "with"),
        ("copyright sign", "without"),
        ("a frontier town", "without"),
        ("", "without"),
    ],
)
def test_position_words_are_whole_words(expression: str, group: str):
    other = "red" if group == "with" else "left"
    assert groups_of("position words", row(expression=expression), row(expression=other))[0] == group


def test_expressions_group_by_their_words():
    texts = ["dog", "the dog", "a b c", "a b c d e f", "a b c d e f g h i j"]
    assert groups_of("expression length", *(row(expression=text) for text in texts)) == [
        "1-2 words",
        "1-2 words",
        "3-5 words",
        "6-9 words",
        "10 words or more",
    ]


def test_cameras_are_read_from_the_image():
    images = ["image/CAM_FRONT/x.webp", "image/CAM_BACK_LEFT/y.webp"]
    assert groups_of("camera", *(row(image=image) for image in images)) == ["CAM_FRONT", "CAM_BACK_LEFT"]


def test_a_breakdown_with_one_group_is_none():
    assert "step" not in labels([row(step=1), row(step=1)])


def test_groups_of_units_weigh_their_rows_evenly():
    frame = pd.DataFrame(
        {
            "id": range(4),
            "image": list("aabb"),
            "status": "ok",
            "unit": [0, 0, 1, 1],
            "robust_score": [1, 1, 0, 0],
        }
    )
    groups = {"variant": ["near", "far", "near", "far"]}
    found = break_down({"mine": Told(Samples(frame), Scoring.ROBUST, "score")}, groups)["mine"]
    assert [(part.group, part.n, part.value) for part in found] == [("far", 1, 0.5), ("near", 1, 0.5)]


def test_groups_without_a_value_are_left_out():
    frame = pd.DataFrame({"id": range(2), "image": list("ab"), "status": "ok", "official_n_acc": [1.0, None]})
    told = {"mine": Told(Samples(frame), Scoring.OFFICIAL, "n_acc")}
    found = break_down(told, {"size": ["small", "large"]})["mine"]
    assert [part.group for part in found] == ["small"]


def test_models_are_broken_down_apart():
    frame = pd.DataFrame({"id": range(2), "image": list("ab"), "status": "ok", "robust_m": [1.0, 0.0]})
    opposite = frame.assign(robust_m=[0.0, 1.0])
    told = {name: Told(Samples(f), Scoring.ROBUST, "m") for name, f in (("one", frame), ("two", opposite))}
    found = break_down(told, {"size": ["small", "large"]})
    assert {name: [part.value for part in parts] for name, parts in found.items()} == {"one": [0, 1], "two": [1, 0]}
