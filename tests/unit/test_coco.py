"""COCO's annotations as samples."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reftables.benchmarks import coco
from reftables.benchmarks.truth import Truth
from reftables.errors import DataError
from reftables.rows import Task
from tests.unit.coco_files import SQUARE, annotation, instances

CROWD = annotation(7, segmentation={"size": [4, 6], "counts": [0, 24]}, iscrowd=1)


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Truth]:
    def write_and_read(*annotations: Any) -> Truth:
        (tmp_path / "instances.json").write_text(json.dumps(instances(*annotations)), encoding="utf-8")
        own = {"instances": str(tmp_path / "instances.json"), "images": "/coco"}
        return coco.read_truth(own, benchmark="mine", split="val", task=Task.MASKS)

    return write_and_read


def test_every_annotation_is_a_sample_in_file_order_but_crowds(read):
    rows = read(annotation(9, SQUARE), CROWD, annotation(5, SQUARE)).rows
    assert [(row["id"], row["source_id"], row["expression"]) for row in rows] == [(0, 9, "dog"), (1, 5, "dog")]
    assert all("mask" in row and row["bbox_xywh"] == [1, 1, 2, 2] for row in rows)


def test_the_requests_are_the_categories(read):
    assert coco.request_texts(read(annotation(9, SQUARE)).rows, {}, split="val", prompt="plain") == ["dog"]


def test_a_category_must_be_known(read):
    with pytest.raises(DataError, match=r"annotation 9: the file has no category 3"):
        read(annotation(9, SQUARE, category_id=3))


def test_a_file_of_crowds_has_no_samples(read):
    with pytest.raises(DataError, match=r"instances.json: has no annotation that is no crowd"):
        read(CROWD)
