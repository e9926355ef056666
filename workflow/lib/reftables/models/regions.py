"""Coloured regions of an image, by simple rules: what is colourful, of what hue, in one piece.

A pixel belongs to a thing where its channels differ enough; grey ground, road and sky do not. Its
colour is the nearest named hue: mixed with grey at an edge, or washed out by JPEG, a colour keeps its
hue. Pieces of one colour are told apart where empty rows or columns lie between them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reftables.errors import DataError
from reftables.pictures import PictureError, load_rgb

HUES = {"red": 0, "orange": 29, "yellow": 53, "green": 130, "cyan": 185, "blue": 220, "purple": 279, "pink": 325}
SHAPES = {"triangle": 0.5, "circle": 0.785, "square": 1.0}  # the share of its bounding box that a shape fills

_COLOURFUL = 75  # least difference of the largest and the smallest channel, of 255
_LEAST_AREA = 0.0006  # share of the image; smaller regions are noise

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Region:
    """One piece of one colour: its pixels are those of `mask` at `left`, `top` of the image."""

    colour: str
    left: int
    top: int
    mask: Mask

    @property
    def box_xyxy(self) -> tuple[int, int, int, int]:
        height, width = self.mask.shape
        return self.left, self.top, self.left + width, self.top + height

    @property
    def centre_xy(self) -> tuple[float, float]:
        x0, y0, x1, y1 = self.box_xyxy
        return (x0 + x1) / 2, (y0 + y1) / 2

    @property
    def area(self) -> int:
        return int(np.count_nonzero(self.mask))

    @property
    def shape(self) -> str:
        """The shape that fills about the same share of its box."""
        fill = self.area / self.mask.size
        return min(SHAPES, key=lambda name: abs(SHAPES[name] - fill))

    def full_mask(self, size_wh: tuple[int, int]) -> Mask:
        """The region in the whole image, (height, width)."""
        x0, y0, x1, y1 = self.box_xyxy
        full = np.zeros((size_wh[1], size_wh[0]), dtype=np.bool_)
        full[y0:y1, x0:x1] = self.mask
        return full


def read_image(path: str) -> NDArray[np.uint8]:
    """The pixels of an image file, (height, width, 3) RGB."""
    try:
        return np.asarray(load_rgb(path))
    except PictureError as error:
        raise DataError(f"{path}: no such image, or none that can be read ({error}). Get it anew.") from error


def find_regions(pixels: NDArray[np.uint8]) -> list[Region]:
    """The coloured regions of (height, width, 3) RGB pixels, largest first."""
    colours = _nearest_hues(pixels)
    least = _LEAST_AREA * colours.size
    regions = [
        Region(name, x0, y0, colours[y0:y1, x0:x1] == number)
        for number, name in enumerate(HUES)
        for x0, y0, x1, y1 in _pieces(colours == number)
    ]
    return sorted((region for region in regions if region.area >= least), key=lambda region: -region.area)


def _nearest_hues(pixels: NDArray[np.uint8]) -> NDArray[np.int8]:
    """The number of the nearest named hue of each pixel, (height, width); -1 where it has hardly any colour."""
    # By channel: numpy is slow along an axis of three.
    red, green, blue = (pixels[:, :, channel] for channel in range(3))
    largest = np.maximum(np.maximum(red, green), blue)
    chroma = largest - np.minimum(np.minimum(red, green), blue)
    numbers = np.full(chroma.shape, -1, dtype=np.int8)
    inside = chroma >= _COLOURFUL
    r, g, b, top, span = (channel[inside].astype(np.float32) for channel in (red, green, blue, largest, chroma))
    degrees = 60 * np.where(top == r, (g - b) / span, np.where(top == g, 2 + (b - r) / span, 4 + (r - g) / span))
    away = np.abs(degrees[:, None] - np.array(list(HUES.values()), dtype=np.float32)) % 360
    numbers[inside] = np.minimum(away, 360 - away).argmin(axis=1)
    return numbers


def _pieces(mask: Mask) -> Iterator[tuple[int, int, int, int]]:
    """Boxes (xyxy) of the parts of a mask that empty rows or columns separate, cut again until none do."""
    todo = [(0, 0, mask.shape[1], mask.shape[0])]
    while todo:
        x0, y0, x1, y1 = todo.pop()
        part = mask[y0:y1, x0:x1]
        rows, columns = (_runs(np.logical_or.reduce(part, axis=axis)) for axis in (1, 0))
        parts = [(x0 + a, y0 + c, x0 + b, y0 + d) for c, d in rows for a, b in columns]
        if parts == [(x0, y0, x1, y1)]:
            yield x0, y0, x1, y1
        else:
            todo += parts


def _runs(filled: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Begin and end of each run of True."""
    edges = np.flatnonzero(np.diff(filled, prepend=False, append=False))
    return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]
