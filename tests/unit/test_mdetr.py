"""MDETR annotation files: rows, requests, masks and everything that can be wrong with a file."""

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reftables.benchmarks import mdetr
from reftables.benchmarks.truth import Truth
from reftables.errors import ConfigError, DataError
from reftables.files import format_request, parse_request
from reftables.rle import areas
from reftables.rows import Task

Root = dict[str, Any]


def image(number: int, caption: str = "a dog", **changed: Any) -> Root:
    name = f"COCO_train2014_{number:012d}.jpg"
    entry = {"id": number, "file_name": name, "width": 640, "height": 480, "caption": caption}
    return entry | {"dataset_name": "refcoco"} | changed


def annotation(number: int, image_id: int, **changed: Any) -> Root:
    return {"id": number, "image_id": image_id, "bbox": [10, 20.5, 30, 40], "original_id": number} | changed


def file_of(*captions: str) -> Root:
    """A sound file: images from id 7, annotations from id 107."""
    images = [image(7 + i, caption) for i, caption in enumerate(captions)]
    return {"images": images, "annotations": [annotation(107 + i, 7 + i) for i in range(len(captions))]}


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Truth]:
    """Write a file's object (or its bare text) to val.json and read it as a split."""

    def write_and_read(root: Root | str, task: Task = Task.BOXES, **more: str) -> Truth:
        text = root if isinstance(root, str) else json.dumps(root)
        (tmp_path / "val.json").write_text(text, encoding="utf-8")
        own = {"annotations": str(tmp_path / "val.json"), "images": "/coco"} | more
        return mdetr.read_truth(own, benchmark="mine", split="val", task=task)

    return write_and_read


def texts_of(truth: Truth, prompt: str, **more: str) -> list[str]:
    own = {"annotations": "val.json", "images": "/coco"} | more
    return mdetr.request_texts(truth.rows, own, split="val", prompt=prompt)


# Rows


def test_a_row_says_all_of_its_sample(read):
    assert read({"images": [image(7)], "annotations": [annotation(107, 7)]}).rows == [
        {
            "id": 0,
            "source_id": 107,
            "image": "train2014/COCO_train2014_000000000007.jpg",
            "width": 640,
            "height": 480,
            "expression": "a dog",
            "bbox_xywh": [10, 20.5, 30, 40],
        }
    ]


def test_samples_follow_the_annotations_and_join_their_images_by_id(read):
    images = [image(1, "one"), image(2, "two"), image(3, "three")]
    rows = read({"images": images, "annotations": [annotation(9, 3), annotation(8, 1), annotation(7, 2)]}).rows
    assert [(row["id"], row["source_id"], row["expression"]) for row in rows] == [
        (0, 9, "three"),
        (1, 8, "one"),
        (2, 7, "two"),
    ]


@pytest.mark.parametrize(
    ("file_name", "path"),
    [
        pytest.param("COCO_train2014_1.jpg", "train2014/COCO_train2014_1.jpg", id="train2014 in the name"),
        pytest.param("COCO_val2014_1.jpg", "val2014/COCO_val2014_1.jpg", id="val2014 in the name"),
        pytest.param("1.jpg", "val2014/1.jpg", id="neither: val2014"),
    ],
)
def test_the_folder_follows_from_the_file_name(read, file_name, path):
    root = {"images": [image(1, file_name=file_name)], "annotations": [annotation(1, 1)]}
    assert read(root).rows[0]["image"] == path


def test_the_dataset_name_need_not_be_the_benchmarks(read):
    root = {"images": [image(1, dataset_name="flickr")], "annotations": [annotation(1, 1)]}
    assert len(read(root).rows) == 1


def test_the_garbage_collector_is_on_again_after_a_bad_file(read):
    with pytest.raises(DataError):
        read("{")
    assert gc.isenabled()


# Notes


def test_a_sound_file_has_no_notes(read):
    assert read(file_of("a dog", "a cat")).notes == []


def test_a_truth_box_without_area_is_kept_and_noted(read):
    root = file_of("a", "b", "c")
    root["annotations"][1]["bbox"] = [5, 5, 0, 10]
    root["annotations"][2]["bbox"] = [5, 5, 10, 0.0]
    truth = read(root)
    assert len(truth.rows) == 3
    assert truth.notes == ["2 truth boxes have no area and match nothing: samples 1, 2"]


def test_captions_that_can_never_match_officially_are_noted(read):
    truth = read(file_of("a dog", "left <a>", "a  dog"))
    assert truth.notes == ["2 captions can never match officially in a Kosmos answer: samples 1, 2"]


