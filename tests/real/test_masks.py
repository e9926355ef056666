"""Masks of real COCO annotations and detections, against pycocotools' own numbers and decoded arrays."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from pycocotools import mask as coco_mask

from reftables import rle
from reftables.benchmarks import coco
from reftables.benchmarks.coco_masks import masks_of
from reftables.errors import DataError
from reftables.rows import AnswerFormat, Notation, Prediction, Status, Task, TruthRow
from reftables.scoring import masks

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),  # pycocotools' decode
]

RLE = AnswerFormat(notation=Notation.RLE, coordinates=None, order=None, prompt="plain", grid=None)


@pytest.fixture(scope="module")
def folder(real_data: Path) -> Path:
    return real_data / "coco_masks"


def test_every_annotation_has_the_area_and_box_it_should(folder):
    expected = json.loads((folder / "ann_mask_area_expected.json").read_text())
    drawn, notes = masks_of(str(folder / "instances_val2014_100.json"), [entry["ann_id"] for entry in expected])
    found = [drawn[entry["ann_id"]] for entry in expected]
    assert len(found) == 839
    assert rle.areas(found).tolist() == [entry["mask_area"] for entry in expected]
    boxes_xywh = rle.tight_boxes(found)
    boxes_xywh[:, 2:] -= boxes_xywh[:, :2]
    assert boxes_xywh.tolist() == [entry["tobbox"] for entry in expected]
    assert notes == []


def test_the_rle_cases_hold(folder):
    cases = json.loads((folder / "rle_cases.json").read_text())
    for case in cases["encode"]:
        size = tuple(case["compressed"]["size"])
        uncompressed = {"size": list(size), "counts": case["uncompressed_counts"]}
        checked = rle.check([case["compressed"], uncompressed], [size] * 2, ["a", "b"])
        assert checked == [case["compressed"]] * 2
        assert rle.areas(checked).tolist() == [case["area"]] * 2
        assert np.array_equal(coco_mask.decode(checked[0]), case["mask"])


def test_the_invalid_rle_is_refused(folder):
    invalid = json.loads((folder / "rle_cases.json").read_text())["invalid_rle"]["rle"]
    with pytest.raises(DataError, match=r"^a: not a valid RLE mask: "):
        rle.check([invalid], [tuple(invalid["size"])], ["a"])


def test_an_rle_that_begins_with_empty_runs_keeps_area_and_box(folder):
    case = json.loads((folder / "rle_cases.json").read_text())["leading_zero_rle"]
    checked = rle.check([case["rle"]], [tuple(case["rle"]["size"])], ["a"])
    assert rle.areas(checked).tolist() == [case["area"]]
    assert rle.tight_boxes(checked).tolist() == [case["toBbox"]]  # at the origin: xyxy is xywh


def paired(folder: Path) -> tuple[list[TruthRow], list[Prediction]]:
    """Every truth with the detection of its image that overlaps it best; missing where an image has none."""
    instances = folder / "instances_val2014_100.json"
    rows = coco.read_truth({"instances": str(instances)}, benchmark="coco", split="val", task=Task.MASKS).rows
    detections: dict[int, list[rle.Rle]] = {}
    for found in json.loads((folder / "instances_val2014_fakesegm100_results.json").read_text()):
        detections.setdefault(found["image_id"], []).append(found["segmentation"])
    predictions = []
    for row in rows:
        offered = detections.get(int(row["image"][-16:-4]), [])
        if not offered:
            predictions.append(Prediction(id=row["id"], status=Status.MISSING))
            continue
        best = int(np.argmax(coco_mask.iou(offered, [row["mask"]], [0])))
        predictions.append(Prediction(id=row["id"], status=Status.OK, rle=offered[best]))
    return rows, predictions


def overlap(one: rle.Rle, other: rle.Rle) -> tuple[int, int, float]:
    """Intersection, union and IoU, pixel by pixel."""
    a, b = coco_mask.decode(one), coco_mask.decode(other)
    intersection, union = int(np.logical_and(a, b).sum()), int(np.logical_or(a, b).sum())
    return intersection, union, intersection / union if union else 0.0


def test_real_detections_score_as_their_pixels_do(folder):
    rows, predictions = paired(folder)
    empty = {row["id"]: rle.from_polygons([], (row["height"], row["width"])) for row in rows}
    pixels = [
        overlap(row["mask"], dict(p.rle) if p.rle else empty[row["id"]])
        for row, p in zip(rows, predictions, strict=True)
    ]
    intersections, unions, ious = zip(*pixels, strict=True)
    scores = masks.score(rows, predictions, RLE, {})
    assert scores.official is not None
    found = {metric: ratio.value for metric, ratio in scores.official.items()}
    assert scores.columns == {"intersection": [*intersections], "union": [*unions]}
    assert found["mean_iou"] == math.fsum(ious) / len(rows)
    assert found["overall_iou"] == sum(intersections) / sum(unions)
    for threshold in (0.5, 0.6, 0.7, 0.8, 0.9):
        assert found[f"precision@{threshold}"] == sum(iou >= threshold for iou in ious) / len(rows)


def test_mask_rows_of_coco_are_its_annotations_without_crowds(folder):
    path = folder / "instances_val2014_100.json"
    annotations = json.loads(path.read_text())["annotations"]
    truth = coco.read_truth({"instances": str(path)}, benchmark="coco", split="val", task=Task.MASKS)
    assert [row["source_id"] for row in truth.rows] == [a["id"] for a in annotations if not a["iscrowd"]]
    assert all(row["image"].startswith("val2014/") for row in truth.rows)
