"""Checked run-length encodings, against decoded arrays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from PIL import Image
from pycocotools import mask as coco_mask

from reftables import rle
from reftables.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' decode

Mask = NDArray[np.uint8]
SMALL = (4, 6)


def masks(size: tuple[int, int] = SMALL) -> st.SearchStrategy[Mask]:
    return arrays(np.uint8, size, elements=st.integers(0, 1))


def encode(mask: Mask) -> rle.Rle:
    encoded = coco_mask.encode(np.asfortranarray(mask))
    return {"size": list(encoded["size"]), "counts": encoded["counts"].decode()}


def runs_of(mask: Mask) -> list[int]:
    """The lengths of the runs down the columns, outside first."""
    runs, inside = [0], 0
    for pixel in mask.ravel(order="F").tolist():
        if pixel != inside:
            runs.append(0)
            inside = pixel
        runs[-1] += 1
    return runs


def text_of(runs: list[int]) -> str:
    """The text of any list of runs, also of one that pycocotools would not write: digits of 5 bits, lowest first."""
    text = ""
    for place, run in enumerate(runs):
        value = run - runs[place - 2] if place > 2 else run
        more = True
        while more:
            digit, value = value & 31, value >> 5
            more = value != (-1 if digit & 16 else 0)
            text += chr(48 + digit + 32 * more)
    return text


def check(*given: object, size: tuple[int, int] = SMALL) -> list[rle.Rle]:
    return rle.check(given, [size] * len(given), names=[f"mask {i}" for i in range(len(given))])


@settings(max_examples=60, deadline=None)
@given(mask=masks())
def test_valid_masks_pass_in_both_forms_of_counts(mask: Mask):
    compressed = encode(mask)
    assert check(compressed, {"size": [4, 6], "counts": runs_of(mask)}) == [compressed, compressed]


@settings(max_examples=60, deadline=None)
@given(mask=masks(), data=st.data())
def test_empty_runs_are_taken_out(mask: Mask, data: st.DataObject):
    runs = runs_of(mask)
    for _ in range(data.draw(st.integers(1, 40))):
        place = data.draw(st.integers(0, len(runs)))
        cut = data.draw(st.integers(0, runs[place])) if place < len(runs) else 0
        runs[place : place + 1] = [cut, 0, runs[place] - cut] if place < len(runs) else [0, 0]
    assert check({"size": [4, 6], "counts": text_of(runs)}) == [encode(mask)]


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.characters(codec="latin-1"), max_size=12) | st.text("012389?@OPQo_`", min_size=1, max_size=12))
def test_any_text_is_refused_or_fills_its_image(text: str):
    try:
        [checked] = check({"size": [4, 6], "counts": text})
    except DataError:
        return
    again = encode(coco_mask.decode(checked))
    assert rle.areas([checked]) == rle.areas([again]) == rle.intersections([checked], [again])


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.lists(st.integers(1, 2**26), min_size=1, max_size=7), min_size=1, max_size=4))
def test_runs_of_any_length_are_read_right_whatever_stands_before_them(texts: list[list[int]]):
    given_rles = [{"size": [1, sum(runs)], "counts": text_of(runs)} for runs in texts]
    checked = rle.check(given_rles, [(1, sum(runs)) for runs in texts], names="abcd")
    assert checked == given_rles
    assert rle.areas(checked).tolist() == [sum(runs[1::2]) for runs in texts]


def test_bad_masks_of_the_case_file_are_refused_by_name(cases):
    [case] = [case for case in cases("masks") if case["id"] == "bad-rle"]
    for bad in case["bad"]:
        with pytest.raises(DataError, match=r"^mask 1: not a valid RLE mask: "):
            check(case["good"], bad, size=tuple(case["size"]))
    assert rle.areas(check(case["good"], size=tuple(case["size"]))).tolist() == [case["expected"]["area"]]


BAD = {
    "no mapping": ([3], "it has no `size` and `counts`"),
    "no counts": ({"size": [4, 6]}, "it has no `size` and `counts`"),
    "other size": ({"size": [6, 4], "counts": "h0"}, "its size is [6, 4], that of its image [4, 6] (height, width)"),
    "size as text": ({"size": "46", "counts": "h0"}, "its size is '46', that of its image [4, 6] (height, width)"),
    "nested size": ({"size": [[4], 6], "counts": "h0"}, "its size is [[4], 6], that of its image"),
    "no runs": ({"size": [4, 6], "counts": ""}, "it has no runs"),
    "empty list": ({"size": [4, 6], "counts": []}, "it has no runs"),
    "bytes": ({"size": [4, 6], "counts": b"h0"}, "its counts are neither a list nor a text of ASCII characters"),
    "accents": ({"size": [4, 6], "counts": "hé0"}, "its counts are neither a list nor a text of ASCII characters"),
    "character above": ({"size": [4, 6], "counts": "hp0"}, "its counts hold a character that no RLE has"),
    "character below": ({"size": [4, 6], "counts": "h/0"}, "its counts hold a character that no RLE has"),
    "null character": ({"size": [4, 6], "counts": "h0\0"}, "its counts hold a character that no RLE has"),
    "cut number": ({"size": [4, 6], "counts": "h"}, "its counts break off within a number"),
    "endless number": ({"size": [4, 6], "counts": "PPPPPPPP0"}, "its counts hold a number of over 6 digits"),
    "negative run": ({"size": [4, 6], "counts": text_of([-1, 25])}, "a run is negative"),
    "negative difference": ({"size": [4, 6], "counts": text_of([5, 3, 18, -2])}, "a run is negative"),
    "too short": ({"size": [4, 6], "counts": text_of([20, 3])}, "its runs add up to 23 pixels, its image has 24"),
    "too long": ({"size": [4, 6], "counts": text_of([20, 9])}, "its runs add up to 29 pixels, its image has 24"),
    "short list": ({"size": [4, 6], "counts": [20, 3]}, "its runs add up to 23 pixels, its image has 24"),
    "negative in list": ({"size": [4, 6], "counts": [-1, 25]}, "its counts are not all whole numbers from 0"),
    "wrapping in list": ({"size": [4, 6], "counts": [2**32, 24]}, "its counts are not all whole numbers from 0"),
    "fractions in list": ({"size": [4, 6], "counts": [1.5, 22.5]}, "its counts are not all whole numbers from 0"),
    "booleans in list": ({"size": [4, 6], "counts": [True, 23]}, "its counts are not all whole numbers from 0"),
}


@pytest.mark.parametrize(("bad", "reason"), BAD.values(), ids=BAD.keys())
def test_a_bad_mask_is_refused_with_its_reason(bad: object, reason: str):
    with pytest.raises(DataError) as error:
        check({"size": [4, 6], "counts": "h0"}, bad, {"size": [4, 6], "counts": "h0"})
    assert str(error.value).startswith(f"mask 1: not a valid RLE mask: {reason}")


def test_a_bad_mask_far_down_is_named():
    good = [{"size": [4, 6], "counts": "h0"}] * 300
    with pytest.raises(DataError, match=r"^mask 277: "):
        check(*good[:277], {"size": [4, 6], "counts": "h1"}, *good)


def test_more_runs_than_pixels_do_no_harm():
    hostile = {"size": [1, 1], "counts": "0" * 100_001 + "1"}
    assert rle.areas(check(hostile, size=(1, 1))).tolist() == [1]


def test_no_masks_are_no_error():
    assert check() == []
    assert rle.areas([]).tolist() == []
    assert rle.tight_boxes([]).shape == (0, 4)


@settings(max_examples=40, deadline=None)
@given(pairs=st.lists(st.tuples(masks(), masks()), min_size=1, max_size=3))
def test_areas_and_intersections_are_those_of_the_pixels(pairs: list[tuple[Mask, Mask]]):
    pairs *= 100
    ones, others = [encode(one) for one, _ in pairs], [encode(other) for _, other in pairs]
    assert rle.areas(ones).tolist() == [int(one.sum()) for one, _ in pairs]
    assert rle.intersections(ones, others).tolist() == [int((one & other).sum()) for one, other in pairs]


@settings(max_examples=40, deadline=None)
@given(parts=st.lists(masks(), min_size=1, max_size=4))
def test_union_is_any_of_the_pixels(parts: list[Mask]):
    assert rle.union([encode(part) for part in parts]) == encode(np.bitwise_or.reduce(parts))


@settings(max_examples=60, deadline=None)
@given(mask=masks())
def test_tight_boxes_hold_all_pixels_and_no_more(mask: Mask):
    rows, columns = np.nonzero(mask)
    expected = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1] if rows.size else [0, 0, 0, 0]
    assert rle.tight_boxes([encode(mask)]).tolist() == [expected]


@settings(max_examples=100, deadline=None)
@given(box=st.tuples(*[st.floats(-9, 9)] * 4))
def test_a_filled_box_has_the_pixels_whose_centre_lies_in_it(box: tuple[float, float, float, float]):
    left, top, right, bottom = box
    x, y = np.arange(6) + 0.5, (np.arange(4) + 0.5)[:, None]
    expected = (left <= x) & (x < right) & (top <= y) & (y < bottom)
    assert rle.from_box(box, SMALL) == encode(expected.astype(np.uint8))


def test_polygon_parts_that_overlap_are_united(cases):
    [case] = [case for case in cases("masks") if case["id"] == "overlapping-parts"]
    united = rle.from_polygons(case["truth_polygons"], tuple(case["size"]))
    assert rle.areas([united]).tolist() == [case["expected"]["area"]]


def test_no_polygons_are_an_empty_mask():
    assert rle.from_polygons([], SMALL) == encode(np.zeros(SMALL, np.uint8))


@pytest.mark.parametrize("side", [1, 2, 3, 5, 8, 48])
@settings(max_examples=20, deadline=None)
@given(mask=masks())
def test_resizing_is_pillows_nearest(side: int, mask: Mask):
    expected = np.asarray(Image.fromarray(mask).resize((side, side), Image.Resampling.NEAREST))
    assert rle.resized(encode(mask), side) == encode(expected)
