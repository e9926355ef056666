"""What the tests of points share: formats of answers, masks, and texts that look like tuples."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from pycocotools import mask as coco_mask

from reftables.rows import AnswerFormat, Coordinates, Notation, Order

SIZE_WH = (640, 480)


def answer_format(notation: str, coordinates: str | None = None, order: str = "xy") -> AnswerFormat:
    return AnswerFormat(
        notation=Notation(notation),
        coordinates=Coordinates(coordinates) if coordinates else None,
        order=Order(order),
        prompt="plain",
        grid=32 if notation == "kosmos" else None,
    )


UNIT = answer_format("tuples", "unit")
PIXELS = answer_format("tuples", "pixels")
JSON = answer_format("json", "pixels")
BRACKETS = answer_format("brackets", "pixels")
MOLMO = answer_format("molmo", "percent")
MOLMO2 = answer_format("molmo2", "per_mille")
GEMINI = answer_format("gemini", "per_mille", "yx")
KOSMOS = answer_format("kosmos")
FORMATS = [UNIT, PIXELS, JSON, BRACKETS, MOLMO, MOLMO2, GEMINI, KOSMOS]


def encode(mask: NDArray[np.bool_]) -> dict[str, Any]:
    rle = coco_mask.encode(np.asfortranarray(mask, dtype=np.uint8))
    return {"size": list(mask.shape), "counts": rle["counts"].decode()}


TUPLE_TEXTS = st.lists(
    st.sampled_from(["(", ")", ",", ", ", " ", "-", "+", ".", "0", "1", "5", "0.5", "a", "\n", "(0.25, 0.5)", "(1,2"]),
    max_size=30,
).map("".join)
NUMBERS = st.one_of(st.integers(-2, 9).map(str), st.floats(-1, 2).map(lambda number: f"{number:.2f}"))
TUPLE_LISTS = st.lists(st.lists(NUMBERS, min_size=1, max_size=5), max_size=4).map(
    lambda groups: " ".join(f"({', '.join(group)})" for group in groups)
)
