"""The notation of Kosmos-2: a box is two cells of a grid, each the token of its index.

The grid has `grid` x `grid` cells (32 x 32 in the released model), numbered row by row from the upper
left. Source: microsoft/unilm, kosmos-2/evaluation/flickr_entities/decode_string.py.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

IMAGE_END = "</image>"
_DELIMITER = "</delimiter_of_multi_objects/>"
_PAIR = r"<patch_index_\d+><patch_index_\d+>"
# The phrase may hold `<`, only not its own tags. Unrolled, so that no text costs more than linear time.
_PHRASE = r"[^<]*(?:<(?!/?phrase>)[^<]*)*"
_GROUNDING = re.compile(rf"<phrase>({_PHRASE})</phrase><object>((?:{_PAIR}{_DELIMITER})*{_PAIR})</object>")
_CLOSED = ("</object>", "</s>")
_INDEX = re.compile(r"\d+")
_MOST_DIGITS = 12  # beyond any grid; int() refuses to read thousands of them
_CUT = re.compile(rf"<(?:phrase>[^<]*|object>(?:<patch_index_\d+>|{_DELIMITER})*)(?:<[^<>]*)?\s*\Z")

# What the normaliser of the tokenizer (SentencePiece's nmt_nfkc) does beside NFKC.
_DROPPED = [*range(0x01, 0x09), 0x0B, *range(0x0E, 0x20), 0x7F, 0x8F, 0x9F]
_BLANKS = [*range(0x200B, 0x2010), 0x2581, 0xFEFF, 0xFFFD]
_NORMALISER = {**dict.fromkeys(_DROPPED), **dict.fromkeys(_BLANKS, " ")}


class Grounding(NamedTuple):
    """A phrase, and the pairs of cells (first, second) that an answer gives for it, at least one."""

    phrase: str
    pairs: list[tuple[int, int]]


def find_groundings(answer: str) -> list[Grounding]:
    """Every `<phrase>…</phrase><object>…</object>` after the last `</image>` of an answer, in order.

    An object without a phrase right before it belongs to no caption and is left out; one that is
    not exactly pairs between delimiters is skipped whole. What a caption's boxes are is the same in
    the authors' pattern, except that theirs reads no phrase that holds `<`.
    """
    found = _GROUNDING.findall(answer, answer.rfind(IMAGE_END) + 1)
    return [Grounding(phrase, _read_pairs(tokens)) for phrase, tokens in found]


def _read_pairs(tokens: str) -> list[tuple[int, int]]:
    indices = [_read_index(digits) for digits in _INDEX.findall(tokens)]
    return list(zip(indices[::2], indices[1::2], strict=True))


def _read_index(digits: str) -> int:
    return int(digits if len(digits) <= _MOST_DIGITS else digits.lstrip("0")[:_MOST_DIGITS] or 0)


def is_cut(answer: str) -> bool:
    """Whether an answer ends inside a phrase or an object."""
    if answer.endswith(_CLOSED):
        return False  # as nearly all are; the search below costs ten times as much
    start = max(answer.rfind("<phrase>"), answer.rfind("<object>"))
    return start >= 0 and _CUT.match(answer, start) is not None


def write_answer(phrase: str, pairs: Iterable[tuple[int, int]]) -> str:
    """The answer that gives `pairs` for `phrase`, as the model writes it."""
    boxes = _DELIMITER.join(f"<patch_index_{first:04d}><patch_index_{second:04d}>" for first, second in pairs)
    return f"<image>{IMAGE_END}<grounding><phrase>{phrase}</phrase><object>{boxes}</object>"


def decode_pairs(pairs: NDArray[np.int64], grid: int) -> NDArray[np.float64]:
    """The boxes of pairs of cells: (n, 2) to (n, 4), xyxy in units of the image.

    Two cells of one row or column (or one cell twice) give their outer edges, others their centres.
    Inverted pairs give inverted boxes, indices beyond the grid boxes beyond the image. Float64 in
    the authors' order: with grids other than powers of two the last digit depends on it.
    """
    row, column = np.divmod(pairs, grid)  # each (n, 2): of the first and of the second cell
    corners = np.stack((column, row), axis=2) * (1 / grid)  # (n, cell, xy)
    aligned = ((column[:, 0] == column[:, 1]) | (row[:, 0] == row[:, 1]))[:, None]
    cell = 1 / grid
    corners[:, 0] += np.where(aligned, 0, cell / 2)
    corners[:, 1] += np.where(aligned, cell, cell / 2)
    return corners.reshape(-1, 4)


def encode_boxes(boxes_xyxy: NDArray[np.float64], grid: int) -> NDArray[np.int64]:
    """The pair of cells of each box: (n, 4) xyxy in units of the image to (n, 2).

    The cells are those that hold the two corners; a lower right corner on a grid line belongs to the
    cell before it. Corners outside the image are moved onto its border, since annotations exceed it
    by fractions of a pixel, and a box without width or height gets the cells of its first corner.
    Source: coordinate_to_patch_index of transformers, which does neither.
    """
    first = np.clip(np.floor(boxes_xyxy[:, :2] * grid), 0, grid - 1)
    second = np.clip(np.ceil(boxes_xyxy[:, 2:] * grid - 1), first, grid - 1)
    cells = np.stack((first, second), axis=1).astype(np.int64)  # (n, cell, xy)
    return cells[:, :, 1] * grid + cells[:, :, 0]


def normalise_caption(text: str) -> str:
    """`text` as it comes out of the tokenizer: NFKC, no control characters, single blanks, none at the ends."""
    return " ".join(unicodedata.normalize("NFKC", text.translate(_NORMALISER)).split())


def can_match_officially(caption: str) -> bool:
    """Whether an answer that repeats the caption can count in the authors' script.

    It compares the raw caption with one that went through the tokenizer, and reads no phrase that
    holds `<` or nothing at all.
    """
    normalised = normalise_caption(caption)
    return normalised != "" and normalised == caption.strip() and "<" not in caption
