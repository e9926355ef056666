"""The bundled tiny Kosmos-2 on scenes it never saw: it grounds, but only with the right pixels and words."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import yaml
from PIL import Image, ImageOps
from transformers import Kosmos2ForConditionalGeneration, Kosmos2Processor

from reftables.benchmarks.sample import pictures_of
from reftables.benchmarks.sample_scenes import SHAPES, Scene, Thing, draw_scene, encode_image
from reftables.kosmos import decode_pairs, find_groundings
from reftables.models import kosmos2
from reftables.models.job import Job
from reftables.rows import AnswerFormat, Notation, Request, Task
from reftables.scoring.boxes import paired_iou

pytestmark = pytest.mark.torch

FRESH_SEEDS = (1001, 1002)  # the sample's is 7
GRID = 32
KOSMOS = AnswerFormat(notation=Notation.KOSMOS, coordinates=None, order=None, prompt="kosmos", grid=GRID)


class Case(NamedTuple):
    """An expression of a fresh scene; `box_xyxy` in units of the image."""

    file: bytes
    text: str
    box_xyxy: tuple[float, float, float, float]

    @property
    def image(self) -> Image.Image:
        return Image.open(BytesIO(self.file))


def case_of(scene: Scene, target: int, text: str) -> Case:
    thing, (width, height) = scene.things[target], scene.size_wh
    box_xyxy = (thing.left / width, thing.top / height, thing.right / width, thing.bottom / height)
    return Case(encode_image(draw_scene(scene), "JPEG", quality=95), text, box_xyxy)


@pytest.fixture(scope="module")
def fresh() -> list[Case]:
    pictures = [picture for seed in FRESH_SEEDS for picture in pictures_of(seed)]
    return [case_of(p.scene, e.target, e.text) for p in pictures for sentences in p.sentences for e in sentences]


@pytest.fixture(scope="module")
def folder(repository) -> Path:
    return repository / "models" / "kosmos-2-tiny"


@pytest.fixture(scope="module")
def answers(fresh, repository, tmp_path_factory) -> list[str]:
    """What the configured model answers to the fresh expressions; it reads the images from files, as in a run."""
    overlay = yaml.safe_load((repository / "config" / "torch.yaml").read_text(encoding="utf-8"))
    images = tmp_path_factory.mktemp("images")
    requests = []
    for number, case in enumerate(fresh):
        path = images / f"{number}.jpg"
        path.write_bytes(case.file)
        requests.append(Request(number, str(path), prompt(case.text)))
    job = Job(
        model="kosmos-2-tiny",
        benchmark="fresh",
        split="val",
        task=Task.BOXES,
        form=KOSMOS,
        identity=overlay["models"]["kosmos-2-tiny"]["identity"],
        execution={},
    )
    return [p.text for p in sorted(kosmos2.predict(requests, job), key=lambda prediction: prediction.id)]


def prompt(text: str) -> str:
    return f"<grounding><phrase>{text}</phrase>"


def overlaps(answers: Sequence[str], boxes_xyxy: Sequence[Sequence[float]]) -> np.ndarray:
    """IoU of the first box of each answer with the true one; an answer without a box gets the first cell."""
    found = [[grounding.pairs[0] for grounding in find_groundings(text)] or [(0, 0)] for text in answers]
    decoded_xyxy = decode_pairs(np.array([pairs[0] for pairs in found]), GRID)
    return paired_iou(decoded_xyxy.astype(np.float32), np.array(boxes_xyxy, dtype=np.float32))


def accuracy(answers: Sequence[str], cases: Sequence[Case], threshold: float = 0.5) -> float:
    return float((overlaps(answers, [case.box_xyxy for case in cases]) >= threshold).mean())


def test_nearly_all_fresh_expressions_are_grounded(answers, fresh):
    assert accuracy(answers, fresh) >= 0.95


def test_boxes_are_tight(answers, fresh):
    # Shifted by half a cell, as by a wrong rule of decoding, boxes still overlap by half, but not by this.
    assert accuracy(answers, fresh, 0.75) >= 0.88


# Number of the fresh expression to text and cells, on images of all eight sizes, none of them square. In each the
# second-best token is far off, so only a change between file and box moves it.
EXACT = {
    0: ("large yellow triangle", (528, 828)),
    5: ("large purple square", (240, 697)),
    8: ("rightmost yellow object", (432, 890)),
    10: ("lowest object", (554, 980)),
    17: ("lowest green square", (788, 984)),
    20: ("large orange square", (632, 991)),
    27: ("object under the orange circle", (620, 816)),
    29: ("top triangle", (52, 318)),
    33: ("purple object above the large circle", (102, 269)),
    40: ("leftmost small orange object", (35, 169)),
    43: ("top small object", (430, 564)),
    47: ("red object", (615, 811)),
    55: ("purple square", (430, 626)),
    65: ("large blue object", (129, 587)),
    70: ("large orange object", (555, 947)),
    80: ("large blue object", (461, 761)),
    89: ("square left of the red circle", (387, 583)),
    100: ("bottom circle", (394, 728)),
    119: ("small purple square on the left", (708, 904)),
    145: ("circle to the right of the blue triangle", (469, 665)),
    195: ("small red circle", (133, 329)),
    198: ("yellow object above the square", (33, 399)),
}


@pytest.mark.parametrize("number", EXACT)
def test_cells_are_exactly(number, answers, fresh):
    text, pair = EXACT[number]
    assert (fresh[number].text, find_groundings(answers[number])) == (text, [(f" {text}", [pair])])


@pytest.fixture(scope="module")
def answer(folder) -> Callable[..., list[str]]:
    """Answers by transformers alone, in batches of equal length; `options` are the processor's."""
    processor = Kosmos2Processor.from_pretrained(folder)
    model = Kosmos2ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)

    def answers(images: Sequence[Image.Image], texts: Sequence[str], **options: Any) -> list[str]:
        lengths = defaultdict(list)
        for index, text in enumerate(texts):
            lengths[len(text.split())].append(index)
        found = {}
        for indices in lengths.values():
            inputs = processor(
                images=[images[i] for i in indices],
                text=[prompt(texts[i]) for i in indices],
                return_tensors="pt",
                **options,
            )
            tokens = model.generate(**inputs, max_new_tokens=8)
            found |= dict(zip(indices, processor.batch_decode(tokens), strict=True))
        return [found[index] for index in range(len(texts))]

    return answers


