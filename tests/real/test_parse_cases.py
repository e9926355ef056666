"""Broken and whole answers of Qwen2.5-VL and Gemini from supervision's tests, all about boxes.

Supervision knows labels: it keeps only boxes of the classes asked for, and drops a whole answer in which
one item has no label. Here labels mean nothing, so those rows differ by design. Its rows about images
without size are not asked: sizes are checked when the truth is made.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Prediction, Status
from reftables.scoring.boxes import score
from reftables.scoring.scores import Scores

pytestmark = pytest.mark.real

QWEN = AnswerFormat(
    notation=Notation.JSON, coordinates=Coordinates.RESIZED_PIXELS, order=Order.XY, prompt="qwen", grid=None
)
GEMINI = AnswerFormat(
    notation=Notation.GEMINI, coordinates=Coordinates.PER_MILLE, order=Order.YX, prompt="gemini", grid=None
)
FORMS = {"test_from_qwen_2_5_vl": QWEN, "test_from_google_gemini": GEMINI, "test_from_google_gemini_2_5": GEMINI}


@pytest.fixture(scope="module")
def rows(real_data: Path) -> list[dict[str, Any]]:
    text = (real_data / "parse_cases" / "supervision_test_vlm_cases.json").read_text(encoding="utf-8")
    return [row for row in json.loads(text) if row["test"] in FORMS and row["exception"] == "no-exception"]


def read(row: dict[str, Any], truth_xyxy: list[float]) -> Scores:
    width, height = row["resolution_wh"]
    x0, y0, x1, y1 = truth_xyxy
    truth = {"id": 0, "width": width, "height": height, "expression": "", "bbox_xywh": [x0, y0, x1 - x0, y1 - y0]}
    seen_wh = tuple(row.get("input_wh", row["resolution_wh"]))
    answer = Prediction(id=0, status=Status.OK, text=row["result"], image_size=seen_wh)
    return score([truth], [answer], FORMS[row["test"]], {})


def filters_by_class(row: dict[str, Any]) -> bool:
    return row["classes"] is not None


def has_an_item_without_label(row: dict[str, Any]) -> bool:
    return "missing box" in row["result"]


def test_all_boxes_are_those_that_supervision_reads(rows: list[dict[str, Any]]) -> None:
    compared = 0
    for row in rows:
        if not filters_by_class(row) and not has_an_item_without_label(row):
            for place, box in enumerate(row["expected_results"][0]):
                robust = read(row, box).robust or {}
                metric = "mean_iou" if place == 0 else "upper_bound"
                assert robust[metric].value == pytest.approx(1, abs=1e-6), row["result"]
                compared += 1
    assert compared == 13


def test_answers_in_which_supervision_finds_nothing_are_unparsed(rows: list[dict[str, Any]]) -> None:
    empty = [row for row in rows if not row["expected_results"][0] and not filters_by_class(row)]
    statuses = {row["result"]: read(row, [0, 0, 1, 1]).statuses[0] for row in empty}
    assert [text for text, status in statuses.items() if status != Status.UNPARSED] == [
        row["result"] for row in rows if has_an_item_without_label(row)
    ]


def test_boxes_of_other_classes_than_asked_for_are_read_too(rows: list[dict[str, Any]]) -> None:
    for row in filter(filters_by_class, rows):
        assert read(row, [0, 0, 1, 1]).statuses == [Status.OK]
