"""Real annotations and real answers through the whole workflow, to the numbers they must give."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workflow.conftest import Workspace

pytestmark = pytest.mark.real

SPLITS = {
    "refcoco": {"val": 10_834, "testA": 5_657, "testB": 5_095},
    "refcoco+": {"val": 10_758, "testA": 5_726, "testB": 4_889},
    "refcocog": {"val": 4_896, "test": 9_602},
}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "work")


def mdetr(annotations: str, **splits: int) -> dict[str, Any]:
    return {
        "task": "boxes",
        "source": "mdetr",
        "splits": splits,
        "annotations": annotations,
        "images": "/nowhere/coco",
    }


def test_the_oracle_on_all_eight_splits_is_what_the_grid_allows(workspace: Workspace, real_data: Path) -> None:
    workspace.config = {
        "benchmarks": {
            name: mdetr(f"{real_data}/mdetr/finetune_{name}_{{split}}.json", **splits)
            for name, splits in SPLITS.items()
        },
        "tables": {"kosmos2": {"benchmarks": list(SPLITS), "published": ["Kosmos-2"]}},
        "run": {"models": ["oracle"], "benchmarks": list(SPLITS)},
    }
    workspace.run()
    for name, splits in SPLITS.items():
        for split, n in splits.items():
            metrics = workspace.metrics("oracle", name, split)
            root = json.loads((real_data / "mdetr" / f"finetune_{name}_{split}.json").read_text(encoding="utf-8"))
            assert metrics["n"] == n
            assert metrics["counts"]["official"]["precision@1"] == hits_of_the_grid(root)
    table = workspace.read("results/tables.md")
    assert "| *Kosmos-2* " in table
    assert "*52.32*" in table


def hits_of_the_grid(root: dict[str, Any]) -> int:
    """How many boxes keep an IoU of one half when their corners are moved into a 32 x 32 grid, counted one by one."""
    images = {image["id"]: image for image in root["images"]}
    hits = 0
    for annotation in root["annotations"]:
        image = images[annotation["image_id"]]
        size = (image["width"], image["height"])
        x, y, w, h = annotation["bbox"]
        true = (x, y, x + w, y + h)
        first = [min(max(int(true[i] / size[i] * 32), 0), 31) for i in (0, 1)]
        last = [max(min(int(np.ceil(true[i + 2] / size[i] * 32)) - 1, 31), first[i]) for i in (0, 1)]
        in_line = first[0] == last[0] or first[1] == last[1]
        shift = (0, 1) if in_line else (0.5, 0.5)
        box = [(first[i] + shift[0]) / 32 * size[i] for i in (0, 1)] + [
            (last[i] + shift[1]) / 32 * size[i] for i in (0, 1)
        ]
        hits += iou(box, true) >= 0.5
    return hits


def iou(box: Any, true: Any) -> float:
    width = max(min(box[2], true[2]) - max(box[0], true[0]), 0)
    height = max(min(box[3], true[3]) - max(box[1], true[1]), 0)
    areas = [(b[2] - b[0]) * (b[3] - b[1]) for b in (box, true)]
    return float(width * height / (sum(areas) - width * height))


def test_the_overlay_for_recorded_answers_gives_the_known_scores(workspace: Workspace, real_data: Path) -> None:
    write_answers(real_data / "answers" / "instruct_baseline_refcoco_val.json", workspace.folder / "mine.val.jsonl")
    write_answers(real_data / "answers" / "thinkprompt_base_refcoco_val.json", workspace.folder / "thinking.val.jsonl")
    write_annotations(real_data / "answers" / "instruct_baseline_refcoco_val.json", workspace.folder / "asked_val.json")
    answers = {"boxes": {"notation": "json", "coordinates": "pixels"}}
    workspace.config = {
        "benchmarks": {
            "fairseq-refcoco": mdetr(f"{real_data}/kosmos2/finetune_refcoco_{{split}}.json", val500=500),
            "fairseq-refcocog": mdetr(f"{real_data}/kosmos2/finetune_refcocog_{{split}}.json", val500=500),
            "asked": mdetr("asked_{split}.json", val=2000),
        },
        "models": {
            "theirs": {
                "identity": {
                    "backend": "recorded",
                    "format": "fairseq",
                    "predictions": "logs/{benchmark}.{split}.out",
                },
                "formats": {"boxes": {"notation": "kosmos"}},
                "benchmarks": ["fairseq-refcoco", "fairseq-refcocog"],
            },
            **{
                name: {
                    "identity": {"backend": "recorded", "format": "jsonl", "predictions": "{model}.{split}.jsonl"},
                    "formats": answers,
                    "benchmarks": ["asked"],
                }
                for name in ("mine", "thinking")
            },
        },
        "run": {
            "models": ["theirs", "mine", "thinking"],
            "benchmarks": ["fairseq-refcoco", "fairseq-refcocog", "asked"],
        },
    }
    logs = workspace.folder / "logs"
    logs.mkdir()
    for name in ("refcoco", "refcocog"):
        (logs / f"fairseq-{name}.val500.out").symlink_to(real_data / "kosmos2" / f"kosmos2.{name}.val500.eval.out")
    workspace.run()

    for name, expected in (("refcoco", (0.850, 0.842, 0.868)), ("refcocog", (0.832, 0.820, 0.850))):
        official = workspace.metrics("theirs", f"fairseq-{name}", "val500")["official"]
        assert tuple(official[metric] for metric in ("precision@1", "mean_box", "upper_bound")) == expected
    mine = workspace.metrics("mine", "asked", "val")
    assert mine["official"] is None
    assert mine["counts"]["robust"]["precision@1"] == 1795
    thinking = workspace.metrics("thinking", "asked", "val")
    assert thinking["counts"]["robust"]["precision@1"] == 1712
    assert thinking["status"] == {"ok": 1946, "unparsed": 40, "truncated": 14}
    assert "unparsed" in workspace.read("results/tables.md")


def write_answers(path: Path, target: Path) -> None:
    """The raw outputs of an answer file as JSONL."""
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    lines = [json.dumps({"id": i, "text": result["model_output"]}) for i, result in enumerate(results)]
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_annotations(path: Path, target: Path) -> None:
    """The truth of an answer file as MDETR annotations; the answers are in pixels, so any image size will do."""
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    images, annotations = [], []
    for i, result in enumerate(results):
        x1, y1, x2, y2 = result["ground_truth"]
        caption = result["question"].partition("describes: ")[2].removesuffix(".")
        name = Path(result["image"]).name
        images.append({"id": i, "file_name": name, "width": 640, "height": 640, "caption": caption, "original_id": i})
        annotations.append({"id": i, "image_id": i, "bbox": [x1, y1, x2 - x1, y2 - y1], "original_id": i})
    target.write_text(json.dumps({"images": images, "annotations": annotations}), encoding="utf-8")
