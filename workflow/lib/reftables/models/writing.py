"""Geometry to answers: the inverse of the parsers, for backends that answer in whatever format is declared.

Coordinates come in as pixels of the original image, continuous: pixel i spans i to i + 1. Nothing here
needs numpy but the Kosmos notation, because the baselines answer a split in less time than numpy takes
to load.
"""

from collections.abc import Iterable, Sequence
from math import floor
from typing import Any

from reftables.rows import AnswerFormat, Coordinates, Notation, Order

# Enough for the pixel of a point to be read back exactly in images of up to 10,000 pixels a side.
_DECIMALS = {
    Coordinates.UNIT: 4,
    Coordinates.PERCENT: 2,
    Coordinates.PER_MILLE: 1,
    Coordinates.PIXELS: 2,
    Coordinates.RESIZED_PIXELS: 2,
}
_FULL_EXTENT = {Coordinates.UNIT: 1, Coordinates.PERCENT: 100, Coordinates.PER_MILLE: 1000}


def write_box(box_xyxy: Sequence[float], form: AnswerFormat, size_wh: tuple[int, int], *, phrase: str) -> str:
    """The answer that gives one box; `phrase` is the expression, which the Kosmos notation repeats.

    `resized_pixels` are written for a model that saw the image in its own size.
    """
    if form.notation is Notation.KOSMOS:
        return _write_kosmos([box_xyxy], form, size_wh, phrase)
    numbers = ", ".join(_numbers(box_xyxy, form, size_wh))
    match form.notation:
        case Notation.JSON:
            return f'[{{"bbox_2d": [{numbers}]}}]'
        case Notation.BRACKETS:
            return f"[{numbers}]"
        case Notation.TUPLES:
            return f"({numbers})"
        case Notation.GEMINI:
            return f'```json\n[{{"box_2d": [{numbers}]}}]\n```'
    raise ValueError(f"boxes have no {form.notation} notation")


def write_points(
    points_xy: Iterable[Sequence[float]], form: AnswerFormat, size_wh: tuple[int, int], *, phrase: str
) -> str:
    """The answer that gives points. In pixels a point is written as the whole numbers of its pixel.

    In the Kosmos notation a point is the centre of a box, so it moves to the centre of its grid cell; in that of
    Molmo2 to the nearest whole thousandth of the image.
    """
    points_xy = list(points_xy)
    if form.notation is Notation.KOSMOS:
        return _write_kosmos([(x, y, x, y) for x, y in points_xy], form, size_wh, phrase)
    if form.coordinates is Coordinates.PIXELS:
        # The benchmark's tuple parsers take whole pixels only.
        points_xy = [(floor(x), floor(y)) for x, y in points_xy]
    pairs = [_numbers(point, form, size_wh) for point in points_xy]
    texts = [", ".join(pair) for pair in pairs]
    match form.notation:
        case Notation.JSON:
            return "[" + ", ".join(f'{{"point_2d": [{text}]}}' for text in texts) + "]"
        case Notation.BRACKETS:
            return "[" + ", ".join(f"[{text}]" for text in texts) + "]"
        case Notation.TUPLES:
            return "[" + ", ".join(f"({text})" for text in texts) + "]"
        case Notation.GEMINI:
            return "```json\n[" + ", ".join(f'{{"point": [{text}]}}' for text in texts) + "]\n```"
        case Notation.MOLMO:
            # Numbered even where there is one: the benchmark's script reads no other attributes.
            attributes = " ".join(f'x{n}="{x}" y{n}="{y}"' for n, (x, y) in enumerate(pairs, start=1))
            return f"<points {attributes}>points</points>"
        case Notation.MOLMO2:
            triples = [f"{n} {_thousandths(p, size_wh)}" for n, p in enumerate(points_xy, start=1)]
            return f'<points coords="{" ".join(["1", *triples])}">points</points>'
    raise ValueError(f"points have no {form.notation} notation")


def write_choice(answer: str) -> str:
    """An answer to a question of SURDS."""
    return f"<answer>{answer}</answer>"


def write_place(point_xy: Sequence[float]) -> str:
    """An answer to a question of SURDS for a pixel."""
    return write_choice("[" + ", ".join(_trimmed(f"{value:.1f}") for value in point_xy) + "]")


