"""The bundled sample: drawn from a seed, written in the benchmarks' own file formats.

Each scene has two objects that are referred to, the first of them in one or two ways. The same objects
are written as MDETR files (boxes), as a COCO instances file with a `refer` pickle (masks) and, with
expressions for several objects and for none, as a gRefCOCO file. One scene in six holds an object that a
post cuts in two, two scenes a crowd with a run-length mask. The same seed gives the same bytes, given the
same Pillow.
"""

import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from random import Random
from typing import Any

from PIL import Image

from reftables.benchmarks.sample_drives import answers_files
from reftables.benchmarks.sample_expressions import Expression, GroupExpression, absent, choose, groups
from reftables.benchmarks.sample_places import points_files
from reftables.benchmarks.sample_scenes import (
    DOTS,
    SHAPES,
    Outline,
    Scene,
    Thing,
    draw_mask,
    draw_scene,
    encode_image,
    random_scene,
)

SCENES_PER_SPLIT = 24
SPLITS = ("val", "test")

_CATEGORIES = (*SHAPES, DOTS)
_FIRST_SAMPLE_ID = 1200  # MDETR's ids run on across files: a split's never start at 0
_DOTS_SCENE = 7  # of each split
_POST_SCENES = 6  # one scene in so many has a post


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A scene with its place in the data set; `annotation_ids` are those of its things, in order."""

    split: str
    image_id: int
    annotation_ids: tuple[int, ...]
    scene: Scene
    sentences: tuple[tuple[Expression, ...], ...]  # of the first and of the second thing

    @property
    def file_name(self) -> str:
        return f"COCO_train2014_{self.image_id:012}.jpg"


def draw_sample(seed: int) -> dict[str, bytes]:
    """Path, relative to the sample's folder, to content of all files but the manifest."""
    pictures = list(pictures_of(seed))
    files = {f"images/train2014/{p.file_name}": encode_image(draw_scene(p.scene), "JPEG", quality=95) for p in pictures}
    files["masks/instances.json"] = _json(_instances(pictures))
    files["masks/refs(unc).p"] = _pickle(_refs(pictures))
    files["masks/grefs(unc).json"] = _json(_group_refs(seed, pictures))
    first = _FIRST_SAMPLE_ID
    for split in SPLITS:
        annotations = _mdetr([p for p in pictures if p.split == split], first)
        files[f"boxes/finetune_sample_{split}.json"] = _json(annotations)
        first += len(annotations["annotations"])
    return files | points_files(seed, "points") | answers_files(seed, "answers")


def pictures_of(seed: int) -> Iterator[Picture]:
    """The described scenes of both splits."""
    image_id, annotation_id = 17, 3001
    for split in SPLITS:
        for number in range(SCENES_PER_SPLIT):
            rng = Random(f"{seed} {split} {number}")
            scene, sentences = _described_scene(rng, number)
            ids = tuple(annotation_id + index for index in range(len(scene.things)))
            yield Picture(split=split, image_id=image_id, annotation_ids=ids, scene=scene, sentences=sentences)
            image_id, annotation_id = image_id + rng.randint(1, 9), ids[-1] + rng.randint(1, 50)


def _described_scene(rng: Random, number: int) -> tuple[Scene, tuple[tuple[Expression, ...], ...]]:
    """A scene of two to five things; two sentences (in odd scenes one) for the first thing, one for the second."""
    first = "dots" if number == _DOTS_SCENE else "post" if number % _POST_SCENES == 2 else None
    wanted = (1 if number % 2 else 2, 1)
    while True:
        scene = random_scene(rng, count=2 + number % 4, first=first)
        sentences = tuple(tuple(choose(rng, scene, target, count)) for target, count in enumerate(wanted))
        if tuple(map(len, sentences)) == wanted and groups(scene):
            return scene, sentences


def _instances(pictures: Sequence[Picture]) -> dict[str, Any]:
    """COCO's instances file."""
    return {
        "info": {"description": "drawn shapes, a sample in COCO's format", "version": "1.0"},
        "images": [
            {"id": p.image_id, "file_name": p.file_name, "width": p.scene.width, "height": p.scene.height}
            for p in pictures
        ],
        "annotations": [_annotation(p, index) for p in pictures for index in range(len(p.scene.things))],
        "categories": [
            {"supercategory": "shape", "id": number, "name": name} for number, name in enumerate(_CATEGORIES, start=1)
        ],
    }


def _annotation(picture: Picture, index: int) -> dict[str, Any]:
    thing = picture.scene.things[index]
    outlines = thing.outlines()
    segmentation: object = [list(chain.from_iterable(outline)) for outline in outlines]
    if thing.shape == DOTS:
        segmentation = run_lengths(outlines, picture.scene.size_wh)
    return {
        "segmentation": segmentation,
        "area": round(sum(map(_area, outlines)), 2),
        "iscrowd": int(thing.shape == DOTS),
        "image_id": picture.image_id,
        "bbox": [thing.left, thing.top, thing.side, thing.side],
        "category_id": _category(thing),
        "id": picture.annotation_ids[index],
    }