def test_images_without_annotation_are_noted(read):
    root = file_of("a", "b")
    del root["annotations"][0]
    assert read(root).notes == ["1 image has no annotation and is no sample: 7"]


# Requests


def test_image_root_has_no_trailing_slash():
    assert mdetr.image_root({"images": "/coco/"}, "val") == "/coco"


def test_kosmos_requests_hold_the_caption_as_it_is(read):
    assert texts_of(read(file_of(r"a \n <b> ½")), "kosmos") == [r"<grounding><phrase>a \n <b> ½</phrase>"]


@pytest.mark.parametrize("caption", ["two\nlines", "a <tab> b"])
def test_a_caption_that_would_break_a_kosmos_line_is_refused_by_id(read, caption):
    truth = read(file_of("a dog", caption))
    with pytest.raises(DataError, match=r"val\.json: the captions of the annotations 108 hold a line feed or <tab>"):
        texts_of(truth, "kosmos")


def test_plain_requests_are_the_bare_caption(read):
    assert texts_of(read(file_of("two\nlines")), "plain") == ["two\nlines"]


@pytest.mark.parametrize(("prompt", "key"), [("qwen", "bbox_2d"), ("gemini", "box_2d")])
def test_json_requests_name_the_expression_and_the_key(read, prompt, key):
    [text] = texts_of(read(file_of("the {expression} in {braces}")), prompt)
    assert '"the {expression} in {braces}"' in text
    assert f'"{key}"' in text


def slow_locout(root: Root, images: str) -> str:
    """The authors' lines, each image looked up by a scan."""
    lines = []
    for entry in root["annotations"]:
        [found] = [candidate for candidate in root["images"] if candidate["id"] == entry["image_id"]]
        folder = "train2014" if "train2014" in found["file_name"] else "val2014"
        phrase = f"<grounding><phrase>{found['caption']}</phrase>"
        lines.append(f"[image]{images}/{folder}/{found['file_name']}<tab>{phrase}\n")
    return "".join(lines)


CAPTIONS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
KOSMOS_CAPTIONS = CAPTIONS.filter(lambda caption: "\n" not in caption and "<tab>" not in caption)


@settings(max_examples=50)
@given(captions=st.lists(KOSMOS_CAPTIONS, min_size=1, max_size=8), data=st.data())
def test_kosmos_lines_equal_those_of_a_scan_whatever_captions_order_and_root(tmp_path_factory, captions, data):
    root = file_of(*captions)
    root["images"] = data.draw(st.permutations(root["images"]))
    root["annotations"] = data.draw(st.permutations(root["annotations"]))
    images = data.draw(st.sampled_from(["/data", "coco", ".", "../with blank"]))
    path = tmp_path_factory.getbasetemp() / "scan.json"
    path.write_text(json.dumps(root), encoding="utf-8")
    own = {"annotations": str(path), "images": images}
    rows = mdetr.read_truth(own, benchmark="mine", split="val", task=Task.BOXES).rows
    texts = mdetr.request_texts(rows, own, split="val", prompt="kosmos")
    lines = [
        format_request(f"{images}/{row['image']}", text, prompt="kosmos") for row, text in zip(rows, texts, strict=True)
    ]
    assert "".join(f"{line}\n" for line in lines) == slow_locout(root, images)


@settings(max_examples=50)
@given(caption=CAPTIONS, prompt=st.sampled_from(sorted(mdetr.PROMPTS - {"kosmos"})))
def test_requests_come_back_as_they_were_written(caption, prompt):
    row = {"expression": caption}
    [text] = mdetr.request_texts([row], {}, split="val", prompt=prompt)
    line = format_request("coco/1.jpg", text, prompt=prompt)
    assert "\n" not in line
    assert parse_request(line, 0, prompt=prompt).text == text


# A ready-made request file

READY_MADE = [
    "[image]/their/machine/train2014/COCO_train2014_000000000007.jpg<tab><grounding><phrase>a dog</phrase>",
    "[image]/their/machine/train2014/COCO_train2014_000000000008.jpg<tab><grounding><phrase>a cat</phrase>",
]


@pytest.fixture
def ready_made(tmp_path: Path) -> Callable[[list[str]], str]:
    def write(lines: list[str]) -> str:
        path = tmp_path / "val.locout"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return str(path)

    return write


