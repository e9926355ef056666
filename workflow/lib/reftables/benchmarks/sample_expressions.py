"""Referring expressions of the drawn scenes: every text singles out exactly one thing, clearly.

Three kinds: by name alone ("small red circle"), by place among its like ("leftmost square"), by
relation to another thing ("circle above the blue square").
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product
from random import Random
from typing import NamedTuple

from reftables.benchmarks.sample_scenes import COLOURS, DOTS, SHAPES, Scene, Thing


class Noun(NamedTuple):
    """What a thing is called; a part that is None is left unsaid."""

    size: str | None = None
    colour: str | None = None
    shape: str | None = None

    @property
    def text(self) -> str:
        words = [word for word in self if word]
        return " ".join(words if self.shape else [*words, "object"])

    @property
    def conditions(self) -> int:
        return sum(word is not None for word in self)

    def fits(self, thing: Thing) -> bool:
        said = zip(self, (thing.size, thing.colour, thing.shape), strict=True)
        return all(word is None or word == value for word, value in said)


class Expression(NamedTuple):
    """A text that means one thing of a scene."""

    text: str
    target: int  # index of the thing
    kind: str  # name, place or relation
    steps: int  # conditions it states


class _Side(NamedTuple):
    """A direction: the key that is smallest for the thing furthest that way, and its words."""

    key: Callable[[Thing], float]
    axis: int
    pair: tuple[str, ...]  # of two things
    superlative: str
    relations: tuple[str, ...]


SIDES = {
    "left": _Side(
        lambda t: t.centre_xy[0], 0, ("left {}", "{} on the left"), "leftmost {}", ("left of", "to the left of")
    ),
    "right": _Side(
        lambda t: -t.centre_xy[0], 0, ("right {}", "{} on the right"), "rightmost {}", ("right of", "to the right of")
    ),
    "top": _Side(lambda t: t.centre_xy[1], 1, ("top {}", "{} at the top"), "highest {}", ("above",)),
    "bottom": _Side(lambda t: -t.centre_xy[1], 1, ("bottom {}", "{} at the bottom"), "lowest {}", ("below", "under")),
}
_CLEAR = 0.1  # share of the image's extent by which the runner-up must stay behind
_WEIGHTS = {"name": 45, "place": 27, "relation": 28}


def matching(scene: Scene, noun: Noun) -> list[int]:
    """The things a noun fits."""
    return [index for index, thing in enumerate(scene.things) if noun.fits(thing)]


def nouns(thing: Thing) -> list[Noun]:
    """All the nouns that fit a thing, the shortest first. Of dots the size isn't said: theirs or the group's?"""
    parts = {"size": thing.size, "colour": thing.colour, "shape": thing.shape}
    chosen = (keys for length in range(4) for keys in combinations(parts, length))
    return [
        Noun(**{key: parts[key] for key in keys})
        for keys in chosen
        if not (thing.shape == DOTS and "shape" in keys and "size" in keys)
    ]


def names(scene: Scene) -> dict[int, Noun]:
    """The things that a noun with a shape fits alone, each with the shortest such noun."""
    found: dict[int, Noun] = {}
    for index, thing in enumerate(scene.things):
        for noun in nouns(thing):
            if noun.shape and matching(scene, noun) == [index]:
                found.setdefault(index, noun)
    return found


def expressions(scene: Scene, target: int) -> list[Expression]:
    """All expressions of one thing, in a fixed order."""
    return [*_by_name(scene, target), *_by_place(scene, target), *_by_relation(scene, target)]


def _by_name(scene: Scene, target: int) -> Iterator[Expression]:
    for noun in nouns(scene.things[target]):
        if noun.conditions and matching(scene, noun) == [target]:
            yield Expression(noun.text, target, "name", noun.conditions)


def _by_place(scene: Scene, target: int) -> Iterator[Expression]:
    for noun, side in product(nouns(scene.things[target]), SIDES.values()):
        like = matching(scene, noun)
        if len(like) > 1 and _is_outermost(scene, target, like, side):
            texts = (side.superlative, *side.pair) if len(like) == 2 else (side.superlative,)
            for text in texts:
                yield Expression(text.format(noun.text), target, "place", noun.conditions + 1)


def _is_outermost(scene: Scene, target: int, like: Sequence[int], side: _Side) -> bool:
    others = min(side.key(scene.things[index]) for index in like if index != target)
    return side.key(scene.things[target]) + _CLEAR * scene.size_wh[side.axis] <= others


def _by_relation(scene: Scene, target: int) -> Iterator[Expression]:
    for anchor, name in names(scene).items():
        if anchor == target:
            continue
        for noun, side in product(nouns(scene.things[target]), SIDES.values()):
            like = [index for index in matching(scene, noun) if index != anchor]
            if len(like) > 1 and _only_one_beyond(scene, target, like, anchor, side):
                steps = noun.conditions + 1 + name.conditions
                for relation in side.relations:
                    yield Expression(f"{noun.text} {relation} the {name.text}", target, "relation", steps)


def _only_one_beyond(scene: Scene, target: int, like: Sequence[int], anchor: int, side: _Side) -> bool:
    """Whether the target lies wholly beyond the anchor and the centres of all others clearly not."""
    limit = side.key(scene.things[anchor])
    reach = (scene.things[anchor].side + scene.things[target].side) / 2
    others = [side.key(scene.things[index]) for index in like if index != target]
    return side.key(scene.things[target]) + reach <= limit and all(key >= limit for key in others)


def choose(rng: Random, scene: Scene, target: int, count: int) -> list[Expression]:
    """`count` expressions of one thing with different texts, kinds mixed; fewer where it has no more."""
    left = expressions(scene, target)
    chosen: list[Expression] = []
    while left and len(chosen) < count:
        kinds = sorted({expression.kind for expression in left})
        kind = rng.choices(kinds, [_WEIGHTS[kind] for kind in kinds])[0]
        chosen.append(rng.choice([expression for expression in left if expression.kind == kind]))
        left = [expression for expression in left if expression.text != chosen[-1].text]
    return chosen


class GroupExpression(NamedTuple):
    """A text that means several things of a scene, or none."""

    text: str
    targets: tuple[int, ...]


def groups(scene: Scene) -> list[GroupExpression]:
    """Texts that mean two or more things, none of them dots (a crowd is left out of a union by some)."""
    told = dict.fromkeys(noun for thing in scene.things for noun in nouns(thing) if noun.conditions)
    alike = [
        GroupExpression(f"{'both' if len(like) == 2 else 'all'} {noun.text}s", tuple(like))
        for noun in told
        if len(like := matching(scene, noun)) > 1
    ]
    named = names(scene)
    pairs = [
        GroupExpression(f"{named[one].text} and {named[other].text}", (one, other))
        for one, other in combinations(named, 2)
    ]
    return [group for group in alike + pairs if all(scene.things[index].shape != DOTS for index in group.targets)]


def absent(scene: Scene) -> list[GroupExpression]:
    """Names of things the scene doesn't hold, though it may hold their colour or their shape."""
    told = (Noun(colour=colour, shape=shape) for colour, shape in product(sorted(COLOURS), SHAPES))
    return [GroupExpression(noun.text, ()) for noun in told if not matching(scene, noun)]
