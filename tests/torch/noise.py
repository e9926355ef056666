"""Requests about images that are noise: untaught models tell them apart all the same."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from reftables.rows import Request


def draw_requests(folder: Path, sizes_wh: Sequence[tuple[int, int]], texts: Sequence[str]) -> list[Request]:
    """Every text of every image, images in turn."""
    draw = np.random.default_rng(0)
    for number, (width, height) in enumerate(sizes_wh):
        noise = draw.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{number}.png")
    pairs = [(number, text) for text in texts for number in range(len(sizes_wh))]
    return [Request(id_, str(folder / f"{number}.png"), text) for id_, (number, text) in enumerate(pairs)]