def _category(thing: Thing) -> int:
    return _CATEGORIES.index(thing.shape) + 1


def run_lengths(outlines: Sequence[Outline], size_wh: tuple[int, int]) -> dict[str, Any]:
    """The mask as uncompressed RLE: lengths of the runs of 0 and 1 by turns, down the columns."""
    columns = draw_mask(outlines, size_wh).transpose(Image.Transpose.TRANSPOSE).tobytes()
    counts = [len(list(run)) for _, run in groupby(columns)]
    return {"counts": counts if columns[0] == 0 else [0, *counts], "size": [size_wh[1], size_wh[0]]}


def _area(outline: Outline) -> float:
    """Area of a polygon, by the shoelace formula."""
    pairs = zip(outline, [*outline[1:], outline[0]], strict=True)
    return abs(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in pairs)) / 2


def _mdetr(pictures: Sequence[Picture], first_id: int) -> dict[str, Any]:
    """MDETR's file of one split: one image and one annotation an expression."""
    images, annotations = [], []
    samples = ((p, e) for p in pictures for sentences in p.sentences for e in sentences)
    for number, (picture, expression) in enumerate(samples, start=first_id):
        image = {
            "file_name": picture.file_name,
            "height": picture.scene.height,
            "width": picture.scene.width,
            "id": number,
            "original_id": picture.image_id,
            "caption": expression.text,
            "dataset_name": "sample",
            "tokens_negative": [[0, len(expression.text)]],
        }
        object_ = _annotation(picture, expression.target)
        annotation = {key: object_[key] for key in ("area", "iscrowd", "category_id", "bbox")} | {
            "image_id": number,
            "id": number,
            "original_id": object_["id"],
            "tokens_positive": [[0, len(expression.text)]],
        }
        images.append(image)
        annotations.append(annotation)
    return {"info": [], "licenses": [], "images": images, "annotations": annotations, "categories": []}


def _refs(pictures: Sequence[Picture]) -> list[dict[str, Any]]:
    """The refer API's references: an object and its sentences each."""
    refs: list[dict[str, Any]] = []
    sentence_id = 0
    for picture in pictures:
        for target, expressions in enumerate(picture.sentences):
            annotation_id = picture.annotation_ids[target]
            sentences = [_sentence(sentence_id + i, expression.text) for i, expression in enumerate(expressions)]
            sentence_id += len(sentences)
            refs.append(
                {
                    "sent_ids": [sentence["sent_id"] for sentence in sentences],
                    # The refer API's file names end in the annotation's id: no image has that name.
                    "file_name": picture.file_name.replace(".jpg", f"_{annotation_id}.jpg"),
                    "ann_id": annotation_id,
                    "ref_id": len(refs),
                    "image_id": picture.image_id,
                    "split": picture.split,
                    "sentences": sentences,
                    "category_id": _category(picture.scene.things[target]),
                }
            )
    return refs


def _sentence(number: int, text: str) -> dict[str, Any]:
    """`raw` is what a person typed, `sent` the cleaned text."""
    raw = f"{text.capitalize()}." if number % 3 == 0 else text
    return {"tokens": text.split(), "raw": raw, "sent_id": number, "sent": text}


def _group_refs(seed: int, pictures: Sequence[Picture]) -> list[dict[str, Any]]:
    """gRefCOCO's references: lists of objects; [-1] where the expression fits none."""
    refs: list[dict[str, Any]] = []
    for picture in pictures:
        rng = Random(f"{seed} groups {picture.image_id}")
        second, *_ = picture.sentences[1]
        single = GroupExpression(second.text, (second.target,))
        for group in (rng.choice(groups(picture.scene)), rng.choice(absent(picture.scene)), single):
            number = len(refs)
            refs.append(
                {
                    "image_id": picture.image_id,
                    "ann_id": [picture.annotation_ids[i] for i in group.targets] or [-1],
                    "category_id": [_category(picture.scene.things[i]) for i in group.targets] or [-1],
                    "split": picture.split,
                    "sentences": [_sentence(number, group.text)],
                    "sent_ids": [number],
                    "file_name": picture.file_name,
                    "ref_id": number,
                    "no_target": not group.targets,
                }
            )
    return refs


def _json(value: object) -> bytes:
    return (json.dumps(value, ensure_ascii=False) + "\n").encode()


def _pickle(refs: list[dict[str, Any]]) -> bytes:
    """Protocol 2, as the refer API's files; builtin containers and scalars only."""
    # A pickle shows which equal texts are one object. After a round trip through JSON that no longer
    # depends on how they were made.
    return pickle.dumps(json.loads(json.dumps(refs)), protocol=2)
