"""COCO instances files: reading what is needed, drawing masks, refusing what is damaged."""

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pycocotools import mask as coco_mask

from reftables import rle
from reftables.benchmarks.coco_masks import Image, masks_of, read_instances
from reftables.errors import DataError
from tests.unit.coco_files import SQUARE, SQUARE_COUNTS, annotation, image, instances

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' decode


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Any], str]:
    """Write an instances file (or its bare text)."""

    def write_file(root: Any) -> str:
        path = tmp_path / "instances.json"
        path.write_text(root if isinstance(root, str) else json.dumps(root), encoding="utf-8")
        return str(path)

    return write_file


def pixels(mask: rle.Rle) -> list[list[int]]:
    return [[int(pixel) for pixel in row] for row in coco_mask.decode(mask)]


SQUARE_PIXELS = [[0, 0, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0], [0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]]


def test_a_polygon_is_drawn_in_its_images_size(write):
    masks, notes = masks_of(write(instances(annotation(5, SQUARE))), [5])
    assert pixels(masks[5]) == SQUARE_PIXELS
    assert notes == []


def test_parts_that_overlap_make_no_holes(write):
    masks, _ = masks_of(write(instances(annotation(5, SQUARE, SQUARE))), [5])
    assert pixels(masks[5]) == SQUARE_PIXELS


RUNS = [5, 2, 2, 2, 13]


@pytest.mark.parametrize("counts", [RUNS, SQUARE_COUNTS], ids=["list", "compressed"])
def test_a_crowd_is_read_from_its_runs(write, counts):
    crowd = annotation(5, segmentation={"size": [4, 6], "counts": counts}, iscrowd=1)
    masks, notes = masks_of(write(instances(crowd)), [5])
    assert pixels(masks[5]) == SQUARE_PIXELS
    assert notes == []


def test_empty_runs_of_a_crowd_are_taken_out(write):
    crowd = annotation(5, segmentation={"size": [4, 6], "counts": [5, 0, 0, 2, 2, 2, 13]}, iscrowd=1)
    masks, _ = masks_of(write(instances(crowd)), [5])
    assert masks[5] == {"size": [4, 6], "counts": SQUARE_COUNTS}


def test_parts_without_an_inside_are_left_out_and_counted(write):
    two_points = [0, 0, 6, 4]  # pycocotools would fill the box 0, 0, 6, 4
    path = write(instances(annotation(5, SQUARE, two_points, []), annotation(6, [0, 0, 6, 4], SQUARE)))
    masks, notes = masks_of(path, [5, 6])
    assert pixels(masks[5]) == pixels(masks[6]) == SQUARE_PIXELS
    assert notes == ["3 polygon parts of fewer than 3 points were left out: annotations 5, 6"]


def test_an_object_without_pixels_is_kept_and_named(write):
    masks, notes = masks_of(write(instances(annotation(5, [0, 0, 1, 1]), annotation(6))), [5, 6])
    assert rle.areas([masks[5], masks[6]]).tolist() == [0, 0]
    assert notes[1:] == ["2 objects have a mask without pixels: annotations 5, 6"]


def test_each_object_is_drawn_once(write, monkeypatch):
    drawn = []
    monkeypatch.setattr(rle, "from_polygons", lambda parts, size: drawn.append(parts) or {"size": size, "counts": "h0"})
    masks_of(write(instances(annotation(5, SQUARE))), [5, 5, 5])
    assert len(drawn) == 1


def test_sizes_told_elsewhere_must_agree(write):
    path = write(instances(annotation(5, SQUARE)))
    masks_of(path, [5], sizes={5: (6, 4)})
    with pytest.raises(DataError, match=r"annotation 5: its image has 6x4 pixels here, 4x6 in the file that refers"):
        masks_of(path, [5], sizes={5: (4, 6)})


def test_annotations_nobody_asked_for_may_be_damaged(write):
    path = write(instances(annotation(5, SQUARE), annotation(6, "nonsense"), annotation(7, image_id=99)))
    assert [*read_instances(path, {5}).annotations] == [5]


def test_none_asks_for_all_annotations(write):
    path = write(instances(annotation(5, SQUARE), annotation(4)))
    assert [*read_instances(path, None).annotations] == [5, 4]


def test_the_garbage_collector_is_on_again_afterwards(write):
    read_instances(write(instances()), None)
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("COCO_train2014_1.jpg", "train2014/COCO_train2014_1.jpg"),
        ("COCO_val2014_1.jpg", "val2014/COCO_val2014_1.jpg"),
        ("000000000001.jpg", "000000000001.jpg"),
    ],
)
def test_the_folder_of_an_image_follows_from_its_name(name, path):
    assert Image(name, 6, 4).path == path


