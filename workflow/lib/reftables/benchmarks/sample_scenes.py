"""The drawn scenes of the bundled sample: coloured shapes on grey, and their outlines.

Coordinates are pixels of the image, continuous: pixel i spans i to i + 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from random import Random

from PIL import Image, ImageDraw

Outline = Sequence[tuple[float, float]]  # the corners of one closed polygon

SHAPES = ("circle", "square", "triangle")
DOTS = "dots"  # nine little discs, annotated as a crowd
COLOURS = {
    "red": (214, 39, 40),
    "orange": (247, 143, 30),
    "yellow": (236, 212, 32),
    "green": (44, 160, 64),
    "blue": (41, 98, 214),
    "purple": (148, 62, 196),
}
SIZES_WH = ((160, 120), (180, 120), (200, 150), (240, 160), (240, 180), (120, 160), (120, 180), (150, 200))
# The side of a thing as a share of the image's shorter side. Small ones are still four cells of a
# 32x32 grid wide, so that a perfect answer in patch indices overlaps them by more than half.
SIDES = {"small": (0.17, 0.20), "large": (0.33, 0.46)}

_OVERSAMPLING = 4  # drawn this much larger, then averaged: smooth edges where the outlines are
_CIRCLE_CORNERS = 40
_POST_RGB = (104, 104, 108)
_GAP = 5  # pixels between the boxes of two things, and between a thing and the border


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """One object. Its bounding box is a square; a post may hide the columns between `hidden`."""

    shape: str
    colour: str
    size: str
    left: int
    top: int
    side: int
    hidden: tuple[int, int] | None = None

    @property
    def right(self) -> int:
        return self.left + self.side

    @property
    def bottom(self) -> int:
        return self.top + self.side

    @property
    def centre_xy(self) -> tuple[float, float]:
        return self.left + self.side / 2, self.top + self.side / 2

    def outlines(self) -> list[Outline]:
        """The polygons of its visible parts."""
        if self.hidden:
            return [
                _rectangle(self.left, self.top, self.hidden[0], self.bottom),
                _rectangle(self.hidden[1], self.top, self.right, self.bottom),
            ]
        match self.shape:
            case "circle":
                return [_disc(*self.centre_xy, self.side / 2)]
            case "triangle":
                return [[(self.left, self.bottom), (self.left + self.side / 2, self.top), (self.right, self.bottom)]]
            case "dots":
                return self._discs()
        return [_rectangle(self.left, self.top, self.right, self.bottom)]

    def _discs(self) -> list[Outline]:
        radius = self.side / 8
        steps = (radius, self.side / 2, self.side - radius)
        return [_disc(self.left + x, self.top + y, radius) for y in steps for x in steps]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One picture: things that don't touch, on a grey ground."""

    width: int
    height: int
    ground: int  # grey level
    things: tuple[Thing, ...]

    @property
    def size_wh(self) -> tuple[int, int]:
        return self.width, self.height


def _rectangle(left: float, top: float, right: float, bottom: float) -> Outline:
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def _disc(x: float, y: float, radius: float) -> Outline:
    angles = [2 * math.pi * corner / _CIRCLE_CORNERS for corner in range(_CIRCLE_CORNERS)]
    # Rounded, so that the last digits of a platform's sine never reach a file.
    return [(round(x + radius * math.cos(a), 2), round(y + radius * math.sin(a), 2)) for a in angles]


def random_scene(rng: Random, *, count: int, first: str | None = None) -> Scene:
    """A scene of `count` things; `first` makes its first one `dots` or a `post`-crossed square, large."""
    while True:
        width, height = rng.choice(SIZES_WH)
        # Few colours and shapes, so that most expressions need more than one word.
        colours, shapes = rng.sample(sorted(COLOURS), 3), rng.sample(SHAPES, 2)
        things: list[Thing] = []
        for _ in range(20 * count):
            thing = _random_thing(rng, (width, height), colours, shapes, first if not things else None)
            if all(_apart(thing, other) for other in things):
                things.append(thing)
            if len(things) == count:
                return Scene(width=width, height=height, ground=rng.randint(196, 232), things=tuple(things))


def _random_thing(
    rng: Random, size_wh: tuple[int, int], colours: list[str], shapes: list[str], special: str | None
) -> Thing:
    size = "large" if special else rng.choice(sorted(SIDES))
    side = round(min(size_wh) * rng.uniform(*SIDES[size]))
    left, top = (rng.randint(_GAP, extent - side - _GAP) for extent in size_wh)
    middle = left + side // 2
    return Thing(
        shape={None: rng.choice(shapes), "dots": DOTS, "post": "square"}[special],
        colour=rng.choice(colours),
        size=size,
        left=left,
        top=top,
        side=side,
        hidden=(middle - side // 10, middle + side // 10) if special == "post" else None,
    )


def _apart(one: Thing, other: Thing) -> bool:
    return (
        one.right + _GAP <= other.left
        or other.right + _GAP <= one.left
        or one.bottom + _GAP <= other.top
        or other.bottom + _GAP <= one.top
    )


def draw_scene(scene: Scene) -> Image.Image:
    """The picture, RGB."""
    width, height = scene.size_wh
    image = Image.new("RGB", (width * _OVERSAMPLING, height * _OVERSAMPLING), (scene.ground,) * 3)
    draw = ImageDraw.Draw(image)
    for thing in scene.things:
        _fill(draw, thing.outlines(), COLOURS[thing.colour])
        if thing.hidden:
            _fill(draw, [_rectangle(thing.hidden[0], thing.top - 3, thing.hidden[1], thing.bottom + 3)], _POST_RGB)
    return image.reduce(_OVERSAMPLING)


def draw_mask(inside: Sequence[Outline], size_wh: tuple[int, int], outside: Sequence[Outline] = ()) -> Image.Image:
    """Grey-scale picture, 255 in the pixels of which `inside` without `outside` covers at least half, else 0."""
    mask = Image.new("L", (size_wh[0] * _OVERSAMPLING, size_wh[1] * _OVERSAMPLING), 0)
    draw = ImageDraw.Draw(mask)
    _fill(draw, inside, 255)
    _fill(draw, outside, 0)
    return mask.reduce(_OVERSAMPLING).point([0] * 128 + [255] * 128)


def _fill(draw: ImageDraw.ImageDraw, outlines: Sequence[Outline], colour: int | tuple[int, int, int]) -> None:
    for outline in outlines:
        # Pillow paints the border pixels too: half a pixel less puts the edge where the outline is.
        draw.polygon([(x * _OVERSAMPLING - 0.5, y * _OVERSAMPLING - 0.5) for x, y in outline], fill=colour)


def encode_image(image: Image.Image, form: str, **options: int | bool) -> bytes:
    """The bytes of the image file."""
    buffer = BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()
