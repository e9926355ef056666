"""The real annotation files at true size, the authors' form of requests, and whole fairseq logs."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from reftables.benchmarks import mdetr
from reftables.files import format_request, read_lines
from reftables.models import recorded
from reftables.models.job import Job
from reftables.rows import AnswerFormat, Notation, Request, Status, Task, TruthRow

pytestmark = pytest.mark.real

SPLITS = {  # dataset, split: expressions, images
    ("refcoco", "val"): (10_834, 1_500),
    ("refcoco", "testA"): (5_657, 750),
    ("refcoco", "testB"): (5_095, 750),
    ("refcoco+", "val"): (10_758, 1_500),
    ("refcoco+", "testA"): (5_726, 750),
    ("refcoco+", "testB"): (4_889, 750),
    ("refcocog", "val"): (4_896, 1_300),
    ("refcocog", "test"): (9_602, 2_600),
}


def settings_of(annotations: Path, images: str = "/data", **more: str) -> dict[str, str]:
    return {"annotations": str(annotations), "images": images} | more


def truth_of(annotations: Path) -> mdetr.Truth:
    return mdetr.read_truth(settings_of(annotations), benchmark="real", split="val", task=Task.BOXES)


def locout(rows: Sequence[TruthRow], settings: dict[str, str]) -> bytes:
    """The request file, as the requests stage writes it."""
    texts = mdetr.request_texts(rows, settings, split="val", prompt="kosmos")
    root = mdetr.image_root(settings, "val")
    lines = [
        format_request(f"{root}/{row['image']}", text, prompt="kosmos") for row, text in zip(rows, texts, strict=True)
    ]
    return "".join(f"{line}\n" for line in lines).encode()


@pytest.fixture
def annotations_of(real_data: Path):
    def find(dataset: str, split: str) -> Path:
        return real_data / "mdetr" / f"finetune_{dataset}_{split}.json"

    return find


@pytest.mark.parametrize(("dataset", "split"), SPLITS)
def test_an_official_split_has_its_samples_images_and_requests(annotations_of, dataset, split):
    path = annotations_of(dataset, split)
    truth = truth_of(path)
    root = json.loads(path.read_text(encoding="utf-8"))
    assert (len(truth.rows), len({row["image"] for row in truth.rows})) == SPLITS[dataset, split]
    assert [row["id"] for row in truth.rows] == list(range(len(truth.rows)))
    assert [row["source_id"] for row in truth.rows] == [annotation["id"] for annotation in root["annotations"]]
    assert [row["bbox_xywh"] for row in truth.rows] == [annotation["bbox"] for annotation in root["annotations"]]
    assert locout(truth.rows, settings_of(path)).count(b"\n") == len(truth.rows)


def test_all_splits_share_6549_images_of_train2014(annotations_of):
    images = {row["image"] for name in SPLITS for row in truth_of(annotations_of(*name)).rows}
    assert len(images) == 6_549
    assert all(image.startswith("train2014/COCO_train2014_") for image in images)


@pytest.mark.parametrize("dataset", ["refcoco", "refcocog"])
def test_requests_equal_the_authors_byte_for_byte(real_data, dataset):
    path = real_data / "kosmos2" / f"finetune_{dataset}_val500.json"
    assert locout(truth_of(path).rows, settings_of(path)) == Path(f"{path}.locout").read_bytes()


@pytest.mark.parametrize("dataset", ["refcoco", "refcocog"])
def test_a_ready_made_file_is_imported_under_another_root(real_data, dataset):
    path = real_data / "kosmos2" / f"finetune_{dataset}_val500.json"
    settings = settings_of(path, images="/elsewhere/coco/", requests=f"{path}.locout")
    expected = Path(f"{path}.locout").read_bytes().replace(b"[image]/data/", b"[image]/elsewhere/coco/")
    assert locout(truth_of(path).rows, settings) == expected


@pytest.mark.parametrize("dataset", ["refcoco", "refcocog"])
def test_a_whole_fairseq_log_answers_every_sample(real_data, dataset):
    log = real_data / "kosmos2" / f"kosmos2.{dataset}.val500.eval.out"
    rows = truth_of(real_data / "kosmos2" / f"finetune_{dataset}_val500.json").rows
    job = Job(
        model="theirs",
        benchmark=dataset,
        split="val500",
        task=Task.BOXES,
        form=AnswerFormat(notation=Notation.KOSMOS, coordinates=None, order=None, prompt="kosmos", grid=32),
        identity={"backend": "recorded", "format": "fairseq", "predictions": str(log)},
        execution={},
        truth=rows,
    )
    predictions = list(recorded.predict([Request(row["id"], row["image"], "") for row in rows], job))
    texts = {line.split("\t", 2)[2] for line in read_lines(log) if line.startswith("H-")}
    assert [p.id for p in predictions] == list(range(500))
    assert {p.status for p in predictions} == {Status.OK}
    assert {p.text for p in predictions} == texts
