"""The six kinds of SURDS questions, built from its metadata.

Every two objects of one photograph are asked about by distance, left-right and front-back order; then
as many photographs of a single object are drawn and asked about its yaw, place and depth. One generator
with a fixed seed serves all draws, so their order is part of the benchmark.

Source: XiandaGuo/Drive-MLLM, hfdata_to_VQA.py.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypedDict

KINDS = ("yaw", "xy2d", "depth", "distance", "left_right", "front_behind")
SEED = 42

DIAGONALS = ("Northeast", "Southeast", "Northwest", "Southwest")
CARDINALS = ("East", "South", "West", "North")
OPPOSITE = {
    "North": "South",
    "East": "West",
    "South": "North",
    "West": "East",
    "Northeast": "Southwest",
    "Southeast": "Northwest",
    "Southwest": "Northeast",
    "Northwest": "Southeast",
}
SAME = "Almost the same"
SAME_DEPTH = "Almost the same in terms of front-back position"


class Record(TypedDict):
    """One photograph, a line of the metadata; every list has one entry an object."""

    file_name: str
    descs: list[str]
    distances: list[float]  # metres
    xy2Ds: list[list[float]]  # pixels
    depths: list[float]  # metres
    bboxes2D: list[list[float]]  # xyxy, pixels
    yaw_descs: list[str]


@dataclass(frozen=True, slots=True)
class Unit:
    """What is scored as one: a single question, or two complementary ones."""

    number: int  # from 0 in each kind
    source_id: str
    file_name: str
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question: what fills the slots of its template, and what is right."""

    unit: Unit
    variant: str | None = None  # what tells the two questions of a unit apart
    arguments: tuple[str, ...]
    options: tuple[str, ...] | None = None
    answer: str
    bbox_xyxy: tuple[float, ...] | None = None


def build_questions(records: Sequence[Record]) -> dict[str, list[Question]]:
    """All questions by kind, in the benchmark's order; a pure function of `records`.

    ValueError where fewer photographs of a single object are there than pairs of objects.
    """
    questions: dict[str, list[Question]] = {kind: [] for kind in KINDS}
    pairs = [
        (record, first, second) for record in records for first, second in combinations(range(len(record["descs"])), 2)
    ]
    for number, (record, first, second) in enumerate(pairs):
        pair = _Pair(number, record, first, second)
        questions["distance"] += _ask_distance(pair)
        questions["left_right"] += _ask_left_right(pair)
        questions["front_behind"] += _ask_front_behind(pair)

    rng = random.Random(SEED)
    singles = [record for record in records if len(record["descs"]) == 1]
    for number, index in enumerate(sorted(rng.sample(range(len(singles)), len(pairs)))):
        record = singles[index]
        unit = Unit(number, f"{record['file_name']}#0", record["file_name"], record["descs"][0])
        questions["yaw"] += _ask_yaw(unit, record, rng)
        questions["xy2d"].append(_ask_xy2d(unit, record))
        questions["depth"].append(_ask_depth(unit, record, rng))
    return questions


class _Pair:
    """Two objects of one photograph, and how questions name them."""

    def __init__(self, number: int, record: Record, first: int, second: int) -> None:
        self.record, self.first, self.second = record, first, second
        one, other = record["descs"][first], record["descs"][second]
        source_id = f"{record['file_name']}#{first}-{second}"
        self.unit = Unit(number, source_id, record["file_name"], f"{one} and {other}")
        self.objects = (f"the {one}", f"the {other}")
        self.options = (self.objects[0].capitalize(), self.objects[1].capitalize())

    def of_both(self, values: Sequence[float]) -> tuple[float, float]:
        return values[self.first], values[self.second]

    def ordered(self, value: float, other_value: float, *, same: bool) -> tuple[str, str]:
        """The option of the smaller value, then that of the larger; neither where they count as the same."""
        if same:
            return SAME, SAME
        return self.options if value < other_value else (self.options[1], self.options[0])