NUMBER = "annotation 5"
BAD_OBJECTS = {
    "unknown annotation": (annotation(6, SQUARE), "has no annotations 5. Is it the file the references need?"),
    "no image id": (annotation(5, SQUARE, image_id=None), f"{NUMBER}: `image_id` is None, not an integer"),
    "unknown image": (annotation(5, SQUARE, image_id=8), f"{NUMBER}: the file has no image 8"),
    "no outline": (annotation(5, segmentation=None), f"{NUMBER}: `segmentation` is neither a list of polygons nor an"),
    "text as outline": (annotation(5, segmentation="x"), f"{NUMBER}: `segmentation` is neither a list of polygons nor"),
    "text as part": (annotation(5, "x"), f"{NUMBER}: a part of `segmentation` is no list of x, y pairs"),
    "text in a part": (annotation(5, [1, 1, 3, 1, 3, "3"]), f"{NUMBER}: a part of `segmentation` is no list of x, y"),
    "flat outline": (annotation(5, segmentation=SQUARE), f"{NUMBER}: a part of `segmentation` is no list of x, y"),
    "half a point": (annotation(5, SQUARE[:7]), f"{NUMBER}: a part of `segmentation` is no list of x, y pairs"),
    "far corner": (annotation(5, [0, 0, 1e9, 0, 0, 1]), f"{NUMBER}: `segmentation` reaches far outside its image"),
    "bad runs": (
        annotation(5, segmentation={"size": [4, 6], "counts": [20]}),
        f"{NUMBER}: not a valid RLE mask: its runs add up to 20 pixels, its image has 24",
    ),
    "runs of another size": (
        annotation(5, segmentation={"size": [6, 4], "counts": [24]}),
        f"{NUMBER}: not a valid RLE mask: its size is [6, 4], that of its image [4, 6] (height, width)",
    ),
    "no id": ({"image_id": 1, "segmentation": []}, "annotation number 0 (from 0) has no `id`; its keys are image_id"),
    "text as id": (annotation("5", SQUARE), "annotation number 0 (from 0): `id` is '5', not an integer"),
    "true as id": (annotation(True, SQUARE), "annotation number 0 (from 0): `id` is True, not an integer"),
    "no object": ([5], "annotation number 0 (from 0) is [5], not an object"),
}


@pytest.mark.parametrize(("bad", "message"), BAD_OBJECTS.values(), ids=BAD_OBJECTS.keys())
def test_a_damaged_object_is_refused_by_name(write, bad, message):
    path = write(instances(bad))
    with pytest.raises(DataError) as error:
        masks_of(path, [5])
    assert str(error.value).startswith(f"{path}: {message}")


BAD_FILES = {
    "cut short": ('{"images": [{"id"', "not valid JSON, perhaps cut short"),
    "not a number": ('{"images": NaN}', "NaN is not a number"),
    "a list": ([], "is [], not an object"),
    "no images": ({"annotations": []}, "has no `images`; its keys are annotations"),
    "no annotations": ({"images": []}, "has no `annotations`; its keys are images"),
    "images as object": ({"images": {}, "annotations": []}, "`images` is {}, not a list"),
    "same image twice": (instances(images=[image(), image()]), "more than one image has the id 1"),
    "same annotation twice": (instances(annotation(5), annotation(5)), "more than one annotation has the id 5"),
    "no width": (instances(images=[{"id": 1, "file_name": "a.jpg", "height": 4}]), "image 1 has no `width`"),
    "width as text": (instances(images=[image(width="6")]), "image 1: `width` is '6', not an integer"),
    "no pixels": (instances(images=[image(width=0)]), "image 1 is 0x4 pixels"),
    "tab in a name": (instances(images=[image(file_name="a<tab>.jpg")]), "image 1: no request line can carry"),
    "name that leads out": (
        instances(images=[image(file_name="../a.jpg")]),
        "image 1: `file_name` is '../a.jpg', which leads out",
    ),
    "absolute name": (instances(images=[image(file_name="/a.jpg")]), "image 1: `file_name` is '/a.jpg', which is abs"),
    "carriage return": (instances(images=[image(file_name="a\r.jpg")]), "image 1: `file_name` is 'a\\r.jpg', which is"),
    "more pixels than are opened": (
        instances(images=[image(width=65_500, height=65_500)]),
        "image 1 is 65500x65500 pixels, more than",
    ),
    "half a pair": (instances(images=[image(file_name="\ud800")]), "image 1: `file_name` holds half of a surrogate"),
    "category without name": (instances(categories=[{"id": 1}]), "category 1 has no `name`"),
}


@pytest.mark.parametrize(("root", "message"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_damaged_file_is_refused(write, root, message):
    path = write(root)
    with pytest.raises(DataError) as error:
        read_instances(path, None)
    assert str(error.value).startswith(path)
    assert message in str(error.value)


def test_a_missing_file_is_named():
    with pytest.raises(DataError, match=r"/nowhere/instances.json: no such file"):
        read_instances("/nowhere/instances.json", None)


def test_a_polygon_is_what_pycocotools_draws(write):
    outline = [0.3, 0.2, 5.9, 1.1, 4.2, 3.8, 2.0, 2.5]
    masks, _ = masks_of(write(instances(annotation(5, outline))), [5])
    expected = coco_mask.decode(coco_mask.frPyObjects([outline], 4, 6))[:, :, 0]
    assert np.array_equal(coco_mask.decode(masks[5]), expected)
