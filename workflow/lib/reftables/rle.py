"""Masks as COCO run-length encodings (RLE): checked, then measured by pycocotools without decoding them.

An RLE here is `{"size": [height, width], "counts": text}`. Its runs go down the columns from the upper
left pixel, outside and inside by turns, the first one outside. pycocotools trusts its input: it reads
beyond a text that breaks off, writes beyond its buffer where runs are empty, and takes runs that don't
fill the image for a mask. So whatever comes from a file passes `check` before pycocotools sees it.

Source: cocodataset/cocoapi, common/maskApi.c and PythonAPI/pycocotools/mask.py.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from pycocotools import mask as coco_mask

from reftables.errors import DataError, shown

Rle = dict[str, Any]

_MOST_AREAS = 255  # `pycocotools.mask.area` overflows above
# Characters read at once: arrays of that many numbers stay below the 128 KiB from which malloc may ask the
# system for fresh pages each time, which would cost more than the arithmetic.
_SLICE = 20_000
_MOST_DIGITS = 6  # of a number: 30 bits with its sign

Fail = Callable[[int, str], NoReturn]  # called with a mask's place and what is wrong with it


def check(rles: Sequence[object], sizes_hw: Sequence[tuple[int, int]], names: Sequence[str]) -> list[Rle]:
    """`rles` as pycocotools can be given them: counts compressed, and no run empty but a first one.

    Counts may be a text or a list of runs. `rles[i]` must fill an image of `sizes_hw[i]` pixels exactly;
    else DataError, which calls it `names[i]`.
    """
    fail = partial(_fail, names)
    texts = [_counts_text(i, rle, size, fail) for i, (rle, size) in enumerate(zip(rles, sizes_hw, strict=True))]
    for part in _slices(texts):
        texts[part] = _check_runs(texts[part], sizes_hw[part], partial(_fail, names[part]))
    return [{"size": list(size), "counts": text} for size, text in zip(sizes_hw, texts, strict=True)]


def _fail(names: Sequence[str], i: int, reason: str) -> NoReturn:
    raise DataError(f"{names[i]}: not a valid RLE mask: {reason}")


def _slices(texts: Sequence[str]) -> list[slice]:
    """Consecutive parts of the texts, of `_SLICE` characters or few more."""
    if not texts:
        return []
    ends = np.cumsum([len(text) for text in texts])
    starts = [0, *(np.flatnonzero(np.diff(ends // _SLICE)) + 1).tolist(), len(texts)]
    return [slice(start, stop) for start, stop in pairwise(starts)]


def _check_runs(texts: Sequence[str], sizes_hw: Sequence[tuple[int, int]], fail: Fail) -> list[str]:
    """The texts, whose runs fill their images; rewritten where runs are empty."""
    runs, first = _runs(texts, fail)
    if runs.min() < 0:
        fail(_owner(first, np.argmin(runs)), "a run is negative")
    totals = np.add.reduceat(runs, first, dtype=np.int64)
    pixels = np.array([height * width for height, width in sizes_hw])
    for wrong in np.flatnonzero(totals != pixels):
        fail(int(wrong), f"its runs add up to {totals[wrong]:,} pixels, its image has {pixels[wrong]:,}")
    result = [*texts]
    for i in _with_empty_runs(runs, first):
        edges = np.cumsum(np.split(runs, first[1:])[i])[:-1]
        result[i] = _compressed(_runs_between(edges, int(pixels[i])), sizes_hw[i])
    return result


def _counts_text(i: int, rle: object, size_hw: tuple[int, int], fail: Fail) -> str:
    """The compressed counts of one RLE, whose size and types are right; what the text says is unchecked."""
    if not isinstance(rle, dict) or "size" not in rle or "counts" not in rle:
        fail(i, "it has no `size` and `counts`")
    size, counts = rle["size"], rle["counts"]
    if size != [*size_hw] and size != size_hw:
        fail(i, f"its size is {shown(size)}, that of its image {[*size_hw]} (height, width)")
    if type(counts) is list:
        # Compressing would take any number for an unsigned one of 32 bits.
        if not all(type(run) is int and 0 <= run <= size_hw[0] * size_hw[1] for run in counts):
            fail(i, "its counts are not all whole numbers from 0 to the pixels of its image")
        counts = _compressed(counts, size_hw)
    if type(counts) is not str or not counts.isascii():
        fail(i, "its counts are neither a list nor a text of ASCII characters")
    if not counts:
        fail(i, "it has no runs")
    return counts


def _compressed(runs: Sequence[int] | NDArray[Any], size_hw: tuple[int, int]) -> str:
    rle = coco_mask.frPyObjects({"size": list(size_hw), "counts": list(runs)}, *size_hw)
    return str(rle["counts"].decode("ascii"))


def _owner(first: NDArray[np.intp], place: Any) -> int:
    """Which text the run at `place` belongs to."""
    return int(np.searchsorted(first, place, side="right")) - 1


def _runs(texts: Sequence[str], fail: Fail) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
    """The runs of non-empty ASCII texts one after the other, and where those of each text begin.

    A number is a row of digits of 5 bits, lowest first, each written as the character 48 + digit, plus 32
    where another digit follows; bit 4 of the last digit is the sign. Like pycocotools' own, the
    arithmetic wraps at 32 bits.
    """
    digits = np.frombuffer("".join(texts).encode("ascii"), dtype=np.uint8) - np.uint8(48)
    lengths = np.array([len(text) for text in texts])
    begin = np.cumsum(lengths) - lengths
    if digits.max() > 63:
        fail(_owner(begin, np.argmax(digits > 63)), "its counts hold a character that no RLE has")
    unfinished = digits[begin + lengths - 1] >= 32
    if unfinished.any():
        fail(int(np.argmax(unfinished)), "its counts break off within a number")

    highest = np.flatnonzero(digits < 32)  # place of the last digit of every number
    numbers = digits[highest].astype(np.int32)
    numbers -= (numbers & 16) << 1
    # Before a number's own digits stands the last one of another; before the first, at -1, that of the last.
    places = highest - 1
    longer = np.flatnonzero(digits[places] >= 32)
    places, done = places[longer], 1
    while longer.size:
        if done == _MOST_DIGITS:
            fail(_owner(begin, places[0]), f"its counts hold a number of over {_MOST_DIGITS} digits")
        numbers[longer] = numbers[longer] << 5 | digits[places] & 31
        places, done = places - 1, done + 1
        more = digits[places] >= 32
        longer, places = longer[more], places[more]

    first = np.searchsorted(highest, begin)
    return _undo_differences(numbers, first), first


def _undo_differences(numbers: NDArray[np.int32], first: NDArray[np.intp]) -> NDArray[np.int32]:
    """The runs behind the numbers of several texts: from a text's fourth on, each adds the run two before it.

    Two cumulative sums over everything, one of the even places and one of the odd ones, from which each
    text takes off what they had come to where it begins.
    """
    opening = numbers[first]
    runs = numbers.copy()
    runs[first] = 0  # the third number is a run of its own: it doesn't add the first
    for parity in (0, 1):
        runs[parity::2] = np.cumsum(runs[parity::2], dtype=np.int32)
    same = runs[first]
    other = np.where(first > 0, runs[first - 1], 0).astype(np.int32)
    lengths = np.diff(first, append=len(numbers))
    for parity in (0, 1):
        before = np.where(first % 2 == parity, same, other)
        runs[parity::2] -= np.repeat(before, lengths)[parity::2]
    runs[first] = opening
    return runs


def _with_empty_runs(runs: NDArray[np.int32], first: NDArray[np.intp]) -> list[int]:
    """The texts that hold an empty run after their first, which pycocotools may stumble over."""
    empty = runs == 0
    empty[first] = False
    return sorted({_owner(first, place) for place in np.flatnonzero(empty)})


def _runs_between(edges: NDArray[Any], pixels: int) -> NDArray[Any]:
    """The runs of a mask that changes at the places `edges`; a place named twice changes nothing."""
    places, times = np.unique(edges, return_counts=True)
    places = places[(times % 2 == 1) & (places < pixels)]
    return np.diff(places, prepend=0, append=pixels)


def areas(rles: Sequence[Rle]) -> NDArray[np.int64]:
    """Pixels inside each of `rles`, (n,)."""
    slices = [coco_mask.area(rles[start : start + _MOST_AREAS]) for start in range(0, len(rles), _MOST_AREAS)]
    return np.concatenate([np.zeros(0, dtype=np.int64), *slices])


def intersections(rles: Sequence[Rle], others: Sequence[Rle]) -> NDArray[np.int64]:
    """Pixels inside both `rles[i]` and `others[i]`, (n,); those are of the same size, without empty runs."""
    return areas([coco_mask.merge(pair, intersect=True) for pair in zip(rles, others, strict=True)])


def tight_boxes(rles: Sequence[Rle]) -> NDArray[np.float64]:
    """The smallest box around each mask without empty runs: (n, 4), xyxy in pixels; all 0 for an empty mask."""
    boxes = np.asarray(coco_mask.toBbox(rles), dtype=np.float64).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    return boxes


def union(rles: Sequence[Rle]) -> Rle:
    """The pixels inside any of at least one masks of the same size, which have no empty runs."""
    return _plain(coco_mask.merge(list(rles)))


def empty(size_hw: tuple[int, int]) -> Rle:
    """The mask of no pixels."""
    return {"size": list(size_hw), "counts": _compressed([size_hw[0] * size_hw[1]], size_hw)}


def from_mask(mask: NDArray[np.bool_]) -> Rle:
    """The True pixels of a (height, width) mask."""
    return _plain(coco_mask.encode(np.asfortranarray(mask, dtype=np.uint8)))


def from_polygons(parts: Sequence[Sequence[float]], size_hw: tuple[int, int]) -> Rle:
    """The union of polygons `[x1, y1, x2, y2, ...]` of at least 3 points each; an empty mask where there are none."""
    if not parts:
        return empty(size_hw)
    return _plain(coco_mask.merge(coco_mask.frPyObjects(list(parts), *size_hw)))


def from_box(box_xyxy: Sequence[float], size_hw: tuple[int, int]) -> Rle:
    """The pixels of the image whose centre lies in the box: xyxy in pixels, continuous, finite."""
    height, width = size_hw
    left, top, right, bottom = (
        int(np.clip(np.ceil(corner - 0.5), 0, side))
        for corner, side in zip(box_xyxy, (width, height, width, height), strict=True)
    )
    columns = np.arange(left, right) * height if bottom > top else np.zeros(0, dtype=np.int64)
    edges = np.concatenate([columns + top, columns + bottom])
    return {"size": list(size_hw), "counts": _compressed(_runs_between(edges, height * width), size_hw)}


def resized(rle: Rle, side: int) -> Rle:
    """The mask on a grid of `side` x `side`: nearest, each pixel like the one under its centre, as in Pillow."""
    decoded = coco_mask.decode(rle)
    centres = 2 * np.arange(side) + 1
    rows, columns = (centres * extent // (2 * side) for extent in decoded.shape)
    return _plain(coco_mask.encode(np.asfortranarray(decoded[np.ix_(rows, columns)])))


def _plain(rle: Mapping[str, Any]) -> Rle:
    """pycocotools' own RLE as JSON can write it."""
    return {"size": [int(side) for side in rle["size"]], "counts": rle["counts"].decode("ascii")}