def seen_size(form: AnswerFormat, size_wh: tuple[int, int]) -> tuple[int, int] | None:
    """What a prediction records as the size of the image seen: needed with `resized_pixels`, else None."""
    return size_wh if form.coordinates is Coordinates.RESIZED_PIXELS else None


def _numbers(values_xy: Sequence[float], form: AnswerFormat, size_wh: tuple[int, int]) -> list[str]:
    """Pixels x, y, x, y … as numbers of the format, in its order."""
    if form.coordinates is None:
        raise ValueError(f"the {form.notation} notation needs coordinates")
    full, decimals = _FULL_EXTENT.get(form.coordinates), _DECIMALS[form.coordinates]
    scaled = values_xy if full is None else [v / size_wh[i % 2] * full for i, v in enumerate(values_xy)]
    texts = [f"{value:.{decimals}f}" for value in scaled]
    if form.coordinates is not Coordinates.UNIT:  # a whole number among tuples in unit coordinates means pixels
        texts = [_trimmed(text) for text in texts]
    if form.order is Order.YX:
        texts = [text for x, y in zip(texts[::2], texts[1::2], strict=True) for text in (y, x)]
    return texts


def _thousandths(point_xy: Sequence[float], size_wh: tuple[int, int]) -> str:
    """A point as Molmo2 writes it, in whole thousandths of three digits or more."""
    return " ".join(f"{round(value / side * 1000):03d}" for value, side in zip(point_xy, size_wh, strict=True))


def _trimmed(text: str) -> str:
    """A decimal number without superfluous zeros."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _write_kosmos(
    boxes_xyxy: Sequence[Sequence[float]], form: AnswerFormat, size_wh: tuple[int, int], phrase: str
) -> str:
    import numpy as np

    from reftables.kosmos import encode_boxes, write_answer

    if form.grid is None:
        raise ValueError("the kosmos notation needs a grid")
    unit_boxes = np.array(boxes_xyxy, dtype=np.float64).reshape(-1, 4) / (*size_wh, *size_wh)
    return write_answer(phrase, [(first, second) for first, second in encode_boxes(unit_boxes, form.grid).tolist()])


def box_mask(box_xyxy: Sequence[float], size_wh: tuple[int, int]) -> dict[str, Any]:
    """The RLE of the pixels whose centres lie in a box."""
    width, height = size_wh
    x0, x1 = (min(max(floor(value + 0.5), 0), width) for value in (box_xyxy[0], box_xyxy[2]))
    y0, y1 = (min(max(floor(value + 0.5), 0), height) for value in (box_xyxy[1], box_xyxy[3]))
    if x0 >= x1 or y0 >= y1:
        return empty_mask(size_wh)
    inside, between = y1 - y0, height - (y1 - y0)
    before, after = x0 * height + y0, (width - x1) * height + height - y1
    counts = [before, *[inside, between] * (x1 - x0 - 1), inside] if between else [before, (x1 - x0) * height]
    return {"size": [height, width], "counts": compress_counts([*counts, after] if after else counts)}


def empty_mask(size_wh: tuple[int, int]) -> dict[str, Any]:
    """The RLE of no pixel at all."""
    width, height = size_wh
    return {"size": [height, width], "counts": compress_counts([width * height])}


def compress_counts(counts: Sequence[int]) -> str:
    """COCO's text form of run lengths: from the fourth on the difference to the last but one, five bits a letter.

    Source: cocodataset/cocoapi, common/maskApi.c, rleToString.
    """
    letters = []
    for i, count in enumerate(counts):
        value = count - counts[i - 2] if i > 2 else count
        while True:
            bits, value = value & 0x1F, value >> 5
            last = value == (-1 if bits & 0x10 else 0)
            letters.append(chr(48 + (bits if last else bits | 0x20)))
            if last:
                break
    return "".join(letters)


def expand_counts(text: str) -> list[int]:
    """The run lengths of COCO's text form; the inverse of `compress_counts`."""
    counts: list[int] = []
    value = shift = 0
    for letter in text:
        bits = ord(letter) - 48
        value |= (bits & 0x1F) << shift
        shift += 5
        if not bits & 0x20:
            if bits & 0x10:
                value -= 1 << shift
            counts.append(value + counts[-2] if len(counts) > 2 else value)
            value = shift = 0
    return counts
