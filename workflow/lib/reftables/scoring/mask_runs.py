"""Counts the pixels of a mask in rectangles from its run lengths, without decoding it to a picture."""

import numpy as np
from numpy.typing import NDArray


class MaskRuns:
    """A mask as the number of its pixels before every pixel, which is linear within each run.

    Pixels are numbered down the columns (x * height + y), as in COCO's run-length encoding (RLE), whose
    compressed text is `counts`.
    """

    def __init__(self, counts: str, *, height: int, width: int) -> None:
        self._height, self._width = height, width
        runs = read_counts(counts)
        inside = runs.copy()
        inside[::2] = 0
        # Float64, as np.interp would make them at every call; exact, since every slope is 0 or 1.
        self._edges = np.concatenate(([0], np.cumsum(runs))).astype(np.float64)
        self._inside = np.concatenate(([0], np.cumsum(inside))).astype(np.float64)
        if self._edges[-1] != height * width:
            raise ValueError(f"the runs of a mask of {width}x{height} pixels add up to {self._edges[-1]:,.0f}")

    def count(self, x0: int, y0: int, x1: int, y1: int) -> int:
        """Pixels of the mask in the columns x0 to x1 and the rows y0 to y1, half-open; any part may lie outside."""
        top, bottom = max(y0, 0), min(y1, self._height)
        columns = np.arange(max(x0, 0), min(x1, self._width)) * self._height
        if bottom <= top or not columns.size:
            return 0
        return int((self._before(columns + bottom) - self._before(columns + top)).sum())

    def _before(self, pixels: NDArray[np.int64]) -> NDArray[np.float64]:
        """The number of pixels inside the mask before each of `pixels`."""
        return np.interp(pixels, self._edges, self._inside)


def read_counts(counts: str) -> NDArray[np.int64]:
    """The lengths of the runs in COCO's compressed text, outside and inside by turns, the first outside.

    A number is a row of characters with five bits each, lowest first: 32 says that more follow, and 16 in
    the last that it is negative. From the fourth on a number is the difference to the run two before it.
    Source: cocodataset/cocoapi, common/maskApi.c.
    """
    characters = np.frombuffer(counts.encode("ascii"), dtype=np.uint8).astype(np.int64) - 48
    last = np.flatnonzero(characters < 32)
    first = np.concatenate(([0], last[:-1] + 1))
    digits = last - first + 1
    places = np.arange(characters.size) - np.repeat(first, digits)
    runs: NDArray[np.int64] = np.add.reduceat((characters & 31) << 5 * places, first)
    runs -= np.where(characters[last] & 16, 1 << 5 * digits, 0)
    for start in (1, 2):
        runs[start::2] = np.cumsum(runs[start::2])
    return runs
