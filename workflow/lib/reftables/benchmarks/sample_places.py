"""The pointing part of the bundled sample: questions, pictures and masks in RefSpatial-Bench's raw form.

`location` asks for a thing, `placement` for free ground beside a thing or in a corner, `unseen` for
free ground between two things or beside one that is itself known by its place. `step` counts the
conditions a question states, as the benchmark's steps count its reasoning.
"""

import json
from collections.abc import Sequence
from itertools import combinations, product
from math import hypot
from random import Random
from typing import NamedTuple

from PIL import Image

from reftables.benchmarks.sample_expressions import Expression, expressions, names
from reftables.benchmarks.sample_scenes import Outline, Scene, Thing, draw_mask, draw_scene, encode_image, random_scene

FOLDERS = {"location": "Location", "placement": "Placement", "unseen": "Unseen"}
PER_SPLIT = 12
SUFFIX = (
    "Answer with a list of tuples, [(x1, y1), ...]: x and y are shares of the image's width and height, "
    "from 0 to 1, of points that meet the description."
)

_MOST_STEPS = 5
_FREE = 0.7  # share of an area that must be free of things, or nobody would call it free
_KEEP_OFF = 2  # pixels around a thing that count as taken


class Question(NamedTuple):
    """What is asked for and where it is: inside the outlines, outside the things if it is free ground."""

    object: str
    inside: Sequence[Outline]
    steps: int
    kind: str  # how the thing or the ground is described
    free: bool


def points_files(seed: int, root: str) -> dict[str, bytes]:
    """Path to content of all files below `root`."""
    files: dict[str, bytes] = {}
    for split, folder in FOLDERS.items():
        rows = []
        for number in range(PER_SPLIT):
            rng = Random(f"{seed} points {split} {number}")
            scene, question = _random_question(rng, split)
            taken = [_around(thing) for thing in scene.things] if question.free else []
            mask = draw_mask(question.inside, scene.size_wh, taken)
            files[f"{root}/{folder}/image/{number}.jpg"] = encode_image(draw_scene(scene), "JPEG", quality=95)
            files[f"{root}/{folder}/mask/{number}.png"] = encode_image(mask, "PNG")
            rows.append(_row(number, split, question))
        text = json.dumps(rows, indent=2, ensure_ascii=False) + "\n"
        files[f"{root}/{folder}/question.json"] = text.encode()
    return files


def _row(number: int, split: str, question: Question) -> dict[str, str | int]:
    return {
        "id": number,
        "object": question.object,
        "prompt": f"Point to {question.object}.",
        "suffix": SUFFIX,
        "rgb_path": f"image/{number}.jpg",
        "mask_path": f"mask/{number}.png",
        "category": split,
        "step": question.steps,
    }


def _random_question(rng: Random, split: str) -> tuple[Scene, Question]:
    while True:
        scene = random_scene(rng, count=rng.randint(3, 4))
        questions = {"location": _locations, "placement": _placements, "unseen": _unseen}[split](rng, scene)
        if questions:
            # A kind first, then a question: some kinds have many and would crowd out the rest.
            kind = rng.choice(sorted({question.kind for question in questions}))
            return scene, rng.choice([question for question in questions if question.kind == kind])


def _locations(rng: Random, scene: Scene) -> list[Question]:
    target = rng.randrange(len(scene.things))
    return [
        Question(
            f"the {expression.text}", scene.things[target].outlines(), expression.steps, expression.kind, free=False
        )
        for expression in expressions(scene, target)
        if expression.steps <= _MOST_STEPS
    ]


def _placements(rng: Random, scene: Scene) -> list[Question]:
    corners = [
        Question(f"the free ground in the {name} corner", [area], 1, "corner", free=True)
        for name, area in _corners(scene).items()
        if all(_clear(area, thing) for thing in scene.things)
    ]
    return corners + _beside_any(scene, "name") + _beside_any(scene, "place")