def test_a_ready_made_file_that_agrees_changes_nothing(read, ready_made):
    truth = read(file_of("a dog", "a cat"))
    assert texts_of(truth, "kosmos", requests=ready_made(READY_MADE)) == texts_of(truth, "kosmos")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        pytest.param(READY_MADE[:1], "1 requests, but the annotations make 2", id="a line less"),
        pytest.param(READY_MADE[::-1], "the image differs from the annotations' in the lines 1, 2", id="other order"),
        pytest.param(
            [READY_MADE[0], READY_MADE[1].replace("a cat", "a cow")],
            "the text differs from the annotations' in the lines 2",
            id="other caption",
        ),
        pytest.param([READY_MADE[0], "a cat"], "line 2: a request reads", id="no request"),
    ],
)
def test_a_ready_made_file_that_disagrees_is_refused(read, ready_made, lines, message):
    truth = read(file_of("a dog", "a cat"))
    with pytest.raises(DataError, match=rf"val\.locout: {message}"):
        texts_of(truth, "kosmos", requests=ready_made(lines))


def test_only_kosmos_requests_read_the_ready_made_file():
    own = {"annotations": "a.json", "images": "i", "requests": "r.locout", "instances": "c.json"}
    assert mdetr.request_files(own, "val", "kosmos") == ["r.locout"]
    assert mdetr.request_files(own, "val", "plain") == []
    assert mdetr.truth_files(own, "val") == ["a.json", "c.json"]


# Masks


@pytest.fixture
def instances(tmp_path: Path) -> str:
    """COCO instances of one 640x480 image: object 5 is 10x20 pixels, object 6 is 30x40 pixels."""
    squares = {5: (100, 100, 10, 20), 6: (300, 200, 30, 40)}
    annotations = [
        {
            "id": i,
            "image_id": 1,
            "category_id": 1,
            "iscrowd": 0,
            "segmentation": [[x, y, x + w, y, x + w, y + h, x, y + h]],
        }
        for i, (x, y, w, h) in squares.items()
    ]
    images = [{"id": 1, "file_name": "COCO_train2014_000000000007.jpg", "width": 640, "height": 480}]
    path = tmp_path / "instances.json"
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": []}), encoding="utf-8")
    return str(path)


def test_each_object_has_one_mask_in_its_first_row(read, instances):
    root = file_of("a dog", "a cat", "the dog")
    for entry, object_id in zip(root["annotations"], (6, 5, 6), strict=True):
        entry["original_id"] = object_id
    rows = read(root, Task.MASKS, instances=instances).rows
    assert areas([rows[0]["mask"], rows[1]["mask"]]).tolist() == [1200, 200]
    assert [row.get("mask_of") for row in rows] == [None, None, 0]
    assert "mask" not in rows[2]


def test_masks_of_another_size_than_the_annotations_image_are_refused(read, instances):
    root = {"images": [image(7, width=100)], "annotations": [annotation(107, 7, original_id=5)]}
    with pytest.raises(DataError, match=r"instances\.json: annotation 5: its image has 640x480 pixels here, 100x480"):
        read(root, Task.MASKS, instances=instances)


def test_an_annotation_without_original_id_has_no_mask(read, instances):
    root = file_of("a dog", "a cat")
    root["annotations"][0]["original_id"] = 5
    del root["annotations"][1]["original_id"]
    with pytest.raises(DataError, match=r"val\.json: no `original_id` .* in the annotations 108"):
        read(root, Task.MASKS, instances=instances)


def test_masks_without_instances_are_a_config_error(read):
    with pytest.raises(ConfigError, match=r"benchmarks\.mine\.instances is missing"):
        read(file_of("a dog"), Task.MASKS)


def test_masks_need_no_note_on_official_matching(read, instances):
    root = {"images": [image(7, "a <b>")], "annotations": [annotation(107, 7, original_id=5)]}
    assert read(root, Task.MASKS, instances=instances).notes == []


# Faults


