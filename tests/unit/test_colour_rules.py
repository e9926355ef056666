"""The rule-based grounder: what it reads and sees, where it fails, and that it never sees the truth."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask

from reftables.benchmarks.sample_scenes import Scene, Thing, draw_scene
from reftables.errors import DataError
from reftables.models import colour_rules, regions
from reftables.models.job import Job
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Request, Status, Task

PIXELS = AnswerFormat(notation=Notation.JSON, coordinates=Coordinates.PIXELS, order=Order.XY, prompt="plain", grid=None)
RLE = AnswerFormat(notation=Notation.RLE, coordinates=None, order=None, prompt="plain", grid=None)
SURDS = AnswerFormat(notation=Notation.SURDS, coordinates=None, order=None, prompt="surds", grid=None)
FORMS = {Task.BOXES: PIXELS, Task.POINTS: PIXELS, Task.MASKS: RLE, Task.ANSWERS: SURDS}


def thing(shape: str, colour: str, left: int, top: int, side: int) -> Thing:
    return Thing(shape=shape, colour=colour, size="large" if side > 35 else "small", left=left, top=top, side=side)


THINGS = {
    "red circle": thing("circle", "red", 10, 10, 24),
    "big red circle": thing("circle", "red", 130, 80, 60),
    "blue square": thing("square", "blue", 80, 20, 40),
    "green triangle": thing("triangle", "green", 20, 100, 30),
}


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("images") / "scene.jpg"
    draw_scene(Scene(width=240, height=160, ground=215, things=tuple(THINGS.values()))).save(path, quality=95)
    return str(path)


def job(task: Task, truth=None) -> Job:
    return Job(
        model="rules", benchmark="b", split="s", task=task, form=FORMS[task],
        identity={"backend": "colour_rules"}, execution={}, truth=truth,
    )  # fmt: skip


def ask(task: Task, image: str, *texts: str, truth=None):
    requests = [Request(i, image, text) for i, text in enumerate(texts)]
    return list(colour_rules.predict(requests, job(task, truth)))


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?", text)]


def found(text: str, image: str) -> str:
    """Which thing the answered box belongs to."""
    box = numbers(ask(Task.BOXES, image, text)[0].text)
    (name,) = [n for n, t in THINGS.items() if box == pytest.approx((t.left, t.top, t.right, t.bottom), abs=2)]
    return name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("blue square", "blue square"),
        ("the square", "blue square"),
        ("green object", "green triangle"),
        ("TRIANGLE!", "green triangle"),
        ("small red circle", "red circle"),
        ("large circle", "big red circle"),
        ("leftmost circle", "red circle"),
        ("red object on the right", "big red circle"),
        ("lowest small object", "green triangle"),
        ("purple circle", "big red circle"),
        ("a man in a hat", "big red circle"),
        ("", "big red circle"),
        ('Locate the object described by "blue square". Answer with JSON.', "blue square"),
        ("<grounding><phrase>green triangle</phrase>", "green triangle"),
    ],
    ids=str,
)
def test_words_find_a_thing(text, expected, image):
    assert found(text, image) == expected


@pytest.mark.parametrize(
    ("text", "wrong"),
    [("circle left of the blue square", "blue square"), ("circle that is not red", "big red circle")],
)
def test_relations_and_negations_are_misread(text, wrong, image):
    assert found(text, image) == wrong


# Pixels


def test_regions_are_found_by_colour_and_shape_despite_jpeg(image):
    found = regions.find_regions(regions.read_image(image))
    assert [(region.colour, region.shape) for region in found] == [
        ("red", "circle"), ("blue", "square"), ("red", "circle"), ("green", "triangle"),
    ]  # fmt: skip


@pytest.mark.parametrize("colour", ["red", "orange", "yellow", "green", "blue", "purple"])
def test_every_colour_of_the_sample_is_named_right(colour):
    scene = Scene(width=60, height=50, ground=210, things=(thing("circle", colour, 10, 10, 30),))
    (region,) = regions.find_regions(np.asarray(draw_scene(scene)))
    assert region.colour == colour


@pytest.mark.parametrize(
    ("rgb", "colour"),
    [
        ((240, 40, 60), "red"),
        ((240, 60, 40), "red"),
        ((230, 60, 160), "pink"),
        ((230, 60, 230), "purple"),
        ((40, 200, 210), "cyan"),
    ],
    ids=["bluish-red", "orange-red", "pink", "magenta", "cyan"],
)
def test_hues_run_in_a_circle(rgb, colour):
    pixels = np.full((20, 20, 3), 200, dtype=np.uint8)
    pixels[5:15, 5:15] = rgb
    (region,) = regions.find_regions(pixels)
    assert region.colour == colour


def test_touching_things_of_one_colour_are_taken_for_one():
    pixels = np.full((40, 60, 3), 200, dtype=np.uint8)
    pixels[10:20, 10:30] = pixels[20:30, 20:40] = (220, 30, 30)
    (region,) = regions.find_regions(pixels)
    assert region.box_xyxy == (10, 10, 40, 30)


def test_pieces_that_overlap_in_rows_and_columns_are_still_told_apart():
    pixels = np.full((60, 60, 3), 200, dtype=np.uint8)
    pixels[5:15, 5:40] = pixels[25:55, 5:15] = pixels[25:55, 30:40] = (220, 30, 30)
    boxes = {region.box_xyxy for region in regions.find_regions(pixels)}
    assert boxes == {(5, 5, 40, 15), (5, 25, 15, 55), (30, 25, 40, 55)}


def test_a_mask_is_the_pixels_of_the_thing(image):
    (prediction,) = ask(Task.MASKS, image, "green triangle")
    triangle = THINGS["green triangle"]
    assert coco_mask.area(prediction.rle) == pytest.approx(triangle.side**2 / 2, rel=0.1)
    assert prediction.rle["size"] == [160, 240]


def test_a_colour_that_is_not_there_means_no_target(image):
    (prediction,) = ask(Task.MASKS, image, "purple circle")
    assert prediction.no_target is True
    assert coco_mask.area(prediction.rle) == 0


# Points


def point(text: str, image: str) -> tuple[float, float]:
    x, y = numbers(ask(Task.POINTS, image, text)[0].text)[:2]
    return x, y


def test_a_point_of_a_thing_lies_in_its_middle(image):
    assert point("Locate the blue square in this image and output the point.", image) == pytest.approx((100, 40), abs=2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the free ground to the left of the blue square", (68, 40)),
        ("the free ground below the blue square", (100, 72)),
        ("the free ground in the bottom right corner", (216, 144)),
        ("the free ground between the blue square and the green triangle", (100, 72)),
    ],
    ids=["left", "below", "corner", "between-is-not-understood"],
)
def test_free_ground_is_looked_for_beside_what_is_named(text, expected, image):
    assert point(text, image) == pytest.approx(expected, abs=2)


# Questions

OPTIONS = "\n\nOptions:\n- {}\n- {}\n- {}\n\nAnswer between the tags.\n"


@pytest.mark.parametrize(
    ("question", "options", "expected"),
    [
        ("Which is {} to us, the blue square or the green triangle?", ("closer", "B", "G", "Same"), "G"),
        ("Which is {} from us, the blue square or the green triangle?", ("farther", "B", "G", "Same"), "B"),
        ("Which is more to the {}, the blue square or the green triangle?", ("left", "B", "G", "Same"), "G"),
        ("Which is more to the {}, the blue square or the green triangle?", ("right", "B", "G", "Same"), "B"),
        ("Is the blue square {} the green triangle?", ("in front of", "Yes", "No", "Same"), "Yes"),
        ("Is the blue square {} the green triangle?", ("behind", "Yes", "No", "Same"), "No"),
        ("Where does the blue square face, from a camera to the {}?", ("North", "East", "West", "South"), "East"),
        (
            "How far {} is the green triangle?",
            (
                "ahead",
                "Between 5 meters and 11 meters",
                "Between 30 meters and 40 meters",
                "Between 50 meters and 60 meters",
            ),
            "Between 30 meters and 40 meters",
        ),
    ],
    ids=["closer", "farther", "left", "right", "front", "behind", "yaw", "depth"],
)
def test_questions_are_answered_from_where_things_stand(question, options, expected, image):
    text = question.format(options[0]) + OPTIONS.format(*options[1:])
    assert ask(Task.ANSWERS, image, text)[0].text == f"<answer>{expected}</answer>"


def test_a_question_without_options_is_answered_by_a_place(image):
    x, y = numbers(ask(Task.ANSWERS, image, "At which pixel is the middle of the blue square?")[0].text)
    assert (x, y) == pytest.approx((100, 40), abs=1)


def test_a_question_about_unknown_things_gets_the_first_option(image):
    text = "Which is closer, the silver van or the tram?" + OPTIONS.format("The silver van", "The tram", "Same")
    assert ask(Task.ANSWERS, image, text)[0].text == "<answer>The silver van</answer>"


# Honesty and care


@pytest.mark.parametrize("task", Task)
def test_answers_are_the_same_whatever_the_truth(task, image):
    lies = [{"id": 0, "bbox_xywh": [0, 0, 1, 1], "answer": "B", "no_target": True, "options": ["B"], "bbox": None}]
    assert not colour_rules.READS_TRUTH
    assert ask(task, image, "blue square") == ask(task, image, "blue square", truth=lies)


def test_each_image_is_opened_once(image, monkeypatch):
    opened = []
    read = regions.read_image
    monkeypatch.setattr(regions, "read_image", lambda path: opened.append(path) or read(path))
    assert len(ask(Task.BOXES, image, "blue square", "circle", "triangle")) == 3
    assert opened == [image]


@pytest.mark.parametrize("task", [Task.BOXES, Task.POINTS, Task.ANSWERS])
def test_an_image_without_colour_gets_an_empty_answer(task, tmp_path):
    path = tmp_path / "grey.png"
    Image.new("RGB", (30, 20), (128, 128, 128)).save(path)
    (prediction,) = ask(task, str(path), "the red circle")
    assert (prediction.status, prediction.text) == (Status.EMPTY, None)


@pytest.mark.parametrize("content", [None, b"no image", "cut"], ids=["absent", "no-image", "cut"])
def test_an_image_that_cannot_be_read_is_named(content, image, tmp_path):
    path = tmp_path / "a.jpg"
    if content:
        path.write_bytes(Path(image).read_bytes()[:2000] if content == "cut" else content)
    with pytest.raises(DataError, match=re.escape(f"{path}: no such image, or none that can be read")):
        ask(Task.BOXES, str(path), "circle")


def test_requests_of_many_images_are_all_answered(image, tmp_path):
    other = Path(tmp_path / "other.png")
    Image.open(image).save(other)
    requests = [Request(i, image if i % 2 else str(other), "circle") for i in range(6)]
    answers = list(colour_rules.predict(requests, job(Task.BOXES)))
    assert sorted(prediction.id for prediction in answers) == list(range(6))