def _unseen(rng: Random, scene: Scene) -> list[Question]:
    return _between(scene) + _beside_any(scene, "place")


def _beside_any(scene: Scene, kind: str) -> list[Question]:
    """Free ground beside every thing, for each of its expressions of one kind."""
    return [
        question
        for index in range(len(scene.things))
        for expression in expressions(scene, index)
        if expression.kind == kind and expression.steps < _MOST_STEPS
        for question in _beside(scene, expression)
    ]


def _corners(scene: Scene) -> dict[str, Outline]:
    width, height = scene.width * 0.3, scene.height * 0.3
    columns = {"left": 0.0, "right": scene.width - width}
    rows = {"top": 0.0, "bottom": scene.height - height}
    return {
        f"{row} {column}": [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]
        for (row, y), (column, x) in product(rows.items(), columns.items())
    }


def _clear(area: Outline, thing: Thing) -> bool:
    (left, top), (right, bottom) = area[0], area[2]
    return thing.right <= left or thing.left >= right or thing.bottom <= top or thing.top >= bottom


def _beside(scene: Scene, expression: Expression) -> list[Question]:
    """Free ground next to a thing: as wide as the thing, and reaching as far as the thing is long."""
    thing = scene.things[expression.target]
    left, top, right, bottom, side = thing.left, thing.top, thing.right, thing.bottom, thing.side
    areas = {
        "to the left of": (max(0, left - side), top, left, bottom),
        "to the right of": (right, top, min(scene.width, right + side), bottom),
        "above": (left, max(0, top - side), right, top),
        "below": (left, bottom, right, min(scene.height, bottom + side)),
    }
    return [
        Question(
            f"the free ground {where} the {expression.text}", [area], expression.steps + 1, expression.kind, free=True
        )
        for where, (x0, y0, x1, y1) in areas.items()
        if (x1 - x0) * (y1 - y0) >= side * side / 2
        and _is_free(scene, area := [(x0, y0), (x1, y0), (x1, y1), (x0, y1)])
    ]


def _between(scene: Scene) -> list[Question]:
    """Free ground between two things: a band from one to the other, as wide as the smaller one."""
    found = []
    for (one, name), (other, other_name) in combinations(names(scene).items(), 2):
        area = _band(scene.things[one], scene.things[other])
        steps = name.conditions + other_name.conditions + 1
        if steps <= _MOST_STEPS and area and _is_free(scene, area):
            text = f"the free ground between the {name.text} and the {other_name.text}"
            found.append(Question(text, [area], steps, "between", free=True))
    return found


def _band(one: Thing, other: Thing) -> Outline | None:
    (x0, y0), (x1, y1) = one.centre_xy, other.centre_xy
    length = hypot(x1 - x0, y1 - y0)
    reach, half = (one.side + other.side) / 2, min(one.side, other.side) / 2
    if length < reach + 12:  # hardly any ground between them
        return None
    along, across = ((x1 - x0) / length, (y1 - y0) / length), ((y0 - y1) / length, (x1 - x0) / length)
    starts = one.side / 2, length - other.side / 2
    corners = ((starts[0], -half), (starts[1], -half), (starts[1], half), (starts[0], half))
    return [
        (round(x0 + d * along[0] + s * across[0], 2), round(y0 + d * along[1] + s * across[1], 2)) for d, s in corners
    ]


def _is_free(scene: Scene, area: Outline) -> bool:
    whole = _count(draw_mask([area], scene.size_wh))
    left = _count(draw_mask([area], scene.size_wh, [_around(thing) for thing in scene.things]))
    return left >= _FREE * whole


def _count(mask: Image.Image) -> int:
    return mask.histogram()[255]


def _around(thing: Thing) -> Outline:
    left, top = thing.left - _KEEP_OFF, thing.top - _KEEP_OFF
    right, bottom = thing.right + _KEEP_OFF, thing.bottom + _KEEP_OFF
    return [(left, top), (right, top), (right, bottom), (left, bottom)]
