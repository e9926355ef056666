"""Cells of the Kosmos-2 grid, its answers, and captions on their way through the tokenizer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reftables.kosmos import (
    can_match_officially,
    decode_pairs,
    encode_boxes,
    find_groundings,
    is_cut,
    normalise_caption,
    write_answer,
)


def decode(first: int, second: int, grid: int = 32) -> list[float]:
    return decode_pairs(np.array([[first, second]]), grid)[0].tolist()


def decode_slowly(first: int, second: int, grid: int) -> list[float]:
    """One pair at a time, in the order of the authors' arithmetic."""
    cell = 1.0 / grid
    x1, y1, x2, y2 = first % grid, first // grid, second % grid, second // grid
    if x1 == x2 or y1 == y2:
        return [x1 * cell, y1 * cell, x2 * cell + cell, y2 * cell + cell]
    return [value * cell + cell / 2 for value in (x1, y1, x2, y2)]


@pytest.mark.parametrize(
    ("first", "second", "box"),
    [
        pytest.param(33, 33, [1 / 32, 1 / 32, 2 / 32, 2 / 32], id="one-cell"),
        pytest.param(0, 9, [0, 0, 10 / 32, 1 / 32], id="one-row"),
        pytest.param(5, 69, [5 / 32, 0, 6 / 32, 3 / 32], id="one-column"),
        pytest.param(0, 297, [0.5 / 32, 0.5 / 32, 9.5 / 32, 9.5 / 32], id="centres"),
        pytest.param(297, 0, [9.5 / 32, 9.5 / 32, 0.5 / 32, 0.5 / 32], id="inverted-stays-inverted"),
        pytest.param(0, 31, [0, 0, 1, 1 / 32], id="whole-first-row"),
        pytest.param(31, 32, [31.5 / 32, 0.5 / 32, 0.5 / 32, 1.5 / 32], id="over-the-end-of-a-row"),
        pytest.param(0, 1023, [0.5 / 32, 0.5 / 32, 31.5 / 32, 31.5 / 32], id="whole-grid"),
        pytest.param(1023, 1024, [31.5 / 32, 31.5 / 32, 0.5 / 32, 32.5 / 32], id="beyond-the-grid"),
    ],
)
def test_a_pair_of_cells_is_its_box(first: int, second: int, box: list[float]):
    assert decode(first, second) == box


@settings(max_examples=100)
@given(
    st.sampled_from([7, 14, 24, 32, 33]), st.lists(st.tuples(st.integers(0, 1300), st.integers(0, 1300)), max_size=20)
)
def test_all_pairs_at_once_equal_one_by_one(grid: int, pairs: list[tuple[int, int]]):
    boxes = decode_pairs(np.array(pairs, dtype=np.int64).reshape(-1, 2), grid)
    assert boxes.tolist() == [decode_slowly(first, second, grid) for first, second in pairs]


