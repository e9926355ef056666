"""Training batches: scenes and expressions of the bundled sample's generator, packed for one pass.

A scene is drawn as the sample draws it, then squashed to 64x64. A packed sequence holds the image once
and several expressions after it, each with its answer; a block mask keeps them from seeing each other.
Every scene is used four times, always with other expressions: as drawn, later mirrored, with left and right
exchanged in its texts, later again as drawn, and mirrored.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from reftables.benchmarks.sample_expressions import choose
from reftables.benchmarks.sample_scenes import DOTS, Scene, draw_scene, random_scene
from reftables.kosmos import encode_boxes

GRID = 32  # cells of the answers' grid along a side
SIDE = 64  # pixels of a training image along a side
PROCESSOR_SIDE = 224  # pixels of what the processor makes of any image
EXPRESSIONS = 8  # in a packed sequence

_USES = 4  # of a scene
_APART = 24  # batches between two uses
_MIRRORED = {"left": "right", "right": "left", "leftmost": "rightmost", "rightmost": "leftmost"}
# Of 24 scenes, as in the sample: four whose first thing a post cuts in two, one with dots.
_FIRSTS = ("post", "post", "post", "post", "dots", *[None] * 19)


class Referral(NamedTuple):
    """A text and the box it means, xyxy in units of the image."""

    text: str
    box_xyxy: tuple[float, float, float, float]


class Example(NamedTuple):
    """A scene with texts: `image` is (64, 64, 3), RGB."""

    image: NDArray[np.uint8]
    referrals: Sequence[Referral]


class Batch(NamedTuple):
    """Packed sequences of `n` images, `m` expressions each, padded to `length` tokens."""

    images: Tensor  # bytes, (n, 64, 64, 3)
    tokens: Tensor  # (n, length)
    blocks: Tensor  # (n, length): 0 the image, then the number of the expression, -1 padding
    places: Tensor  # (n, length): how many tokens stand before this one in its own prompt
    objects: Tensor  # (n, m): where each <object> stands; the two cells follow
    cells: Tensor  # (n, m, 2): the true pair


def draw_example(rng: Random, count: int) -> Example:
    """A random scene of two to five things with `count` texts, kinds mixed as in the sample."""
    while True:
        scene = random_scene(rng, count=rng.randint(2, 5), first=rng.choice(_FIRSTS))
        referrals = _referrals(rng, scene, count)
        if referrals:
            rng.shuffle(referrals)
            # A scene of two things may have fewer texts than asked for.
            repeated = [referrals[index % len(referrals)] for index in range(count)]
            return Example(squash(draw_scene(scene)), repeated)


def _referrals(rng: Random, scene: Scene, count: int) -> list[Referral]:
    each = -(-count // len(scene.things)) + 1
    return [
        Referral(expression.text, _unit_box(scene, target))
        for target, thing in enumerate(scene.things)
        for expression in choose(rng, scene, target, each // 2 if thing.shape == DOTS else each)
    ]


def _unit_box(scene: Scene, target: int) -> tuple[float, float, float, float]:
    thing, (width, height) = scene.things[target], scene.size_wh
    return thing.left / width, thing.top / height, thing.right / width, thing.bottom / height


def squash(image: Image.Image) -> NDArray[np.uint8]:
    """An image as the model sees it: the processor's bicubic 224x224, then the mean of areas, (64, 64, 3)."""
    square = image.resize((PROCESSOR_SIDE, PROCESSOR_SIDE), Image.Resampling.BICUBIC)
    return np.asarray(square.resize((SIDE, SIDE), Image.Resampling.BOX))


def mirror(example: Example) -> Example:
    """The scene seen in a mirror: left is right, in picture, boxes and words."""
    return Example(
        np.asarray(ImageOps.mirror(Image.fromarray(example.image))),
        [
            Referral(" ".join(_MIRRORED.get(word, word) for word in text.split()), (1 - right, top, 1 - left, bottom))
            for text, (left, top, right, bottom) in example.referrals
        ],
    )


@lru_cache(maxsize=(_USES - 1) * _APART + 1)
def _drawn(seed: int, number: int, scenes: int) -> tuple[Example, ...]:
    rng = Random(f"kosmos-2-tiny {seed} {number}")
    return tuple(draw_example(rng, _USES * EXPRESSIONS) for _ in range(scenes))


def examples_of(seed: int, step: int, size: int) -> list[Example]:
    """The examples of one training step: a quarter of them new, the others drawn earlier."""
    examples = []
    for use in range(_USES):
        texts = slice(use * EXPRESSIONS, (use + 1) * EXPRESSIONS)
        for scene in _drawn(seed, step - use * _APART, size // _USES):
            example = Example(scene.image, scene.referrals[texts])
            examples.append(mirror(example) if use % 2 else example)
    return examples


def pack(examples: Sequence[Example], ids: Mapping[str, int], prefix: Sequence[int]) -> Batch:
    """The batch of `examples`; `ids` are those of words (with their leading mark) and tags, `prefix` the image's."""
    rows = [_pack_row(example, ids, prefix) for example in examples]
    length = max(len(row.tokens) for row in rows)

    def padded(lists: Sequence[list[int]], filler: int) -> Tensor:
        return torch.tensor([values + [filler] * (length - len(values)) for values in lists])

    return Batch(
        images=torch.from_numpy(np.stack([example.image for example in examples])),
        tokens=padded([row.tokens for row in rows], ids["<pad>"]),
        blocks=padded([row.blocks for row in rows], -1),
        places=padded([row.places for row in rows], 0),
        objects=torch.tensor([row.objects for row in rows]),
        cells=torch.tensor([row.cells for row in rows]),
    )


class _Row(NamedTuple):
    tokens: list[int]
    blocks: list[int]
    places: list[int]
    objects: list[int]
    cells: list[list[int]]


def _pack_row(example: Example, ids: Mapping[str, int], prefix: Sequence[int]) -> _Row:
    boxes_xyxy = np.array([referral.box_xyxy for referral in example.referrals])
    pairs = encode_boxes(boxes_xyxy, GRID).tolist()
    row = _Row(list(prefix), [0] * len(prefix), list(range(len(prefix))), [], pairs)
    for number, (referral, pair) in enumerate(zip(example.referrals, pairs, strict=True), start=1):
        words = [f"▁{word}" for word in referral.text.split()]
        cells = [f"<patch_index_{cell:04d}>" for cell in pair]
        names = ["<grounding>", "<phrase>", *words, "</phrase>", "<object>", *cells, "</object>", "</s>"]
        row.objects.append(len(row.tokens) + len(words) + 3)
        row.tokens.extend(ids[name] for name in names)
        row.blocks.extend([number] * len(names))
        row.places.extend(range(len(prefix), len(prefix) + len(names)))
    return row
