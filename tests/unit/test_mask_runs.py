"""Masks in runs, against their pictures and against pycocotools."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pycocotools import mask as coco_mask

from reftables.scoring.mask_runs import MaskRuns, read_counts
from tests.unit.pointing import encode

MASKS = st.tuples(
    st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.2, 0.5, 1.0])
).map(lambda drawn: np.random.default_rng(drawn[2]).random(drawn[:2]) < drawn[3])


@settings(max_examples=60, deadline=None)
@given(mask=MASKS, boxes=st.lists(st.tuples(*[st.integers(-3, 15)] * 4), min_size=5, max_size=10))
def test_pixels_of_a_mask_in_a_box_are_those_of_its_picture(
    mask: NDArray[np.bool_], boxes: list[tuple[int, int, int, int]]
) -> None:
    height, width = mask.shape
    runs = MaskRuns(encode(mask)["counts"], height=height, width=width)
    inside = [(x, y) for y, x in np.argwhere(mask).tolist()]
    for x0, y0, x1, y1 in boxes:
        assert runs.count(x0, y0, x1, y1) == sum(x0 <= x < x1 and y0 <= y < y1 for x, y in inside)


@settings(max_examples=50, deadline=None)
@given(runs=st.lists(st.integers(1, 100_000), min_size=1, max_size=12), starts_inside=st.booleans())
def test_counts_are_read_as_pycocotools_writes_them(runs: list[int], starts_inside: bool) -> None:
    runs = [0, *runs] if starts_inside else runs
    rle = coco_mask.frPyObjects({"size": [1, sum(runs)], "counts": runs}, 1, sum(runs))
    assert read_counts(rle["counts"].decode()).tolist() == runs


def test_runs_that_do_not_fill_the_image_are_an_error() -> None:
    counts = encode(np.ones((4, 5), dtype=bool))["counts"]
    with pytest.raises(ValueError, match="the runs of a mask of 5x5 pixels add up to 20"):
        MaskRuns(counts, height=5, width=5)