def broken(change: Callable[[Root], object]) -> Root:
    root = file_of("a dog", "a cat")
    change(root)
    return root


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda r: r.pop("images"), "has no `images`; its keys are annotations", id="no images"),
        pytest.param(lambda r: r.update(annotations={}), "`annotations` must be a list with", id="no list"),
        pytest.param(lambda r: r.update(images=[]), "`images` must be a list with at least one", id="empty images"),
        pytest.param(lambda r: r.update(annotations=[]), "`annotations` must be a list with", id="empty annotations"),
        pytest.param(lambda r: r["images"].append(3), r"image number 2 \(from 0\) is 3, not an object", id="no object"),
        pytest.param(
            lambda r: r["images"][1].pop("caption"), r"image number 1 \(from 0\), id 8 has no `caption`", id="key"
        ),
        pytest.param(lambda r: r["images"][1].pop("id"), r"image number 1 \(from 0\), id None has no `id`", id="no id"),
        pytest.param(
            lambda r: r["images"][0].update(caption=5), "id 7: `caption` is 5, not a text", id="caption a number"
        ),
        pytest.param(
            lambda r: r["images"][0].update(width="640"),
            "id 7: `width` is '640', not an integer",
            id="width a text",
        ),
        pytest.param(
            lambda r: r["images"][0].update(height=True), "id 7: `height` is True, not an integer", id="boolean"
        ),
        pytest.param(lambda r: r["images"][0].update(height=0), "image 7 is 640x0 pixels", id="no height"),
        pytest.param(
            lambda r: r["images"][0].update(file_name="a\nb"),
            "image 7: `file_name` is .* no plain path",
            id="name in lines",
        ),
        pytest.param(
            lambda r: r["images"][0].update(file_name="a<tab>b"), "image 7: no request line can carry", id="tab in name"
        ),
        pytest.param(
            lambda r: r["images"][0].update(file_name="../../../etc/passwd"),
            "image 7: `file_name` is .* leads out of the folder: it must lead to a file below the images",
            id="name that leads out",
        ),
        pytest.param(
            lambda r: r["images"][0].update(width=65_500, height=65_500),
            "image 7 is 65500x65500 pixels, more than the 89,478,485 of an image that is opened",
            id="more pixels than are opened",
        ),
        pytest.param(
            lambda r: r["images"][0].update(caption="\ud800"),
            "image 7: `caption` holds half of a surrogate pair",
            id="surrogate",
        ),
        pytest.param(lambda r: r["images"][1].update(id=7), "more than one image has the id 7", id="image twice"),
        pytest.param(
            lambda r: r["images"][1].update(dataset_name="refcoco+"),
            r"mixes the data sets refcoco \(from image 7\), refcoco\+ \(from image 8\)",
            id="two data sets",
        ),
        pytest.param(
            lambda r: r["annotations"][1].pop("bbox"),
            r"annotation number 1 \(from 0\), id 108 has no `bbox`",
            id="no box",
        ),
        pytest.param(
            lambda r: r["annotations"][1].update(image_id=99), "no image for the annotations 108", id="image missing"
        ),
        pytest.param(
            lambda r: r["annotations"][1].update(id=107),
            "more than one annotation has the id 107",
            id="annotation twice",
        ),
        pytest.param(
            lambda r: r["annotations"][0].update(bbox=[1, 2, -3, 4]), "annotation 107: .*negative side", id="negative"
        ),
    ],
)
def test_a_bad_file_gives_one_error_that_names_file_and_id(read, change, message):
    with pytest.raises(DataError, match=rf"val\.json: .*{message}"):
        read(broken(change))


def test_a_name_loses_its_leading_dot(read):
    root = broken(lambda r: r["images"][0].update(file_name="./COCO_train2014_1.jpg"))
    assert read(root).rows[0]["image"] == "train2014/COCO_train2014_1.jpg"


def test_a_caption_may_hold_anything(read):
    assert read(file_of("red\rblue\t\x00")).rows[0]["expression"] == "red\rblue\t\x00"


@pytest.mark.parametrize(
    "box",
    ["[1, 2, NaN, 4]", "[1, 2, 3, Infinity]", "[1e999, 2, 3, 4]", "[1, 2, 3]", '[1, 2, "3", 4]', "[1, 2, true, 4]"],
)
def test_a_box_that_is_not_four_finite_numbers_is_refused_by_id(read, box):
    text = json.dumps(file_of("a dog")).replace("[10, 20.5, 30, 40]", box)
    with pytest.raises(DataError, match=r"val\.json: annotation 107: `bbox` is .*, not four finite numbers"):
        read(text)


def test_a_box_of_integers_beyond_any_float_is_refused(read):
    root = broken(lambda r: r["annotations"][0].update(bbox=[10**400, 0, 1, 1]))
    with pytest.raises(DataError, match=r"annotation 107: .*not four finite numbers"):
        read(root)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(json.dumps(file_of("a dog"))[:-20], "not valid JSON, perhaps cut short", id="cut"),
        pytest.param("", "not valid JSON", id="empty"),
        pytest.param("[" * 100_000, "not valid JSON", id="nested without end"),
        pytest.param("[]", "holds a list, not an object", id="a list"),
        pytest.param("{}", "has no `images`; its keys are none", id="an empty object"),
    ],
)
def test_a_file_that_is_no_annotation_file_is_refused(read, text, message):
    with pytest.raises(DataError, match=rf"val\.json: {message}"):
        read(text)


def test_an_absent_file_is_named(tmp_path):
    own = {"annotations": str(tmp_path / "none.json"), "images": "/coco"}
    with pytest.raises(DataError, match=r"none\.json: no such file"):
        mdetr.read_truth(own, benchmark="mine", split="val", task=Task.BOXES)
