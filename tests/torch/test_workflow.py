"""Kosmos-2 through Snakemake, on the bundled sample and on images that break."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from reftables.kosmos import find_groundings
from tests.torch.tiny_kosmos2 import HUB_NAME, fill_hub_cache, plain_image
from tests.workflow.conftest import Workspace
from tests.workflow.material import WORDS, boxes_benchmark, write_annotations

pytestmark = pytest.mark.torch


def kosmos2_model(**identity: Any) -> dict[str, Any]:
    return {
        "identity": {"backend": "kosmos2", **identity},
        "exec": {"env": "torch", "batch_size": 2},
        "formats": {"boxes": {"notation": "kosmos"}},
    }


def read_lines(workspace: Workspace, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in workspace.read(name).split("\n") if line]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return Workspace(tmp_path / "work")


def test_the_sample_is_answered_scored_and_never_asked_again(workspace: Workspace, kosmos2_folder: Path) -> None:
    workspace.config = {
        "models": {"tiny": kosmos2_model(weights=str(kosmos2_folder))},
        "run": {"models": ["tiny"], "benchmarks": ["sample-boxes"], "limit": 12},
    }
    assert workspace.run().jobs["infer_tiny"] == 2
    predictions = read_lines(workspace, "results/predictions/tiny/sample-boxes/val.jsonl")
    assert Counter(row["status"] for row in predictions) == {"ok": 12}
    assert all(find_groundings(row["text"]) for row in predictions)
    metrics = workspace.metrics("tiny", "sample-boxes", "val")
    assert (metrics["n"], metrics["weights"]) == (12, [predictions[0]["weights"]])
    assert metrics["official"]["precision@1"] is not None
    log = workspace.read("results/predictions/tiny/sample-boxes/val.fairseq.out").split("\n")[:-1]
    assert [line.split("\t", 2) for line in log] == [[f"H-{row['id']}", "nan", row["text"]] for row in predictions]
    assert workspace.run().jobs == Counter()
    # The predictions anew, but from the store: that of a model, which is not even loaded.
    forced = workspace.run("--forcerun", "infer_tiny")
    assert forced.jobs["infer_tiny"] == 2
    infer_log = workspace.read("results/logs/infer_tiny/sample-boxes/val.log")
    assert "12 requests, 0 to ask" in infer_log
    assert "weights:" not in infer_log


def test_a_broken_image_costs_its_own_answers_only(workspace: Workspace, kosmos2_folder: Path) -> None:
    images = workspace.folder / "data" / "images" / "train2014"
    images.mkdir(parents=True)
    write_annotations(workspace.folder / "data", "val", 100, WORDS)
    names = [images / f"COCO_train2014_{number:012d}.jpg" for number in range(3)]
    for name, colour in zip(names, ("red", "green", "blue"), strict=True):
        plain_image(colour, (160, 120)).save(name)
    whole = names[0].read_bytes()  # the first to be asked about
    names[0].write_bytes(whole[:200])
    fill_hub_cache(workspace.folder.parent / "hub" / "hub", kosmos2_folder)
    workspace.config = {
        "benchmarks": {"mine": boxes_benchmark(val=6)},
        "models": {"tiny": kosmos2_model(weights=HUB_NAME, revision="main")},
        "run": {"models": ["tiny"], "benchmarks": ["mine"]},
    }
    failed = workspace.run(check=False)
    assert failed.status == 1
    assert "2 of 6 requests failed (" in failed.output
    assert "COCO_train2014_000000000000.jpg: not a readable image" in failed.output
    assert not (workspace.folder / "results/predictions/tiny/mine/val.jsonl").exists()
    names[0].write_bytes(whole)
    workspace.run("--forcerun", "manifest")
    assert "6 requests, 2 to ask" in workspace.read("results/logs/infer_tiny/mine/val.log")
    predictions = read_lines(workspace, "results/predictions/tiny/mine/val.jsonl")
    assert [row["id"] for row in predictions] == list(range(6))
    assert {row["weights"] for row in predictions} == {"5eed" * 10}
