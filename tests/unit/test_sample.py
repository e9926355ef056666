"""The bundled sample: determinism, formats, and expressions that mean exactly one thing."""

import io
import json
import pickle
import re
import subprocess
import sys
import zlib
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask

from reftables.benchmarks import mdetr, refspatial
from reftables.benchmarks.sample import Picture, draw_sample, pictures_of, run_lengths
from reftables.benchmarks.sample_drives import PROMPTS
from reftables.benchmarks.sample_expressions import absent, groups
from reftables.benchmarks.sample_places import FOLDERS, PER_SPLIT
from reftables.benchmarks.sample_scenes import COLOURS, Scene, Thing
from reftables.benchmarks.surds import SLOTS, TEMPLATE_FILES, read_truth
from reftables.models import baselines, colour_rules
from reftables.models.job import Job
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Request, Task
from reftables.scoring import boxes, points
from reftables.stages import sample as stage

SEED = 7
SEEDS = range(4)


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return draw_sample(SEED)


@pytest.fixture(scope="module")
def instances(files):
    return json.loads(files["masks/instances.json"])


@pytest.fixture(scope="module")
def refs(files):
    return pickle.loads(files["masks/refs(unc).p"])


@pytest.fixture(scope="module")
def group_refs(files):
    return json.loads(files["masks/grefs(unc).json"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    stage.main(["--folder", str(folder), "--seed", str(SEED)])
    return folder


def image_of(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content))


# The whole


def test_same_seed_gives_the_same_bytes(files):
    assert draw_sample(SEED) == files


def test_another_seed_gives_another_sample_of_the_same_size(files):
    other = draw_sample(SEED + 1)
    assert other["masks/instances.json"] != files["masks/instances.json"]
    for split in ("val", "test"):
        name = f"boxes/finetune_sample_{split}.json"
        assert len(json.loads(other[name])["images"]) == len(json.loads(files[name])["images"]) == 60


def test_the_stage_writes_its_declared_outputs_and_all_drawn_files(folder, files):
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert written == files.keys() | {stage.MANIFEST}
    assert written >= set(stage.OUTPUTS)


def test_the_manifest_names_every_image_with_size_and_checksum(folder, files):
    header, *lines = (folder / "manifest.tsv").read_text().splitlines()
    expected = {
        f"{name}\t{len(content)}\t{zlib.crc32(content):08x}"
        for name, content in files.items()
        if name.endswith((".jpg", ".png", ".webp"))
    }
    assert header == "name\tbytes\tcrc32"
    assert set(lines) == expected
    assert len(lines) == len(expected)


def test_reading_the_outputs_loads_no_pillow():
    code = "import sys; from reftables.stages.sample import OUTPUTS; print('PIL' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_environment()
    )
    assert result.stdout == "False\n"


def _environment() -> dict[str, str]:
    return {"PYTHONPATH": str(Path(stage.__file__).parents[2])}


# Expressions, read by an independent reader

_RELATION = re.compile(r"(?P<noun>.+?) (?:to the )?(?P<side>left of|right of|above|below|under) the (?P<anchor>.+)")
_PLACES = {
    "left": r"(?:left|leftmost) (?P<a>.+)|(?P<b>.+) on the left",
    "right": r"(?:right|rightmost) (?P<a>.+)|(?P<b>.+) on the right",
    "above": r"(?:top|highest) (?P<a>.+)|(?P<b>.+) at the top",
    "below": r"(?:bottom|lowest) (?P<a>.+)|(?P<b>.+) at the bottom",
}
_SIDES = {"left of": "left", "right of": "right", "above": "above", "below": "below", "under": "below"}


def called(scene: Scene, noun: str) -> list[Thing]:
    """The things of which every word of the noun is true."""
    words = set(noun.split()) - {"object"}
    return [thing for thing in scene.things if words <= {thing.size, thing.colour, thing.shape}]


def offset(thing: Thing, side: str) -> float:
    """How far the middle of a thing lies to a side."""
    x, y = thing.left + thing.side / 2, thing.top + thing.side / 2
    return {"left": -x, "right": x, "above": -y, "below": y}[side]


