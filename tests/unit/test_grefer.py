"""gRefCOCO: one target, several, none; unions and crowds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pycocotools import mask as coco_mask

from reftables.benchmarks import grefer
from reftables.benchmarks.truth import Truth
from reftables.errors import DataError
from reftables.rows import Task
from tests.unit.coco_files import SMALL, SQUARE, annotation, instances, ref

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' decode

UNCONFIRMED = "gRefCOCO: the numbers of samples are not confirmed by any publication"
CROWD = annotation(7, segmentation={"size": [4, 6], "counts": [0, 24]}, iscrowd=1)


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Truth]:
    """Write references (or bare text) beside instances 5 and 6 and the crowd 7, and read val."""

    def write_and_read(*refs: Any, text: str | None = None) -> Truth:
        root = instances(annotation(5, SQUARE), annotation(6, SMALL), CROWD)
        (tmp_path / "grefs(unc).json").write_text(json.dumps(refs) if text is None else text, encoding="utf-8")
        (tmp_path / "instances.json").write_text(json.dumps(root), encoding="utf-8")
        own = {"refs": str(tmp_path / "grefs(unc).json"), "instances": str(tmp_path / "instances.json")}
        return grefer.read_truth(own | {"images": "/coco"}, benchmark="grefcoco", split="val", task=Task.MASKS)

    return write_and_read


def pixels(row: dict[str, Any]) -> list[str]:
    return ["".join(map(str, line)) for line in coco_mask.decode(row["mask"]).tolist()]


def test_one_target_is_its_object(read):
    [row] = read(ref(5, ann_id=[5])).rows
    assert pixels(row) == ["000000", "011000", "011000", "000000"]
    assert row["bbox_xywh"] == [1, 1, 2, 2]


def test_several_targets_are_the_union_and_have_no_box(read):
    [row] = read(ref(5, ann_id=[5, 6])).rows
    assert pixels(row) == ["110000", "111000", "011000", "000000"]
    assert "bbox_xywh" not in row


def test_no_target_has_no_mask(read):
    rows = read(ref(5, ann_id=[5]), ref(8, "a unicorn", ann_id=[-1]), ref(9, ann_id=[-1], no_target=True)).rows
    assert [row.get("no_target") for row in rows] == [None, True, True]
    assert [row.keys() & {"mask", "mask_of", "bbox_xywh"} for row in rows[1:]] == [set(), set()]


def test_the_same_targets_share_a_mask_in_any_order(read):
    rows = read(ref(5, "a", "b", ann_id=[5, 6]), ref(8, ann_id=[6, 5]), ref(9, ann_id=[6])).rows
    assert [row.get("mask_of") for row in rows] == [None, 0, 0, None]


def test_a_crowd_is_left_out_of_several_targets_and_noted(read):
    truth = read(ref(5, ann_id=[5, 7]))
    assert pixels(truth.rows[0]) == ["000000", "011000", "011000", "000000"]
    assert truth.notes == [
        "1 crowds were left out of the union of several targets, as in ReLA: annotations 7",
        UNCONFIRMED,
    ]


def test_a_crowd_alone_is_the_target(read):
    truth = read(ref(5, ann_id=[7]))
    assert pixels(truth.rows[0]) == ["111111"] * 4
    assert truth.notes == [UNCONFIRMED]


def test_a_bare_annotation_id_is_a_list_of_one(read):
    assert read(ref(5, ann_id=5, no_target=False)).rows[0]["bbox_xywh"] == [1, 1, 2, 2]
    assert read(ref(5, ann_id=-1)).rows[0]["no_target"]


def test_the_requests_are_the_expressions(read):
    rows = read(ref(5, "both dogs", ann_id=[5, 6])).rows
    assert grefer.request_texts(rows, {}, split="val", prompt="plain") == ["both dogs"]


BAD = {
    "no ids": ({"ann_id": []}, "`ann_id` is [], not a list of annotation ids, or [-1] for no target"),
    "text as id": ({"ann_id": ["5"]}, "`ann_id` is ['5'], not a list of annotation ids, or [-1] for no target"),
    "null": ({"ann_id": None}, "`ann_id` is None, not a list of annotation ids, or [-1] for no target"),
    "target and none": ({"ann_id": [5, -1]}, "`ann_id` is [5, -1]: no target beside a target"),
    "flag without need": ({"ann_id": [5], "no_target": True}, "`no_target` is True, but `ann_id` is [5]"),
    "flag missing": ({"ann_id": [-1], "no_target": False}, "`no_target` is False, but `ann_id` is [-1]"),
    "number as flag": ({"ann_id": [-1], "no_target": 1}, "`no_target` is 1, not true or false"),
    "unknown annotation": ({"ann_id": [5, 70]}, "FOLDER/instances.json has no annotations 70"),
}


@pytest.mark.parametrize(("changed", "message"), BAD.values(), ids=BAD.keys())
def test_damaged_references_are_refused_by_name(read, tmp_path, changed, message):
    with pytest.raises(DataError) as error:
        read(ref(5, **changed))
    assert str(error.value) == f"{tmp_path}/grefs(unc).json: reference 5: {message.replace('FOLDER', str(tmp_path))}"


def test_a_file_that_is_cut_short_is_refused(read):
    with pytest.raises(DataError, match=r"grefs\(unc\).json: not valid JSON, perhaps cut short"):
        read(text=json.dumps([ref(5, ann_id=[5])])[:-9])
