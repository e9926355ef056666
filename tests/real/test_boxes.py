"""Boxes on real annotations and real answers, against the values known for them."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reftables.kosmos import can_match_officially, decode_pairs, encode_boxes
from reftables.rows import AnswerFormat, Coordinates, Notation, Prediction, Status, TruthRow
from reftables.scoring.boxes import score
from reftables.scoring.scores import Ratio

pytestmark = pytest.mark.real

KOSMOS = AnswerFormat(notation=Notation.KOSMOS, coordinates=None, order=None, prompt="kosmos", grid=32)
JSON = AnswerFormat(notation=Notation.JSON, coordinates=Coordinates.PIXELS, order=None, prompt="plain", grid=None)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def hits(metrics: dict[str, Ratio] | None) -> list[int | None]:
    assert metrics is not None
    return [metrics[name].hits for name in ("precision@1", "mean_box", "upper_bound")]


def annotated(path: Path) -> list[TruthRow]:
    content = read_json(path)
    return [
        {
            "expression": image["caption"],
            "width": image["width"],
            "height": image["height"],
            "bbox_xywh": annotation["bbox"],
        }
        for image, annotation in zip(content["images"], content["annotations"], strict=True)
    ]


def logged(path: Path) -> list[Prediction]:
    """The H- lines of a fairseq log, by id."""
    lines = [line for line in path.read_text(encoding="utf-8").split("\n") if line.startswith("H-")]
    fields = [line.split("\t", 2) for line in lines]
    found = [Prediction(id=int(name[2:]), status=Status.OK, text=text) for name, _, text in fields]
    return sorted(found, key=lambda prediction: prediction.id)


@pytest.mark.parametrize("dataset", ["refcoco", "refcocog"])
def test_a_kosmos_run_has_its_known_score(real_data: Path, dataset: str):
    folder = real_data / "kosmos2"
    expected = read_json(folder / "expected.json")[dataset]
    truth = annotated(folder / f"finetune_{dataset}_val500.json")
    scores = score(truth, logged(folder / f"kosmos2.{dataset}.val500.eval.out"), KOSMOS, {})
    known = [round(expected[name] * expected["n"]) for name in ("p_at_1", "mean", "upper_bound")]
    assert (hits(scores.official), hits(scores.robust)) == (known, known)
    assert Counter(scores.statuses) == {"ok": 495, "unparsed": expected["rows"]["no-object"]}


def test_all_pairs_decode_as_the_authors_and_transformers_decode_them(real_data: Path):
    table = read_json(real_data / "kosmos2" / "patch_index_oracle.json")["patch_index_to_coordinate"]
    pairs, boxes = (np.array(column) for column in zip(*table, strict=True))
    assert decode_pairs(pairs, 32).tolist() == boxes.tolist()


def test_all_boxes_encode_as_transformers_encodes_them(real_data: Path):
    table = read_json(real_data / "kosmos2" / "patch_index_oracle.json")["coordinate_to_patch_index"]
    boxes, pairs = zip(*[entry for entry in table if entry[1] != "ValueError"], strict=True)
    assert len(table) - len(boxes) == 1  # transformers refuses the one box without area
    assert encode_boxes(np.array(boxes), 32).tolist() == list(pairs)


def test_one_caption_of_the_official_splits_can_never_match(real_data: Path):
    files = sorted((real_data / "mdetr").glob("finetune_*.json"))
    captions = [image["caption"] for path in files for image in read_json(path)["images"]]
    assert len(captions) == 57_457
    assert [caption for caption in captions if not can_match_officially(caption)] == ["baseball player ` gibson ´."]


def answered(path: Path) -> tuple[list[TruthRow], list[Prediction]]:
    results: Sequence[dict[str, Any]] = read_json(path)["results"]
    truth = []
    for result in results:
        x1, y1, x2, y2 = result["ground_truth"]
        # The files give no image sizes; pixels need none.
        truth.append({"expression": "", "width": 1000, "height": 1000, "bbox_xywh": [x1, y1, x2 - x1, y2 - y1]})
    texts = [result["model_output"] for result in results]
    return truth, [Prediction(id=row, status=Status.OK, text=text) for row, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("name", "right", "statuses"),
    [
        pytest.param("instruct_baseline_refcoco_val", 1795, {"ok": 2000}, id="instruct-refcoco"),
        pytest.param("instruct_baseline_refcocog_val", 1732, {"ok": 2000}, id="instruct-refcocog"),
        # The reference parse of this file lost 1,279 answers and counted 653; the last box anywhere, be it in
        # the reasoning, has 1,716.
        pytest.param(
            "thinkprompt_base_refcoco_val", 1712, {"ok": 1946, "unparsed": 40, "truncated": 14}, id="think-refcoco"
        ),
    ],
)
def test_text_answers_have_their_known_score(real_data: Path, name: str, right: int, statuses: dict[str, int]):
    scores = score(*answered(real_data / "answers" / f"{name}.json"), JSON, {})
    assert scores.robust is not None
    assert scores.robust["precision@1"].hits == right
    assert (scores.official, Counter(scores.statuses), scores.notes) == (None, statuses, [])