@settings(max_examples=100)
@given(st.integers(0, 1023), st.integers(0, 1023))
def test_a_box_gives_back_the_pair_it_came_from(first: int, second: int):
    left, right = sorted((first % 32, second % 32))
    top, bottom = sorted((first // 32, second // 32))
    pair = [top * 32 + left, bottom * 32 + right]
    assert encode_boxes(decode_pairs(np.array([pair]), 32), 32)[0].tolist() == pair


@pytest.mark.parametrize(
    ("box", "pair"),
    [
        pytest.param([0, 0, 1, 1], [0, 1023], id="whole-image"),
        pytest.param([0, 0, 1.001, 1.001], [0, 1023], id="beyond-the-lower-right"),
        pytest.param([-0.001, -0.001, 0.5, 0.5], [0, 15 * 33], id="beyond-the-upper-left"),
        pytest.param([1, 1, 1.1, 1.1], [1023, 1023], id="outside"),
        pytest.param([0.5, 0.5, 0.5, 0.5], [16 * 33, 16 * 33], id="empty"),
    ],
)
def test_boxes_are_encoded_within_the_grid(box: list[float], pair: list[int]):
    assert encode_boxes(np.array([box]), 32)[0].tolist() == pair


PAIR = "<patch_index_0001><patch_index_0034>"
DELIMITER = "</delimiter_of_multi_objects/>"


@pytest.mark.parametrize(
    ("answer", "groundings"),
    [
        pytest.param(f"<phrase>man</phrase><object>{PAIR}</object>", [("man", [(1, 34)])], id="plain"),
        pytest.param(
            f"<phrase>man</phrase><object>{PAIR}{DELIMITER}{PAIR}</object></s>",
            [("man", [(1, 34), (1, 34)])],
            id="two-boxes",
        ),
        pytest.param(f"<phrase>man</phrase><object>{PAIR}{DELIMITER}</object>", [], id="trailing-delimiter"),
        pytest.param(f"<phrase>man</phrase><object>{PAIR} {PAIR}</object>", [], id="blank-between"),
        pytest.param("<phrase>man</phrase><object><patch_index_0001></object>", [], id="odd-count"),
        pytest.param(f"<phrase>man</phrase> <object>{PAIR}</object>", [], id="phrase-not-adjacent"),
        pytest.param(f"<object>{PAIR}</object>", [], id="no-phrase"),
        pytest.param(
            f"<phrase>a<phrase>man</phrase><object>{PAIR}</object>", [("man", [(1, 34)])], id="phrase-begun-twice"
        ),
        pytest.param(f"<phrase>a<b></phrase><object>{PAIR}</object>", [("a<b>", [(1, 34)])], id="less-than-in-phrase"),
        pytest.param(
            f"<phrase>cat</phrase><object>{PAIR}</object></image><phrase>man</phrase><object>{PAIR}</object>",
            [("man", [(1, 34)])],
            id="after-the-last-image",
        ),
        pytest.param(
            f"<phrase>man</phrase><object><patch_index_{'9' * 5000}><patch_index_{'0' * 5000}7></object>",
            [("man", [(999_999_999_999, 7)])],
            id="endless-indices",
        ),
    ],
)
def test_phrases_are_found_with_their_pairs(answer: str, groundings: list[tuple[str, list[tuple[int, int]]]]):
    assert find_groundings(answer) == groundings


@pytest.mark.parametrize(
    "ending",
    ["<phrase>the ma", "<object>", "<object><patch_in", f"<object>{PAIR}", f"<object>{PAIR}{DELIMITER}<patch_index_00"],
)
def test_an_answer_that_ends_inside_a_tag_pair_is_cut(ending: str):
    assert is_cut(f"<phrase>man</phrase><object>{PAIR}</object> {ending}")


@pytest.mark.parametrize("answer", ["", "man", "<phrase>man</phrase>", f"<object>{PAIR}</object></s>", "<object>?</s>"])
def test_an_answer_that_ends_otherwise_is_not_cut(answer: str):
    assert not is_cut(answer)


def test_a_written_answer_is_found_again():
    assert find_groundings(write_answer("the man", [(0, 1023), (33, 34)])) == [("the man", [(0, 1023), (33, 34)])]


@pytest.mark.parametrize(
    ("caption", "normalised"),
    [
        pytest.param("the  man ", "the man", id="blanks"),
        pytest.param("the\tman\n", "the man", id="tab-and-line-feed"),
        pytest.param("the\xa0man", "the man", id="no-break-space"),
        pytest.param("the\u200bman\ufeff", "the man", id="zero-width"),
        pytest.param("the▁man", "the man", id="the-tokenizer's-own-blank"),
        pytest.param("the\x01 man\x7f", "the man", id="control-characters"),
        pytest.param("½ ² ﬁ Ａ …", "1⁄2 2 fi A ...", id="compatibility-forms"),
        pytest.param("cafe\u0301", "café", id="decomposed-accent"),
        pytest.param("CAFÉ", "CAFÉ", id="case-stays"),
    ],
)
def test_captions_are_normalised_as_by_the_tokenizer(caption: str, normalised: str):
    assert normalise_caption(caption) == normalised


@pytest.mark.parametrize("caption", ["man", " man ", "café", "man in t-shirt #5, left > right"])
def test_a_caption_the_tokenizer_leaves_alone_can_match(caption: str):
    assert can_match_officially(caption)


@pytest.mark.parametrize(
    "caption",
    ["", " ", "<3 shirt", "the  man", "the\tman", "the\xa0man", "½ pie", "m²", "ﬁsh", "wait…", "cafe\u0301"],
)
def test_a_caption_the_tokenizer_changes_cannot_match(caption: str):
    assert not can_match_officially(caption)