def meant(scene: Scene, text: str) -> list[Thing]:
    """The things that an expression for one thing may mean."""
    if match := _RELATION.fullmatch(text):
        (anchor,) = called(scene, match["anchor"])
        side = _SIDES[match["side"]]
        others = [thing for thing in called(scene, match["noun"]) if thing is not anchor]
        return [thing for thing in others if offset(thing, side) > offset(anchor, side)]
    for side, pattern in _PLACES.items():
        if match := re.fullmatch(pattern, text):
            like = called(scene, match["a"] or match["b"])
            ordered = sorted(like, key=lambda thing: -offset(thing, side))
            clear = offset(ordered[0], side) - offset(ordered[1], side) >= 12
            return ordered[:1] if clear else ordered[:2]
    return called(scene, text)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_expression_means_exactly_its_thing(seed):
    for picture in pictures_of(seed):
        for expressions in picture.sentences:
            for expression in expressions:
                assert meant(picture.scene, expression.text) == [picture.scene.things[expression.target]], expression


@pytest.mark.parametrize("seed", SEEDS)
def test_expressions_of_all_three_kinds_occur(seed):
    kinds = Counter(e.kind for p in pictures_of(seed) for expressions in p.sentences for e in expressions)
    assert min(kinds[kind] for kind in ("name", "place", "relation")) >= 10


@pytest.mark.parametrize("seed", SEEDS)
def test_things_lie_apart_and_inside_the_image(seed):
    for picture in pictures_of(seed):
        for thing in picture.scene.things:
            assert thing.left >= 5
            assert thing.right <= picture.scene.width - 5
            assert thing.top >= 5
            assert thing.bottom <= picture.scene.height - 5
        masks = [boxes_of(thing, picture.scene) for thing in picture.scene.things]
        assert np.sum(masks, axis=0).max() == 1


def boxes_of(thing: Thing, scene: Scene) -> np.ndarray:
    filled = np.zeros((scene.height, scene.width), dtype=int)
    filled[thing.top : thing.bottom, thing.left : thing.right] = 1
    return filled


def test_scenes_are_of_many_sizes_some_upright_none_square():
    sizes = {picture.scene.size_wh for picture in pictures_of(SEED)}
    assert any(width > height for width, height in sizes)
    assert any(width < height for width, height in sizes)
    assert all(width != height for width, height in sizes)


# Boxes


@pytest.mark.parametrize("split", ["val", "test"])
def test_mdetr_files_hold_one_image_and_one_annotation_an_expression(files, instances, split):
    content = json.loads(files[f"boxes/finetune_sample_{split}.json"])
    objects = {annotation["id"]: annotation for annotation in instances["annotations"]}
    assert len(content["images"]) == len(content["annotations"]) == 60
    for image, annotation in zip(content["images"], content["annotations"], strict=True):
        assert image.keys() == {
            "file_name", "height", "width", "id", "original_id", "caption", "dataset_name", "tokens_negative",
        }  # fmt: skip
        assert annotation.keys() == {
            "id", "image_id", "bbox", "area", "iscrowd", "category_id", "original_id", "tokens_positive",
        }  # fmt: skip
        assert annotation["image_id"] == image["id"]
        assert annotation["bbox"] == objects[annotation["original_id"]]["bbox"]
        assert image["original_id"] == objects[annotation["original_id"]]["image_id"]
        assert image_of(files[f"images/train2014/{image['file_name']}"]).size == (image["width"], image["height"])


def test_sample_ids_run_on_across_the_files_and_start_away_from_0(files):
    ids = [
        image["id"]
        for split in ("val", "test")
        for image in json.loads(files[f"boxes/finetune_sample_{split}.json"])["images"]
    ]
    assert ids == list(range(ids[0], ids[0] + 120))
    assert ids[0] > 0


def test_boxes_lie_inside_their_image(instances):
    sizes = {image["id"]: (image["width"], image["height"]) for image in instances["images"]}
    for annotation in instances["annotations"]:
        x, y, width, height = annotation["bbox"]
        assert 0 <= x < x + width <= sizes[annotation["image_id"]][0]
        assert 0 <= y < y + height <= sizes[annotation["image_id"]][1]


# Masks


def mask_of(annotation, image) -> np.ndarray:
    segmentation = annotation["segmentation"]
    parts = coco_mask.frPyObjects(segmentation, image["height"], image["width"])
    return coco_mask.decode(coco_mask.merge(parts) if isinstance(parts, list) else parts).astype(bool)