def _ask_distance(pair: _Pair) -> list[Question]:
    metres, other_metres = pair.of_both(pair.record["distances"])
    answers = pair.ordered(metres, other_metres, same=abs(metres - other_metres) <= 1)
    return [
        Question(
            unit=pair.unit,
            variant=variant,
            arguments=(*pair.objects, variant, *pair.options),
            options=(*pair.options, SAME),
            answer=answer,
        )
        for variant, answer in zip(("closer", "farther"), answers, strict=True)
    ]


def _ask_left_right(pair: _Pair) -> list[Question]:
    x, other_x = pair.of_both([x for x, _ in pair.record["xy2Ds"]])
    answers = pair.ordered(x, other_x, same=abs(x - other_x) < 100)
    return [
        Question(
            unit=pair.unit,
            variant=variant,
            arguments=(variant, *pair.objects, *pair.options),
            options=(*pair.options, SAME),
            answer=answer,
        )
        for variant, answer in zip(("left", "right"), answers, strict=True)
    ]


def _ask_front_behind(pair: _Pair) -> list[Question]:
    """Whether the first object is the deeper one: "in front of" means farther from the camera."""
    depth, other_depth = pair.of_both(pair.record["depths"])
    if abs(depth - other_depth) < 0.5:
        answers = (SAME_DEPTH, SAME_DEPTH)
    else:
        answers = ("Yes", "No") if depth > other_depth else ("No", "Yes")
    one, other = pair.objects
    return [
        Question(
            unit=pair.unit,
            variant=variant,
            arguments=(one, variant, other),
            options=("Yes", "No", SAME_DEPTH),
            answer=answer,
        )
        for variant, answer in zip(("in front of", "behind"), answers, strict=True)
    ]


def _ask_yaw(unit: Unit, record: Record, rng: random.Random) -> list[Question]:
    # Both lists are drawn whichever is used.
    diagonals = rng.sample(DIAGONALS, 4)
    cardinals = rng.sample(CARDINALS, 4)
    yaw = record["yaw_descs"][0]
    options = tuple(diagonals if yaw in DIAGONALS else cardinals)
    return [
        Question(
            unit=unit,
            variant=camera,
            arguments=(camera, f"the {unit.expression}", *options),
            options=options,
            answer=answer,
        )
        for camera, answer in (("North", yaw), ("South", OPPOSITE[yaw]))
    ]


def _ask_xy2d(unit: Unit, record: Record) -> Question:
    return Question(
        unit=unit,
        arguments=(f"the {unit.expression}",),
        answer=str(record["xy2Ds"][0]),
        bbox_xyxy=tuple(record["bboxes2D"][0]),
    )


def _ask_depth(unit: Unit, record: Record, rng: random.Random) -> Question:
    texts = [_range_text(*metres) for metres in _depth_ranges(record["depths"][0], rng)]
    options = tuple(rng.sample(texts, 3))
    return Question(
        unit=unit,
        arguments=(f"the {unit.expression}", *options),
        options=options,
        answer=texts[0],
    )


_Range = tuple[int, int]  # metres, lower and upper end


def _depth_ranges(depth: float, rng: random.Random) -> tuple[_Range, _Range, _Range]:
    """The range around `depth` and two wrong ones, built outward from it."""
    length = rng.uniform(6, 7)
    right = (max(1, round(depth - length / 2)), round(depth + length / 2))
    if depth < 7:
        next_up = _range_above(right, rng)
        return right, next_up, _range_above(next_up, rng)
    next_down = _range_below(right, rng)
    if depth > 15:
        return right, next_down, _range_below(next_down, rng)
    return right, next_down, _range_above(right, rng)


def _range_above(neighbour: _Range, rng: random.Random) -> _Range:
    lower = neighbour[1] + rng.randint(1, 2)
    return lower, lower + rng.randint(3, 4)


def _range_below(neighbour: _Range, rng: random.Random) -> _Range:
    upper = neighbour[0] - rng.randint(1, 2)
    return max(1, upper - rng.randint(3, 4)), upper


def _range_text(lower: int, upper: int) -> str:
    return f"Between {lower} {_metres(lower)} and {upper} {_metres(upper)}"


def _metres(count: int) -> str:
    return "meter" if count <= 1 else "meters"