@pytest.fixture(scope="module")
def few(fresh) -> list[Case]:
    return fresh[:120]


def test_backend_answers_as_transformers_alone(answer, answers, few):
    alone = answer([case.image for case in few], [case.text for case in few])
    assert [find_groundings(text) for text in answers[: len(few)]] == [find_groundings(text) for text in alone]


def letterboxed(image: Image.Image) -> Image.Image:
    return ImageOps.pad(image, (224, 224))


def transposed(image: Image.Image) -> Image.Image:
    return image.transpose(Image.Transpose.TRANSPOSE)


def swap_red_and_blue(image: Image.Image) -> Image.Image:
    return Image.merge("RGB", image.split()[::-1])


# Accuracy at 0.5 and at 0.75 is at most this, where right pixels give more than 0.95 and 0.88.
WRONG_PIXELS = [
    pytest.param(None, {"do_rescale": False}, 0.1, 0.1, id="not rescaled"),
    pytest.param(None, {"do_normalize": False}, 0.88, 0.7, id="not normalised"),
    pytest.param(None, {"size": {"shortest_edge": 224}, "do_center_crop": True}, 0.82, 0.25, id="centre crop"),
    pytest.param(swap_red_and_blue, {}, 0.8, 0.75, id="BGR"),
    pytest.param(letterboxed, {}, 0.8, 0.15, id="letterbox"),
    pytest.param(ImageOps.mirror, {}, 0.25, 0.15, id="mirrored"),
    pytest.param(ImageOps.flip, {}, 0.25, 0.15, id="upside down"),
    pytest.param(transposed, {}, 0.25, 0.15, id="transposed"),
]


@pytest.mark.parametrize(("transform", "options", "most", "most_tight"), WRONG_PIXELS)
def test_wrong_pixels_ruin_the_answers(transform, options, most, most_tight, answer, few):
    images = [transform(case.image) if transform else case.image for case in few]
    found = answer(images, [case.text for case in few], **options)
    assert accuracy(found, few) <= most
    assert accuracy(found, few, 0.75) <= most_tight


@pytest.fixture(scope="module")
def red_or_blue() -> list[Case]:
    """Two things that only their colours tell apart."""
    rng = Random(1)
    cases = []
    for shape in SHAPES:
        for _ in range(10):
            places = rng.sample([(12, 10), (92, 10), (12, 66), (92, 66)], 2)
            things = tuple(
                Thing(shape=shape, colour=colour, size="large", left=left, top=top, side=46)
                for colour, (left, top) in zip(("red", "blue"), places, strict=True)
            )
            scene = Scene(width=160, height=120, ground=210, things=things)
            cases += [case_of(scene, target, f"{thing.colour} {shape}") for target, thing in enumerate(things)]
    return cases


def test_red_and_blue_are_told_apart(answer, red_or_blue):
    found = answer([case.image for case in red_or_blue], [case.text for case in red_or_blue])
    assert accuracy(found, red_or_blue) >= 0.95


def test_swapped_they_are_taken_for_each_other(answer, red_or_blue):
    images = [swap_red_and_blue(case.image) for case in red_or_blue]
    assert accuracy(answer(images, [case.text for case in red_or_blue]), red_or_blue) <= 0.1


def test_phrase_of_another_scene_ruins_the_answers(answer, few):
    texts = [case.text for case in few]
    assert accuracy(answer([case.image for case in few], texts[7:] + texts[:7]), few) <= 0.5


def test_filling_at_the_right_ruins_the_answers(folder, few):
    # `generate` goes on after the filling; the backend fills up at the left.
    processor = Kosmos2Processor.from_pretrained(folder)
    processor.tokenizer.padding_side = "right"
    model = Kosmos2ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    mixed = sorted(few, key=lambda case: len(case.text.split()))[:: len(few) // 24]
    inputs = processor(
        images=[case.image for case in mixed],
        text=[prompt(case.text) for case in mixed],
        return_tensors="pt",
        padding=True,
    )
    found = processor.batch_decode(model.generate(**inputs, max_new_tokens=8))
    assert accuracy(found, mixed) <= 0.4


def test_swapped_axes_ruin_the_answers(answers, fresh):
    turned = [(y0, x0, y1, x1) for x0, y0, x1, y1 in (case.box_xyxy for case in fresh)]
    assert (overlaps(answers, turned) >= 0.5).mean() <= 0.3