def test_masks_fill_their_box_and_have_the_stated_area(instances):
    images = {image["id"]: image for image in instances["images"]}
    for annotation in instances["annotations"]:
        mask = mask_of(annotation, images[annotation["image_id"]])
        rows, columns = np.nonzero(mask)
        x, y, width, height = annotation["bbox"]
        found = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        assert found == pytest.approx((x, y, x + width, y + height), abs=1)
        assert mask.sum() == pytest.approx(annotation["area"], rel=0.1)


def test_masks_lie_on_the_pixels_of_their_colour(files):
    for picture in list(pictures_of(SEED))[:12]:
        pixels = np.asarray(image_of(files[f"images/train2014/{picture.file_name}"]), dtype=int)
        for thing in picture.scene.things:
            parts = [[v for point in outline for v in point] for outline in thing.outlines()]
            mask = mask_of({"segmentation": parts}, {"height": picture.scene.height, "width": picture.scene.width})
            away = np.abs(pixels[mask] - COLOURS[thing.colour]).max(axis=1)
            assert np.mean(away < 60) > 0.85, (picture.file_name, thing)


def test_objects_in_several_parts_and_crowds_as_run_lengths_occur_and_are_referred_to(instances, refs):
    referred = {ref["ann_id"] for ref in refs}
    objects = [annotation for annotation in instances["annotations"] if annotation["id"] in referred]
    assert any(isinstance(o["segmentation"], list) and len(o["segmentation"]) == 2 for o in objects)
    crowds = [annotation for annotation in objects if annotation["iscrowd"]]
    assert len(crowds) == 2
    assert all(isinstance(crowd["segmentation"]["counts"], list) for crowd in crowds)


def test_run_lengths_begin_with_the_outside_even_where_there_is_none():
    corner = [(0, 0), (2, 0), (2, 3), (0, 3)]
    assert run_lengths([corner], (4, 5)) == {"counts": [0, 3, 2, 3, 12], "size": [5, 4]}


def test_refs_are_a_protocol_2_pickle_of_builtin_values_only(files):
    class NoGlobals(pickle.Unpickler):
        def find_class(self, module, name):
            raise AssertionError(f"{module}.{name}")

    content = files["masks/refs(unc).p"]
    assert content.startswith(b"\x80\x02")
    assert isinstance(NoGlobals(io.BytesIO(content)).load(), list)


def test_refs_hold_what_the_refer_api_expects(refs, instances):
    objects = {annotation["id"]: annotation for annotation in instances["annotations"]}
    for ref in refs:
        assert ref.keys() == {
            "ref_id", "ann_id", "category_id", "file_name", "image_id", "split", "sent_ids", "sentences",
        }  # fmt: skip
        assert ref["file_name"] == f"COCO_train2014_{ref['image_id']:012}_{ref['ann_id']}.jpg"
        assert objects[ref["ann_id"]]["image_id"] == ref["image_id"]
        assert objects[ref["ann_id"]]["category_id"] == ref["category_id"]
        assert ref["sent_ids"] == [sentence["sent_id"] for sentence in ref["sentences"]]
        assert all(sentence["tokens"] == sentence["sent"].split() for sentence in ref["sentences"])
    numbers = [number for ref in refs for number in ref["sent_ids"]]
    assert numbers == list(range(120))


@pytest.mark.parametrize("split", ["val", "test"])
def test_refs_and_mdetr_files_ask_the_same_in_the_same_order(files, refs, split):
    content = json.loads(files[f"boxes/finetune_sample_{split}.json"])
    asked = [
        (annotation["original_id"], image["caption"])
        for image, annotation in zip(content["images"], content["annotations"], strict=True)
    ]
    sentences = [(r["ann_id"], s["sent"]) for r in refs if r["split"] == split for s in r["sentences"]]
    assert asked == sentences


def test_raw_sentences_differ_from_the_cleaned_ones_here_and_there(refs):
    differing = [s for ref in refs for s in ref["sentences"] if s["raw"] != s["sent"]]
    assert 20 < len(differing) < 100


