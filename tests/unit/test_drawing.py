"""What is drawn over a picture, task by task."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pycocotools import mask as coco_mask

from reftables import rle
from reftables.drawing import Drawing, draw, outline
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Prediction, Status, Task

PIXELS = AnswerFormat(
    notation=Notation.BRACKETS, coordinates=Coordinates.PIXELS, order=Order.XY, prompt="plain", grid=None
)
MASKS = AnswerFormat(notation=Notation.RLE, coordinates=None, order=None, prompt="plain", grid=None)


def drawn(task: Task, row: dict[str, Any], form: AnswerFormat = PIXELS, **prediction: Any) -> Drawing:
    complete = {"id": 0, "width": 100, "height": 80, "expression": "dog", **row}
    (found,) = draw(task, [complete], [Prediction(id=0, **{"status": Status.OK, **prediction})], form)
    return found


def painted(path: str, height: int, width: int) -> np.ndarray[Any, Any]:
    """The mask inside an outline: a pixel is inside where an odd number of vertical edges lies left of it."""
    edges = np.zeros((height, width + 1), dtype=int)
    for x, y, length in re.findall(r"M(\d+) (\d+)v(\d+)", path):
        edges[int(y) : int(y) + int(length), int(x)] += 1
    return np.cumsum(edges, axis=1)[:, :-1] % 2


@settings(max_examples=60, deadline=None)
@given(arrays(np.uint8, st.tuples(st.integers(1, 12), st.integers(1, 12)), elements=st.integers(0, 1)))
def test_an_outline_encloses_exactly_the_mask(mask: np.ndarray[Any, Any]):
    path = outline(coco_mask.encode(np.asfortranarray(mask))).attributes["d"]
    assert (painted(path, *mask.shape) == mask).all()


def test_a_large_mask_is_traced_small_and_scaled_up():
    attributes = outline(rle.from_box([0, 0, 640, 480], (480, 640))).attributes
    assert attributes["transform"] == "scale(4 4)"
    assert attributes["d"] == "M0 0h160M0 120h160M0 0v120M160 0v120"


def test_boxes_are_drawn_as_read():
    found = drawn(Task.BOXES, {"bbox_xywh": [10, 20, 30, 40]}, text="[1, 2, 3, 4] or [5, 6, 7, 8]")
    assert [shape.attributes["x"] for shape in (*found.truth, *found.predicted)] == ["10", "1", "5"]
    assert (found.asked, found.read) == ("box 10, 20, 40, 60", "box 1, 2, 3, 4, the first of 2")


def test_an_unread_answer_draws_nothing():
    found = drawn(Task.BOXES, {"bbox_xywh": [10, 20, 30, 40]}, text="no idea")
    assert (found.predicted, found.read) == ([], "")


@pytest.mark.parametrize("status", [Status.REFUSED, Status.ERROR])
def test_a_refusal_is_not_read(status: Status):
    mask = rle.from_box([0, 0, 9, 9], (80, 100))
    assert drawn(Task.POINTS, {"mask": mask}, text="[4, 4]", status=status).predicted == []


def test_points_lie_in_the_middle_of_their_pixel():
    mask = rle.from_box([0, 0, 9, 9], (80, 100))
    (point,) = drawn(Task.POINTS, {"mask": mask}, text="[4, 5]").predicted
    assert (point.element, point.attributes["cx"], point.attributes["cy"]) == ("circle", "4.5", "5.5")


def test_a_choice_says_whether_it_is_right():
    row = {"question": "yaw", "options": ["North", "South"], "answer": "North", "bbox": None}
    assert drawn(Task.ANSWERS, row, text="<answer>south</answer>").read == "another option"


def test_a_place_is_drawn_beside_its_box():
    row = {"question": "xy2d", "options": None, "answer": None, "bbox": [10, 10, 30, 30]}
    found = drawn(Task.ANSWERS, row, text="<answer>[20, 21]</answer>")
    assert (found.asked, found.read) == ("inside the box 10, 10, 30, 30", "point 20, 21")


def test_masks_are_outlined_and_no_target_is_said():
    mask = rle.from_box([0, 0, 9, 9], (80, 100))
    found = drawn(Task.MASKS, {"no_target": True}, MASKS, rle=mask)
    assert (found.truth, len(found.predicted)) == ([], 1)
    assert (found.asked, found.read) == ("no target", "a mask of 81 pixels")
    assert drawn(Task.MASKS, {"mask": mask}, MASKS, no_target=True).read == "no target"
