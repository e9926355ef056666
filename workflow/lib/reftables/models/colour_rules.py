"""A small grounder that reads the expression and looks at the pixels: honest, and often wrong.

It knows words for colours, three shapes, two sizes and four places, each on its own. It takes the first
colour and the first shape it reads for those of the thing meant, so "circle above the blue square" makes
it look for blue. A word that fits none of the regions left is ignored. It never sees the truth.

Free ground is looked for beside a thing, a little less than its own width from its middle, or in a corner:
"between" says nothing to it. Questions about driving scenes
are answered from where vehicles of the named colours stand, on a flat road; which way one faces it can't
tell.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reftables.models.job import Job
from reftables.models.writing import empty_mask, seen_size, write_box, write_choice, write_place, write_points
from reftables.rows import Prediction, Request, Status, Task

if TYPE_CHECKING:
    from reftables.models.regions import Region

READS_TRUTH = False
LOOKS = True
STORED = False
WRITES_FORMAT = True
TASKS = frozenset(Task)
REQUIRED: frozenset[str] = frozenset()
OPTIONAL: frozenset[str] = frozenset()
EXECUTION: frozenset[str] = frozenset()

COLOURS = {"red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink"}
SHAPES = {"circle": "circle", "ball": "circle", "square": "square", "box": "square", "triangle": "triangle"}
SIZES = {"small": False, "little": False, "tiny": False, "large": True, "big": True}
# Each place as how far a point lies to that side; the largest wins.
PLACES: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("left", "leftmost"), (-1, 0)),
    **dict.fromkeys(("right", "rightmost"), (1, 0)),
    **dict.fromkeys(("top", "upper", "highest", "above"), (0, -1)),
    **dict.fromkeys(("bottom", "lower", "lowest", "below", "under"), (0, 1)),
}
GROUND = {"free", "empty", "vacant", "space", "spot"}

# A camera as on cars: focal length in pixels and height in metres; its horizon is the middle of the image.
_FOCAL, _CAMERA_HEIGHT = 1266.0, 1.5

Point = tuple[float, float]


def answer_files(identity: Mapping[str, Any], *, model: str, benchmark: str, split: str) -> list[str]:
    """None: the answers are made here."""
    return []


def predict(requests: Sequence[Request], job: Job) -> Iterator[Prediction]:
    """One answer a request, image by image: each is opened once."""
    from reftables.models.regions import find_regions, read_image

    by_image: dict[str, list[Request]] = {}
    for request in requests:
        by_image.setdefault(request.image, []).append(request)
    answer = _ANSWERS[job.task]
    for image, asked in by_image.items():
        pixels = read_image(image)
        size_wh = pixels.shape[1], pixels.shape[0]
        regions = find_regions(pixels)
        for request in asked:
            yield answer(request, regions, size_wh, job)


def _box_answer(request: Request, regions: Sequence["Region"], size_wh: tuple[int, int], job: Job) -> Prediction:
    if not regions:
        return Prediction(id=request.id, status=Status.EMPTY)
    box = choose(regions, words_of(request.text)).box_xyxy
    text = write_box(box, job.form, size_wh, phrase=_phrase(request.text))
    return Prediction(id=request.id, status=Status.OK, text=text, image_size=seen_size(job.form, size_wh))


def _point_answer(request: Request, regions: Sequence["Region"], size_wh: tuple[int, int], job: Job) -> Prediction:
    words = words_of(request.text)
    point = _ground(regions, words, size_wh) if GROUND & set(words) else _inside(regions, words)
    if point is None:
        return Prediction(id=request.id, status=Status.EMPTY)
    text = write_points([point], job.form, size_wh, phrase=_phrase(request.text))
    return Prediction(id=request.id, status=Status.OK, text=text, image_size=seen_size(job.form, size_wh))


def _mask_answer(request: Request, regions: Sequence["Region"], size_wh: tuple[int, int], job: Job) -> Prediction:
    from reftables.rle import from_mask  # here, because it brings pycocotools

    words = words_of(request.text)
    colour = _first(words, COLOURS)
    if not regions or (colour and colour not in {region.colour for region in regions}):
        return Prediction(id=request.id, status=Status.OK, rle=empty_mask(size_wh), no_target=True)
    return Prediction(id=request.id, status=Status.OK, rle=from_mask(choose(regions, words).full_mask(size_wh)))


def _question_answer(request: Request, regions: Sequence["Region"], size_wh: tuple[int, int], job: Job) -> Prediction:
    question, _, listed = request.text.partition("\n- ")
    options = [option.removeprefix("- ") for option in listed.split("\n\n")[0].splitlines()]
    words = words_of(question)
    named = [region for word in words if word in COLOURS and (region := _of_colour(regions, word))]
    if not options:
        place = (named or regions)[0].centre_xy if regions else None
        if place is None:
            return Prediction(id=request.id, status=Status.EMPTY)
        return Prediction(id=request.id, status=Status.OK, text=write_place(place))
    answer = _option(options, words, named, size_wh[1] / 2)
    return Prediction(id=request.id, status=Status.OK, text=write_choice(answer))


_ANSWERS: Mapping[Task, Callable[[Request, Sequence["Region"], tuple[int, int], Job], Prediction]] = {
    Task.BOXES: _box_answer,
    Task.POINTS: _point_answer,
    Task.MASKS: _mask_answer,
    Task.ANSWERS: _question_answer,
}


def words_of(text: str) -> list[str]:
    """The words of a text in order, lower case, plurals of known words as the word."""
    words = re.findall(r"[a-z]+", text.lower())
    return [word[:-1] if word[:-1] in SHAPES else word for word in words]


def _phrase(text: str) -> str:
    """The expression of a request, without the tags of a Kosmos prompt."""
    return text.removeprefix("<grounding><phrase>").removesuffix("</phrase>")


def _first(words: Sequence[str], known: "set[str] | Mapping[str, Any]") -> str | None:
    return next((word for word in words if word in known), None)


def choose(regions: Sequence["Region"], words: Sequence[str]) -> "Region":
    """The region that the words mean: of those that fit colour, shape and size, the outermost, else the largest."""
    fitting = list(regions)
    if colour := _first(words, COLOURS):
        fitting = [region for region in fitting if region.colour == colour] or fitting
    if shape := _first(words, SHAPES):
        fitting = [region for region in fitting if region.shape == SHAPES[shape]] or fitting
    if size := _first(words, SIZES):
        limit = (max(region.area for region in regions) * min(region.area for region in regions)) ** 0.5
        fitting = [region for region in fitting if (region.area > limit) is SIZES[size]] or fitting
    if place := _first(words, PLACES):
        x, y = PLACES[place]
        return max(fitting, key=lambda region: x * region.centre_xy[0] + y * region.centre_xy[1])
    return fitting[0]


def _of_colour(regions: Sequence["Region"], colour: str) -> "Region | None":
    return next((region for region in regions if region.colour == colour), None)


def _inside(regions: Sequence["Region"], words: Sequence[str]) -> Point | None:
    """The centre of the pixel of the chosen region that is nearest to its middle."""
    import numpy as np

    if not regions:
        return None
    region = choose(regions, words)
    rows, columns = np.nonzero(region.mask)
    height, width = region.mask.shape
    nearest = int(((columns - width / 2) ** 2 + (rows - height / 2) ** 2).argmin())
    return region.left + int(columns[nearest]) + 0.5, region.top + int(rows[nearest]) + 0.5


def _ground(regions: Sequence["Region"], words: Sequence[str], size_wh: tuple[int, int]) -> Point | None:
    """A point of free ground: in a corner, or beside a thing on the first side that is named, else below it."""
    directions = [PLACES[word] for word in words if word in PLACES]
    if "corner" in words:
        across, down = sum(x for x, _ in directions), sum(y for _, y in directions)
        return size_wh[0] * (0.5 + 0.4 * across), size_wh[1] * (0.5 + 0.4 * down)
    if not regions:
        return None
    region = choose(regions, [word for word in words if word not in PLACES])
    x, y = directions[0] if directions else (0, 1)
    height, width = region.mask.shape
    return region.centre_xy[0] + x * width * 0.8, region.centre_xy[1] + y * height * 0.8


def _option(options: Sequence[str], words: Sequence[str], named: Sequence["Region"], horizon: float) -> str:
    """The option that fits where the named regions stand; the first where nothing decides."""
    if named and options[0].startswith("Between"):
        depth = _depth(named[0], horizon)
        return min(options, key=lambda option: _outside(depth, option))
    if len(named) < 2:
        return options[0]
    one, other = named[:2]
    farther = _depth(one, horizon) > _depth(other, horizon)
    if "behind" in words or "front" in words:
        # In front of the other, seen along the road, is what is farther ahead.
        return options[0 if farther == ("front" in words) else 1]
    if "closer" in words or "farther" in words:
        return options[0 if farther == ("farther" in words) else 1]
    leftmost = one.centre_xy[0] < other.centre_xy[0]
    return options[0 if leftmost == ("left" in words) else 1]


def _depth(region: "Region", horizon: float) -> float:
    """Metres ahead of the point where a region meets a flat road."""
    return _FOCAL * _CAMERA_HEIGHT / max(region.box_xyxy[3] - horizon, 1)


def _outside(depth: float, option: str) -> float:
    """How far a depth lies outside an option's range of metres."""
    numbers = [float(number) for number in re.findall(r"\d+", option)]
    return max(min(numbers) - depth, depth - max(numbers), 0) if numbers else float("inf")