def test_group_refs_have_one_several_and_no_targets(group_refs):
    kinds = Counter(("none" if r["no_target"] else min(len(r["ann_id"]), 2)) for r in group_refs)
    assert kinds == {"none": 48, 1: 48, 2: 48}
    assert all((r["ann_id"] == [-1]) == r["no_target"] == (r["category_id"] == [-1]) for r in group_refs)


def test_group_refs_leave_crowds_out(group_refs, instances):
    crowds = {annotation["id"] for annotation in instances["annotations"] if annotation["iscrowd"]}
    assert not crowds & {i for ref in group_refs for i in ref["ann_id"]}


@pytest.mark.parametrize("seed", SEEDS)
def test_group_expressions_mean_exactly_their_things(seed):
    for picture in pictures_of(seed):
        for group in groups(picture.scene):
            assert several_meant(picture, group.text) == {picture.scene.things[i] for i in group.targets}, group


def several_meant(picture: Picture, text: str) -> set[Thing]:
    quantity, _, noun = text.partition(" ")
    if quantity in ("both", "all"):
        things = called(picture.scene, noun.removesuffix("s"))
        assert (len(things) == 2) == (quantity == "both")
        return set(things)
    return {thing for part in text.split(" and ") for thing in called(picture.scene, part)}


@pytest.mark.parametrize("seed", SEEDS)
def test_expressions_without_a_target_name_nothing_in_the_scene(seed):
    for picture in pictures_of(seed):
        assert absent(picture.scene)
        assert not any(called(picture.scene, group.text) for group in absent(picture.scene))


# Points


@pytest.fixture(scope="module", params=FOLDERS)
def questions(request, files):
    root = f"points/{FOLDERS[request.param]}"
    return request.param, [
        (row, image_of(files[f"{root}/{row['rgb_path']}"]), image_of(files[f"{root}/{row['mask_path']}"]))
        for row in json.loads(files[f"{root}/question.json"])
    ]


def test_questions_have_the_benchmarks_columns(questions):
    split, rows = questions
    assert len(rows) == PER_SPLIT
    for number, (row, _, _) in enumerate(rows):
        assert row.keys() == {"id", "object", "prompt", "suffix", "rgb_path", "mask_path", "category", "step"}
        assert (row["id"], row["category"]) == (number, split)
        assert row["object"] in row["prompt"]
        assert 1 <= row["step"] <= 5
    assert len({row["step"] for row, _, _ in rows}) >= 3


def test_point_masks_are_black_and_white_and_fit_their_image(questions):
    for _, image, mask in questions[1]:
        assert mask.mode == "L"
        assert mask.size == image.size
        assert set(np.unique(np.asarray(mask))) == {0, 255}


def test_location_masks_cover_a_thing_and_the_others_free_ground(questions):
    split, rows = questions
    for row, image, mask in rows:
        pixels = np.asarray(image, dtype=int)[np.asarray(mask) > 0]
        colourful = np.mean(np.ptp(pixels, axis=1) > 75)
        assert colourful > 0.8 if split == "location" else colourful == 0, row


# Answers


@pytest.fixture(scope="module")
def settings(folder) -> dict[str, str]:
    root = folder / "answers"
    return {"metadata": str(root / "metadata.jsonl"), "images": str(root), "templates": str(root / "prompts")}


@pytest.mark.parametrize("split", SLOTS)
def test_each_task_has_four_units(settings, split):
    rows = read_truth(settings, benchmark="answers", split=split, task=Task.ANSWERS).rows
    assert len({row["unit"] for row in rows}) == 4


def test_records_agree_with_themselves(files):
    lines = files["answers/metadata.jsonl"].decode().splitlines()
    for record in map(json.loads, lines):
        assert image_of(files[f"answers/{record['file_name']}"]).size == (1600, 900)
        assert len({len(values) for values in record.values() if isinstance(values, list)}) == 1
        for (x, y), (x0, y0, x1, y1) in zip(record["xy2Ds"], record["bboxes2D"], strict=True):
            assert (x, y) == ((x0 + x1) // 2, (y0 + y1) // 2)
            assert 0 <= x0 < x1 <= 1600
            assert 0 <= y0 < y1 <= 900
        for (x, _, z), (x0, _, x1, y1) in zip(record["xyz3Ds"], record["bboxes2D"], strict=True):
            assert (x0 + x1) / 2 == pytest.approx(800 + 1250 * x / z, abs=1)
            assert y1 == pytest.approx(450 + 1250 * 1.6 / z, abs=1)
        for distance, depth, (x, _, z) in zip(record["distances"], record["depths"], record["xyz3Ds"], strict=True):
            assert depth == z
            assert distance == pytest.approx((x**2 + z**2) ** 0.5, abs=0.006)


def test_vehicles_of_one_picture_differ_in_colour_and_hide_nothing(files):
    for record in map(json.loads, files["answers/metadata.jsonl"].decode().splitlines()):
        assert len({desc.split()[0] for desc in record["descs"]}) == len(record["descs"])
        assert all(left[2] < right[0] for left, right in pairwise(sorted(record["bboxes2D"])))


def test_vehicles_stand_where_their_boxes_say(files):
    for record in map(json.loads, files["answers/metadata.jsonl"].decode().splitlines()):
        pixels = np.asarray(image_of(files[f"answers/{record['file_name']}"]).convert("RGB"), dtype=int)
        for desc, (x0, y0, x1, y1) in zip(record["descs"], record["bboxes2D"], strict=True):
            away = np.abs(pixels[y0:y1, x0:x1] - COLOURS[desc.split()[0]]).max(axis=2)
            assert np.mean(away < 40) > 0.6


@pytest.mark.parametrize("split", SLOTS)
def test_prompts_have_the_slots_of_their_task(split):
    filled = PROMPTS[TEMPLATE_FILES[split]].format(*SLOTS[split])
    assert all(name in filled for name in SLOTS[split])
    assert "<answer>" in filled


# The models on it


def prediction_scores(backend, source, task, source_settings, split, form, **identity):
    """The scores of a model on one split, by the stages' own path."""
    rows = source.read_truth(source_settings, benchmark="sample", split=split, task=task).rows
    asked = source.request_texts(rows, source_settings, split=split, prompt=form.prompt)
    root = source.image_root(source_settings, split)
    requests = [Request(row["id"], f"{root}/{row['image']}", text) for row, text in zip(rows, asked, strict=True)]
    job = Job(
        model="m", benchmark="sample", split=split, task=task, form=form, identity=identity, execution={},
        truth=rows if backend.READS_TRUTH else None,
    )  # fmt: skip
    predictions = sorted(backend.predict(requests, job), key=lambda prediction: prediction.id)
    scorer = {Task.BOXES: boxes, Task.POINTS: points}[task]
    return scorer.score(rows, predictions, form, {})


KOSMOS = AnswerFormat(notation=Notation.KOSMOS, coordinates=None, order=None, prompt="kosmos", grid=32)
JSON = AnswerFormat(notation=Notation.JSON, coordinates=Coordinates.PIXELS, order=Order.XY, prompt="plain", grid=None)
TUPLES = AnswerFormat(
    notation=Notation.TUPLES, coordinates=Coordinates.UNIT, order=Order.XY, prompt="roborefer", grid=None
)


@pytest.mark.parametrize("split", ["val", "test"])
def test_boxes_tell_the_truth_a_rule_and_chance_apart(folder, split):
    source_settings = {"annotations": f"{folder}/boxes/finetune_sample_{split}.json", "images": f"{folder}/images"}
    common = (mdetr, Task.BOXES, source_settings, split)
    truth = prediction_scores(baselines, *common, KOSMOS, strategy="oracle").official["precision@1"].value
    rules = prediction_scores(colour_rules, *common, JSON).robust["precision@1"].value
    chance = prediction_scores(baselines, *common, KOSMOS, strategy="random", seed=1).official["precision@1"].value
    assert truth == 1
    assert 0.5 < rules < 0.95
    assert chance < 0.1


@pytest.mark.parametrize("split", FOLDERS)
def test_points_tell_the_truth_a_rule_and_chance_apart(folder, split):
    common = (refspatial, Task.POINTS, {"root": f"{folder}/points/{FOLDERS[split]}"}, split)
    truth = prediction_scores(baselines, *common, TUPLES, strategy="oracle").official["accuracy"].value
    rules = prediction_scores(colour_rules, *common, JSON).robust["accuracy"].value
    chance = prediction_scores(baselines, *common, TUPLES, strategy="random", seed=1).official["accuracy"].value
    assert truth == 1
    assert chance < rules < 1
